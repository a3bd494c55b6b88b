"""Files whose times say when the processes of a run's ranks were last seen to run."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from trimtab.catalog import bound

_NAME = re.compile(r"^\.beat\.r(\d+)$")


def beat_path(folder: Path, rank: int) -> Path:
    """
    >>> beat_path(Path("runs/exp1"), 3).name
    '.beat.r3'
    """
    return folder / f".beat.r{rank}"


def stopped_ranks(folder: Path) -> dict[int, float]:
    """Return rank -> seconds that its last heartbeat lies behind the newest one of all ranks, where that is
    long enough to call its process stopped.

    Times of files are compared with each other, so the clock of this machine does not matter. Nobody's beat
    is older where all ranks are gone.

    Args:
        folder: run folder; one without heartbeats, or that is gone, has no stopped ranks.

    Example:
        stopped_ranks(Path("runs/exp1"))  # {3: 12.5}
    """
    times: dict[int, float] = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if (match := _NAME.match(entry.name)) is not None:
                with suppress(OSError):  # its rank has just ended
                    times[int(match[1])] = entry.stat().st_mtime
    newest = max(times.values(), default=0.0)
    limit = bound("rank_stopped_s")
    return {rank: newest - time for rank, time in sorted(times.items()) if newest - time > limit}

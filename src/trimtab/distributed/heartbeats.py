"""Heartbeats: a thread of each rank shows that its process runs, also while a collective holds all ranks up.

A stopped process beats no more; one that waits in a collective does. So the rank that all others wait for has
a name. Times are those that the file system writes, of one clock for all ranks.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from trimtab.catalog import bound
from trimtab.runs.beat_files import beat_path

log = logging.getLogger("trimtab")


class Heartbeats:
    """Beats for this rank, and watches the beats of others, in a daemon thread.

    Example:
        beats = Heartbeats("runs/exp1", own=0, watched=[1, 2, 3])
        beats.take_stopped()  # ranks that did not beat for a while since the last call
    """

    def __init__(self, folder: str | os.PathLike[str], own: int, watched: Collection[int]) -> None:
        self.folder, self.own, self.watched = Path(folder), own, tuple(sorted(watched))
        self._stopped: set[int] = set()  # now
        self._to_tell: set[int] = set()  # since `take_stopped`
        self._lock, self._end = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="trimtab-heartbeat", daemon=True)
        self._thread.start()

    def take_stopped(self) -> set[int]:
        """Return the watched ranks that are stopped, or were since the last call."""
        with self._lock:
            stopped, self._to_tell = self._stopped | self._to_tell, set()
        return stopped

    def close(self) -> None:
        """End the thread, and take the beat away: a rank that is done is not stopped."""
        self._end.set()
        self._thread.join(1.0)
        with suppress(OSError):
            beat_path(self.folder, self.own).unlink()

    def _run(self) -> None:
        while not self._end.is_set():
            with suppress(OSError):  # a folder that is gone for a moment
                beat_path(self.folder, self.own).write_bytes(b"")
                os.utime(beat_path(self.folder, self.own))
                self._watch(beat_path(self.folder, self.own).stat().st_mtime)
            self._end.wait(bound("rank_beat_s"))

    def _watch(self, now: float) -> None:
        stopped = set()
        for rank in self.watched:
            with suppress(OSError):  # not there yet, or done
                age = now - beat_path(self.folder, rank).stat().st_mtime
                if age > bound("rank_stopped_s"):
                    stopped.add(rank)
        with self._lock:
            new = stopped - self._stopped
            self._stopped = stopped
            self._to_tell |= stopped
        for rank in sorted(new):
            log.warning("trimtab: rank %d has stopped: no heartbeat of its process for some seconds", rank)

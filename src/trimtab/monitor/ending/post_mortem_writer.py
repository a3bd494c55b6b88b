"""The post-mortem written by the process that dies: it never replaces what ended the process, nor holds it up
by a failure."""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from trimtab.errors import TrimtabError
from trimtab.runs.schema import CLEAN_ENDS, file_name

log = logging.getLogger("trimtab")

_TAIL = 2**18
"""Bytes at the end of a file of rows that are read."""
_MAX_LINES = 8


class PostMortemWriter:
    """Writes `postmortem.json` of one run, at most once for the same end.

    It reads the run folder alone and changes no state of the run, so that a signal may call it wherever the
    run is interrupted. Rank 0 writes for all; another rank writes only of an exception of its own.

    Args:
        folder: the run folder.
        rank: the rank of this process.
        session: of this run, as its files count them.
    """

    def __init__(self, folder: Path, rank: int, session: int) -> None:
        self.folder, self.rank, self.session = folder, rank, session
        self._pid = os.getpid()
        self._busy = False

    def write(self, reason: str) -> None:
        """Write it, unless the run ended well; a failure is one line in the log.

        Args:
            reason: how the run ended, as in its row of `end`.
        """
        if os.getpid() != self._pid or self._busy or (self.rank and reason != "exception"):
            return
        self._busy = True
        try:
            if reason not in CLEAN_ENDS or self._ended_in_trouble():
                self._write()
        except (Exception, KeyboardInterrupt) as error:  # what ended the run counts, not this
            log.warning("trimtab: no post-mortem of %s: %s", self.folder, _one_line(error))
        finally:
            self._busy = False

    def _ended_in_trouble(self) -> bool:
        """Did a run that says it finished end in values that are not finite, or because its guard stopped it?

        The ends of two files say so; a run that ended well is not read again.
        """
        try:
            steps, actions = (self._last_rows(kind) for kind in ("steps", "actions"))
        except OSError:  # the folder went away, which the writer of rows says
            return False
        bad = bool(steps) and bool(steps[-1].get("nonfinite"))
        return bad or any(row.get("action") == "stop" and not row.get("dry_run") for row in actions)

    def _last_rows(self, kind: str) -> list[dict[str, Any]]:
        with (self.folder / file_name(kind, self.rank, self.session)).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().split(b"\n")[-_MAX_LINES - 1 : -1]
        rows = []
        for line in lines:
            with suppress(ValueError, RecursionError):
                rows.append(json.loads(line))
        return [row for row in rows if isinstance(row, dict)]

    def _write(self) -> None:
        # read late: a run that ends well imports none of it
        from trimtab.report.post_mortem.post_mortem_file import POST_MORTEM, keep_post_mortem
        from trimtab.report.run_view import load_view

        record, written = keep_post_mortem(load_view(self.folder), "process")
        if record is not None and written:
            path = self.folder / POST_MORTEM
            log.error(
                "trimtab: %s Post-mortem: %s (trimtab postmortem %s)", record["headline"], path, self.folder
            )


def _one_line(error: BaseException) -> str:
    text = str(error) if isinstance(error, (TrimtabError, OSError)) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:300]

"""Ranks that ended as they should: they write no more, and nobody has to look for them."""

from __future__ import annotations

import os
from pathlib import Path

from trimtab.runs.row_lines import decode_line
from trimtab.runs.schema import CLEAN_ENDS, file_name


class EndedRanks:
    """Reads the files `end` of a run folder, of the newest session of each rank, when it is asked.

    Example:
        ended = EndedRanks("runs/exp1")
        ended.has_ended(3, last_step=40)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._sessions: dict[int, int] = {}  # rank -> the newest session that was seen

    def has_ended(self, rank: int, last_step: int) -> bool:
        """Whether a rank finished, closed its run or exited after `last_step`.

        One that ended by an exception or a signal did not. Steps written later make an end void.
        """
        session = self._sessions.get(rank, 0)
        while (self.folder / file_name("steps", rank, session + 1)).exists():
            session += 1
        self._sessions[rank] = session
        try:
            data = (self.folder / file_name("end", rank, session)).read_bytes()
        except OSError:
            return False
        lines = data.splitlines()
        row, vouched = decode_line(lines[-1]) if lines else (None, False)
        if row is None or not vouched:
            return False
        step = row.get("step")
        return row.get("reason") in CLEAN_ENDS and isinstance(step, int) and step >= last_step

"""Is a file an agent log, whatever it was taken for?"""

from __future__ import annotations

import itertools
import os
from typing import Any

from trimtab.errors import TraceError
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.files.json_records import iter_records
from trimtab.traces.registry import find_format

_NUM_RECORDS = 20
_TURNS = ("messages", "turns", "steps", "trajectory", "traj")
_OF_A_TURN = ("role", "content", "action", "observation", "tool", "tool_calls", "thought", "response")


def is_agent_log(path: str | os.PathLike[str]) -> bool:
    """Are half and more of a file's first records episodes, or parts of them?

    A file that cannot be read as JSON or Parquet is none.

    Args:
        path: a file; no pipe.
    """
    try:
        records = itertools.islice(iter_records(os.fspath(path), ReadReport()), _NUM_RECORDS)
        values = [record.value for record in records]
    except (TraceError, OSError):
        return False
    return bool(values) and 2 * sum(map(_is_episode, values)) >= len(values)


def _is_episode(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    turns = [turn for name in _TURNS if isinstance(value.get(name), list) for turn in value[name]]
    if any(isinstance(turn, dict) and not turn.keys().isdisjoint(_OF_A_TURN) for turn in turns):
        return True
    return find_format([value]) is not None

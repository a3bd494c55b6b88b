"""Was the issue resolved? Trajectories do not say; the harness's report, where it lies beside them, does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.files.find import STDIN

NAMES = ("report.json", "results.json")
"""Files that SWE-bench's harness and sb-cli write; in the trajectory's folder or in the one above."""

_MAX_BYTES = 2**26
_FAILED = ("unresolved_ids", "unresolved", "empty_patch_ids", "error_ids", "completed_ids")


def verdict_of(task: str, file: str, used: set[str]) -> bool | None:
    """True where a report beside the file lists the task as resolved, False where it lists it otherwise, None where it says nothing.
    What said it goes to `used`, resolved."""
    if file == STDIN:
        return None
    here = Path(file).parent
    for folder in (here, here.parent):
        for name in NAMES:
            found = _of_report(_report(folder / name), task)
            if found is not None:
                used.add(str((folder / name).resolve()))
                return found
    return None


def _report(path: Path) -> Any:
    try:
        return parse_json(path.read_bytes()) if path.stat().st_size <= _MAX_BYTES else None
    except (OSError, ValueError, BadJson):
        return None


def _of_report(report: Any, task: str) -> bool | None:
    """A run's report has lists of ids; an instance's is keyed by its id."""
    if not isinstance(report, dict):
        return None
    one = report.get(task)
    if isinstance(one, dict) and isinstance(one.get("resolved"), bool):
        return bool(one["resolved"])
    resolved = report.get("resolved_ids", report.get("resolved"))
    if not isinstance(resolved, list):
        return None
    if task in resolved:
        return True
    others = [report[name] for name in _FAILED if isinstance(report.get(name), list)]
    return False if not others or any(task in ids for ids in others) else None

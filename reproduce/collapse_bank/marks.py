"""Where recorded runs are, and the small file each one ends with: what the run was, and what became of it.

A store is a folder of archives (reproduce/archives.py), one for each cause and role, those of test seeds apart. Unpacked it has one folder a run,
tuning/<cause>-<role>-s<seed>, test/<cause>-<role>-test-s<seed> and, of later registrations, second/<cause>-<role>-second-s<seed> and so on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reproduce.archives import files_below
from reproduce.collapse_bank.regimes import CAUSES, HALVES, half_of
from trimtab.errors import RunError

__all__ = ["MARK", "finished_files", "folder_of", "read_mark", "run_folders", "write_mark"]

MARK = "collapse.json"
RESTORE = "restore it (git restore), or record it again"


def folder_of(store: Path, cause: str, seed: int, role: str) -> Path:
    """Return where a run is recorded; test seeds lie apart."""
    half = half_of(seed)
    return store / half / f"{cause}-{role}{'' if half == 'tuning' else f'-{half}'}-s{seed}"


def run_folders(store: Path) -> list[Path]:
    """Return the folders of finished runs, tuning seeds first."""
    return [path.parent for half in HALVES for path in sorted((store / half).glob(f"*/{MARK}"))]


def finished_files(store: Path) -> list[Path]:
    """Return the files of all finished runs."""
    return [file for folder in run_folders(store) for file in files_below(folder)]


def write_mark(folder: Path, mark: dict[str, Any]) -> None:
    """Write the mark, whole or not at all: a folder without one is not finished."""
    half = folder / f"{MARK}.part"
    half.write_text(json.dumps(mark, indent=1) + "\n")
    half.replace(folder / MARK)


def read_mark(folder: Path) -> dict[str, Any]:
    """Read the mark of a finished run; raises RunError for a damaged one."""
    path = folder / MARK
    try:
        mark = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}; {RESTORE}") from error
    fields: Iterable[tuple[str, type | tuple[type, ...]]] = (
        ("cause", str), ("role", str), ("seed", int), ("steps", int), ("event", (int, type(None))), ("fault_step", (int, type(None))),
    )  # fmt: skip
    for name, kind in fields:
        if not isinstance(mark, dict) or not isinstance(mark.get(name, ""), kind):
            raise RunError(f"{path} has no {name!r}; {RESTORE}")
    if mark["cause"] not in CAUSES:
        raise RunError(
            f"{path} names the cause {mark['cause']!r}, and there are {', '.join(CAUSES)}; {RESTORE}"
        )
    return dict(mark)

"""What state a run's folder is in, and reading its small files: damage is an error of one line, and is never trained over.

A finished run has pilot.json, written last and whole. While a run is trained a file beside its folder says so
(`<run>.unfinished`); only with that file there, and without pilot.json, may the folder be begun anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from reproduce.archives import files_below
from reproduce.pilot.arms import PILOT
from trimtab.errors import RunError

__all__ = ["CONTROLS", "MARK", "check_bank", "finished", "finished_files", "folder_of", "read_controls", "read_mark", "run_folders", "scratch_of", "state_of", "unfinished_file", "write_mark"]  # fmt: skip

MARK, CONTROLS, UNFINISHED = "pilot.json", "controls.jsonl", ".unfinished"
HALVES = ("tuning", "test")
AWAY = "move the folder out of the bank, or restore it (git restore, for a recorded run)"
PARTS = ("gradient_variance", "matched_turn", "matched_position")


def folder_of(bank: Path, arm: str, seed: int) -> Path:
    """Where a run is recorded; the half of the bank follows from the seed."""
    return bank / ("test" if seed % 2 else "tuning") / f"{arm}-s{seed}"


def unfinished_file(folder: Path) -> Path:
    """The file that says that this script is training the run, or was stopped while it did."""
    return folder.with_name(folder.name + UNFINISHED)


def state_of(folder: Path) -> Literal["missing", "unfinished", "finished"]:
    """Raises RunError for anything else: a damaged mark, or a folder that this script neither finished nor left unfinished."""
    if (folder / MARK).exists():
        read_mark(folder)
        return "finished"
    if unfinished_file(folder).exists():
        return "unfinished"
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(
            f"{folder} is no finished run (it has no {MARK}) and was not left by this script; {AWAY}"
        )
    return "missing"


def finished(folder: Path, steps: int) -> bool:
    """Has this run reached its end? RunError for a damaged folder, and for a run that ended before `steps`: neither is trained over."""
    if state_of(folder) != "finished":
        return False
    if (had := read_mark(folder)["steps"]) < steps:
        raise RunError(
            f"{folder} ended after {had} steps and {steps} are wanted; give another --bank, or move the run away"
        )
    return True


def scratch_of(folder: Path) -> Path:
    """Where the trainer of a run keeps its own files while it trains."""
    return folder.with_name(folder.name + ".trainer")


def run_folders(bank: Path) -> list[Path]:
    """The folders of both halves."""
    return [path for half in HALVES for path in sorted((bank / half).glob("*")) if path.is_dir() and path.suffix != ".trainer"]  # fmt: skip


def finished_files(bank: Path) -> list[Path]:
    """Return the files of the finished runs of both halves."""
    return [file for folder in run_folders(bank) if (folder / MARK).exists() for file in files_below(folder)]


def check_bank(bank: Path) -> None:
    """Raise for the first thing in the bank that is neither a run nor the beginning of one; an absent bank is an empty one."""
    if bank.exists() and not bank.is_dir():
        raise RunError(f"{bank} is a file; give a folder for the bank")
    for folder in run_folders(bank):
        state_of(folder)


def read_mark(folder: Path) -> dict[str, Any]:
    """The mark of a finished run, checked: the fields that are read, a known arm, the folder that belongs to it."""
    path = folder / MARK
    mark = _parsed(path, _text(path))
    fields = {"arm": str, "family": str, "seed": int, "steps": int, "settings": dict}
    for name, kind in fields.items():
        if not isinstance(mark, dict) or not isinstance(mark.get(name), kind):
            raise RunError(f"{path} has no {name!r} of type {kind.__name__}; {AWAY}")
    if not isinstance(mark["settings"].get("config"), dict):
        raise RunError(f"{path} has no 'config' in its settings; {AWAY}")
    if mark["arm"] not in PILOT:
        raise RunError(f"{path} names the arm {mark['arm']!r}, which reproduce/pilot/arms.py does not know; {AWAY}, or add the arm")  # fmt: skip
    expected = folder_of(folder.parents[1], mark["arm"], mark["seed"])
    if expected != folder:
        raise RunError(
            f"{path} is of {mark['arm']}, seed {mark['seed']}, which belongs in {expected}; {AWAY}"
        )
    return dict(mark)


def write_mark(folder: Path, mark: dict[str, Any]) -> None:
    """The last act of a run: the mark appears whole or not at all."""
    half = folder / (MARK + ".part")
    half.write_text(json.dumps(mark, indent=1) + "\n")
    half.replace(folder / MARK)
    unfinished_file(folder).unlink(missing_ok=True)


def read_controls(folder: Path) -> list[dict[str, Any]]:
    """The rows of controls.jsonl, each with the parts that are read."""
    path = folder / CONTROLS
    rows = []
    for at, line in enumerate(_text(path).splitlines(), start=1):
        row = _parsed(f"{path}, line {at},", line)
        lost = [
            name
            for name in ("step", "n_text", "n_post", *PARTS)
            if not isinstance(row, dict) or name not in row
        ]
        if lost:
            raise RunError(f"{path}, line {at}, has no {lost[0]!r}; {AWAY}")
        rows.append(row)
    return rows


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path} cannot be read: {error}; {AWAY}") from error


def _parsed(where: object, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise RunError(f"{where} is damaged: {error}; {AWAY}") from error

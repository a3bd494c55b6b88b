"""Where runs are recorded, what state a folder is in, and reading a result: damage is an error of one line, and is never trained over.

`<bank>/<experiment>/<arm>-s<seed>/` has `result.json`, written last and whole, and beside it what the watch wrote (not in the
repository). While a run is trained `<arm>-s<seed>.unfinished` says so; only then may its folder be begun anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from reproduce.minirl.arms import Experiment
from reproduce.pilot.marks import unfinished_file
from trimtab.errors import RunError

__all__ = ["MARK", "WATCHED", "check_bank", "finished", "finished_files", "folder_of", "read_result", "run_folders", "starts_of", "state_of", "write_result"]  # fmt: skip

MARK, WATCHED = "result.json", "watch"
AWAY = "move the folder out of the bank, or restore it (git restore, for a recorded run)"
FIELDS = {
    "arm": str,
    "seed": int,
    "steps": int,
    "seconds": int,
    "config": dict,
    "alarms": dict,
    "held_out": dict,
    "series": dict,
}
SERIES = ("reward", "entropy", "grad_norm", "length", "mismatch_kl", "mismatch_p99")


def folder_of(bank: Path, experiment: Experiment, arm: str, seed: int) -> Path:
    """Where a run is recorded."""
    return bank / experiment.name / f"{arm}-s{seed}"


def starts_of(bank: Path) -> Path:
    """Where the cold starts are kept; they are made again when missing."""
    return bank / "starts"


def state_of(folder: Path, experiment: Experiment) -> Literal["missing", "unfinished", "finished"]:
    """Raises RunError for a damaged result, and for a folder that was neither finished nor left unfinished."""
    if (folder / MARK).exists():
        read_result(folder, experiment)
        return "finished"
    if unfinished_file(folder).exists():
        return "unfinished"
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(
            f"{folder} is no finished run (it has no {MARK}) and was not left by this script; {AWAY}"
        )
    return "missing"


def finished(folder: Path, experiment: Experiment, steps: int) -> bool:
    """Has this run reached its end? RunError for a damaged folder and for a run that ended before `steps`."""
    if state_of(folder, experiment) != "finished":
        return False
    if (had := read_result(folder, experiment)["steps"]) < steps:
        raise RunError(
            f"{folder} ended after {had} steps and {steps} are wanted; give another --bank, or move the run away"
        )
    return True


def run_folders(bank: Path, experiment: Experiment) -> list[Path]:
    """The folders of one experiment's runs; trainers' own scratch is none."""
    return [
        path
        for path in sorted((bank / experiment.name).glob("*"))
        if path.is_dir() and path.suffix != ".trainer"
    ]


def finished_files(bank: Path) -> list[Path]:
    """Return the results of every experiment's finished runs."""
    return sorted(bank.glob(f"*/*/{MARK}"))


def check_bank(bank: Path, experiment: Experiment) -> None:
    """Raise for the first thing that is neither a run nor the beginning of one; an absent bank is an empty one."""
    if bank.exists() and not bank.is_dir():
        raise RunError(f"{bank} is a file; give a folder for the bank")
    for folder in run_folders(bank, experiment):
        state_of(folder, experiment)


def read_result(folder: Path, experiment: Experiment) -> dict[str, Any]:
    """A finished run's result, checked: its fields, its series, a known arm, the folder that belongs to it."""
    path = folder / MARK
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error}; {AWAY}") from error
    for name, kind in FIELDS.items():
        if not isinstance(result, dict) or not isinstance(result.get(name), kind):
            raise RunError(f"{path} has no {name!r} of type {kind.__name__}; {AWAY}")
    if result["arm"] not in experiment.arms:
        raise RunError(
            f"{path} names the arm {result['arm']!r}, which reproduce/minirl/arms.py does not know; {AWAY}"
        )
    expected = folder_of(folder.parents[1], experiment, result["arm"], result["seed"])
    if expected != folder:
        raise RunError(
            f"{path} is of {result['arm']}, seed {result['seed']}, which belongs in {expected}; {AWAY}"
        )
    for name in SERIES:
        _check_series(path, name, result["series"].get(name))
    _check_series(path, "held_out", result["held_out"])
    return dict(result)


def _check_series(path: Path, name: str, series: Any) -> None:
    lists = [series.get(part) for part in ("step", "value")] if isinstance(series, dict) else [None]
    right = all(isinstance(one, list) and all(isinstance(x, (int, float)) for x in one) for one in lists)
    if not right or len(lists[0]) != len(lists[-1]) or not lists[0]:
        raise RunError(f"{path} has no series {name!r} of steps and as many numbers; {AWAY}")


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """The last act of a run: the result appears whole or not at all."""
    half = folder / (MARK + ".part")
    half.write_text(json.dumps(result) + "\n")
    half.replace(folder / MARK)
    unfinished_file(folder).unlink(missing_ok=True)

"""One folder a run. A finished one has run.json, written last and whole; one that is trained, or was stopped, has `unfinished`.

Anything else is an error of one line, and is neither trained over nor removed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from reproduce.invariance.arms import ARMS, CHECKPOINT, FACTORS, Cell
from trimtab.errors import RunError

__all__ = ["MARK", "UNFINISHED", "begin", "check_bank", "finished", "finished_files", "load_bank", "read_run", "state_of", "write_run"]  # fmt: skip

MARK, UNFINISHED = "run.json", "unfinished"
AWAY = "move the folder out of the bank, or restore it (git restore, for a recorded run)"
FIELDS = {"arm": str, "factor": float, "seed": int, "episodes": int, "settings": dict, "curve": list, "clipped": list, "cpu_s": float}  # fmt: skip


def state_of(folder: Path) -> Literal["missing", "unfinished", "finished"]:
    """RunError for a damaged run, and for a folder that this script neither finished nor left unfinished."""
    if (folder / MARK).exists():
        read_run(folder)
        return "finished"
    if (folder / UNFINISHED).exists():
        return "unfinished"
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} is no finished run (it has no {MARK}) and was not left by this script; {AWAY}")  # fmt: skip
    return "missing"


def begin(bank: Path, cell: Cell) -> Path:
    """An empty folder for the run, marked unfinished; RunError when a finished run or somebody else's files are there."""
    folder = bank / cell.name
    if state_of(folder) == "finished":
        raise RunError(f"{folder} holds a finished run; give another --bank, or move the run away")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / UNFINISHED).write_text(
        "reproduce/ppo_ewma.py is training this run, or was stopped; it begins anew.\n"
    )
    return folder


def finished(bank: Path, cell: Cell, episodes: int) -> bool:
    """Has the run reached its end? RunError for one that ended at another count of episodes: curves must be of one length."""
    folder = bank / cell.name
    if state_of(folder) != "finished":
        return False
    if (had := read_run(folder)["episodes"]) != episodes:
        raise RunError(f"{folder} is of {had} episodes and {episodes} are wanted; give another --bank, or move the run away")  # fmt: skip
    return True


def finished_files(bank: Path) -> list[Path]:
    """Return the records of the finished runs."""
    return sorted(bank.glob(f"*/{MARK}"))


def check_bank(bank: Path) -> list[Path]:
    """The folders of the bank, each looked at; RunError for the first that is damaged. An absent bank is an empty one."""
    if bank.exists() and not bank.is_dir():
        raise RunError(f"{bank} is a file; give a folder for the bank")
    folders = [path for path in sorted(bank.glob("*")) if path.is_dir()]
    for folder in folders:
        state_of(folder)
    return folders


def load_bank(bank: Path) -> list[dict[str, Any]]:
    """Every finished run; RunError unless all are of one length."""
    runs = [read_run(folder) for folder in check_bank(bank) if state_of(folder) == "finished"]
    if len(lengths := {run["episodes"] for run in runs}) > 1:
        raise RunError(f"{bank} holds runs of {', '.join(map(str, sorted(lengths)))} episodes; keep one length a bank")  # fmt: skip
    return runs


def write_run(
    bank: Path,
    cell: Cell,
    episodes: int,
    settings: dict[str, Any],
    curve: Sequence[dict[str, float]],
    clipped: Sequence[float],
    spent: dict[str, float],
) -> None:
    """The last act of a run: its record appears whole or not at all."""
    folder = bank / cell.name
    run = {
        "arm": cell.arm,
        "factor": cell.factor,
        "seed": cell.seed,
        "episodes": episodes,
        "settings": settings,
        **{name: round(value, 2) for name, value in spent.items()},
        "curve": [{name: float(f"{value:.5g}") for name, value in row.items()} for row in curve],
        "clipped": [float(f"{value:.4g}") for value in clipped],
    }
    half = folder / (MARK + ".part")
    half.write_text(json.dumps(run) + "\n")
    half.replace(folder / MARK)
    (folder / UNFINISHED).unlink(missing_ok=True)


def read_run(folder: Path) -> dict[str, Any]:
    """run.json, checked: every field that is read, a known arm and factor, the folder that belongs to it, a whole curve."""
    path = folder / MARK
    try:
        run = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error}; {AWAY}") from error
    for name, kind in FIELDS.items():
        if not isinstance(run, dict) or not isinstance(run.get(name), kind):
            raise RunError(f"{path} has no {name!r} of type {kind.__name__}; {AWAY}")
    if run["arm"] not in ARMS or run["factor"] not in FACTORS:
        raise RunError(f"{path} is of arm {run['arm']!r} at factor {run['factor']}, which reproduce/invariance/arms.py does not know; {AWAY}")  # fmt: skip
    if (name := Cell(run["arm"], run["factor"], run["seed"]).name) != folder.name:
        raise RunError(f"{path} is of {name}; {AWAY}")
    rows, shares = run["curve"], run["clipped"]
    expected = list(range(0, run["episodes"] + 1, CHECKPOINT))
    whole = all(isinstance(row, dict) and isinstance(row.get("reward"), float) for row in rows)
    if not whole or [row.get("episodes") for row in rows] != expected:
        raise RunError(f"{path} has no reward at each of its {len(expected)} evaluations; {AWAY}")
    if not all(isinstance(row.get("grad_square"), float) for row in rows[1:]):
        raise RunError(f"{path} lacks a gradient's norm; {AWAY}")
    if len(shares) != len(rows) - 1 or not all(isinstance(share, float) for share in shares):
        raise RunError(f"{path} has no share of clipped tokens before each of its {len(rows) - 1} evaluations; {AWAY}")  # fmt: skip
    return dict(run)

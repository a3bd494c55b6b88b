"""The runs under TRL: which there are, how one is trained and watched with the one line, and where it is kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduce.archives import files_below
from trimtab.errors import RunError
from trimtab.training.demo import FAULT_STEP, STEPS

__all__ = ["ARMS", "MARK", "Arm", "finished_files", "finished_runs", "folder_of", "read_mark", "record"]

MARK = "trl_fault.json"
RESTORE = "restore it (git restore), or record it again"


@dataclass(frozen=True)
class Arm:
    """Runs that differ in their seed alone."""

    fault: str
    """A fault of `trimtab.training.lab_faults`."""
    seeds: Sequence[int]
    minirl: bool = False
    """Trained by MiniRLTrainer with its defaults, in place of TRL's GRPOTrainer."""


ARMS = {
    "none": Arm("none", range(6)),
    "stale": Arm("stale", range(6)),
    "quantised": Arm("quantised", range(2)),
    "shifted": Arm("shifted", range(2)),
}
"""Name of an archive -> its runs. `none` is the control of every fault."""


def folder_of(store: Path, arm: str, seed: int) -> Path:
    """Return where a run is, in the unpacked store or while it is recorded."""
    return store / f"{arm}-s{seed}"


def record(
    arm: str, seed: int, folder: Path, steps: int | None = None, fault_step: int | None = None
) -> None:
    """Train one run under TRL with the one-line watch; what is there is replaced. The mark comes last."""
    from reproduce.collapse_bank.slim_run import slim_run
    from trimtab.adapters.trl import watch
    from trimtab.runs import compress_run
    from trimtab.training.lab_faults import FaultPlan, fault_trainer
    from trimtab.training.minirl.trainer import MiniRLTrainer

    steps, fault_step = steps or STEPS, fault_step or FAULT_STEP
    shutil.rmtree(folder, ignore_errors=True)
    plan = FaultPlan(ARMS[arm].fault, fault_step, steps, seed)
    kind = {"kind": MiniRLTrainer} if ARMS[arm].minirl else {}
    trainer = fault_trainer(folder.with_name(f"{folder.name}.trainer"), plan, **kind)
    run = watch(trainer, folder)
    trainer.train()
    run.close()
    compress_run(folder)
    slim_run(folder, whole=True)
    for path in folder.glob("probes.*"):
        path.unlink()
    mark = {"arm": arm, "seed": seed, "steps": steps, "fault_step": fault_step}
    half = folder / f"{MARK}.part"
    half.write_text(json.dumps(mark) + "\n")
    half.replace(folder / MARK)


def finished_runs(store: Path) -> list[Path]:
    """Return the folders of finished runs."""
    return [path.parent for path in sorted(store.glob(f"*/{MARK}"))]


def finished_files(store: Path) -> list[Path]:
    """Return the files of all finished runs."""
    return [file for folder in finished_runs(store) for file in files_below(folder)]


def read_mark(folder: Path) -> dict[str, Any]:
    """Return the mark of a finished run; raises RunError for a damaged one."""
    path = folder / MARK
    try:
        mark = json.loads(path.read_text())
        numbers = [mark[name] for name in ("seed", "steps", "fault_step")]
        good = mark["arm"] in ARMS and all(isinstance(number, int) for number in numbers)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read: {error!r}; {RESTORE}") from error
    if not good:
        raise RunError(f"{path} is damaged; {RESTORE}")
    return dict(mark)

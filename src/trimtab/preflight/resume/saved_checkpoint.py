"""A checkpoint as it lies on the disk, and what the run wrote down of it at its save."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.errors import PreflightError
from trimtab.guard.state_files import MANIFEST, StoredState, read_state
from trimtab.report.run_view import RunView
from trimtab.runs.checkpoints.checkpoint_files import TRAINER_STATE, checkpoint_files, read_json, weight_names

Row = dict[str, Any]
_NUMBER = re.compile(r"(?:checkpoint|step|global_step)[-_]?(\d+)$")


@dataclass(frozen=True)
class SavedCheckpoint:
    """What is known of a checkpoint before anything is compared."""

    folder: Path
    files: Mapping[str, int]  # path inside -> bytes
    row: Mapping[str, Any]  # the run's own record of it; empty without one
    trainer_state: Mapping[str, Any]  # of transformers; empty without one
    state_fault: str  # why that cannot be read
    state: StoredState | None  # where the folder is a state of a guard's ring

    @property
    def is_trainers(self) -> bool:
        """Did a transformers trainer save it?"""
        return TRAINER_STATE in self.files

    @property
    def steps(self) -> dict[str, int]:
        """Who says of which step it is -> the step."""
        numbers: dict[str, Any] = {}
        if self.state is not None:
            numbers["the guard's manifest"] = self.state.step
        if "global_step" in self.trainer_state:
            numbers[TRAINER_STATE] = self.trainer_state["global_step"]
        if "step" in self.row:
            numbers["the run"] = self.row["step"]
        name = _NUMBER.search(self.folder.name)
        if name and self.state is None:
            numbers["its name"] = int(name[1])
        return {who: step for who, step in numbers.items() if type(step) is int}

    @property
    def step(self) -> int | None:
        """Its step; None where nothing says it."""
        return next(iter(self.steps.values()), None)


def saved_checkpoint(view: RunView, path: str | os.PathLike[str]) -> SavedCheckpoint:
    """Return a checkpoint folder with the run's record of it.

    Args:
        view: the run.
        path: a checkpoint of transformers, of a loop that called `run.checkpoint`, or a state of a guard.

    Raises:
        PreflightError: no such folder, or one without weights.
    """
    folder = Path(os.path.abspath(path))
    if not folder.is_dir():
        kind = "is a file; give the folder of a checkpoint" if folder.exists() else "does not exist"
        raise PreflightError(f"checkpoint {path} {kind}")
    try:
        files = checkpoint_files(folder)
    except OSError as error:
        raise PreflightError(f"checkpoint {path} cannot be read: {error.strerror or error}") from error
    state = read_state(folder) if MANIFEST in files else None
    row = record_of(view, folder, state)
    if not weight_names(files) and not weight_names(dict.fromkeys(row.get("files", {}), 0)):
        raise PreflightError(f"checkpoint {path} has no weights (*.safetensors, pytorch_model*.bin)")
    trainer_state, fault = dict[str, Any](), ""
    if TRAINER_STATE in files:
        try:
            trainer_state = read_json(folder / TRAINER_STATE)
        except (OSError, ValueError) as error:
            fault = str(error)
    return SavedCheckpoint(folder, files, row, trainer_state, fault, state)


def record_of(view: RunView, folder: Path, state: StoredState | None = None) -> Row:
    """Return the run's last record of a checkpoint, by its path, else by its name where it was moved.

    A row with hashes counts before one without: the process was killed before the second was written.
    """
    if state is not None:
        return {}
    rows = view.reader.rows("checkpoints")
    same = [row for row in rows if Path(row["path"]) == folder]
    same = same or [row for row in rows if Path(row["path"]).name == folder.name]
    last = [row for row in same if row["step"] == same[-1]["step"]]
    return next((row for row in reversed(last) if row.get("weights")), last[-1] if last else {})

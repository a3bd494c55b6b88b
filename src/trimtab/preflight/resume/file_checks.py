"""Are the files of a checkpoint whole, and those that were saved? Nothing is unpickled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trimtab.guard.state_files import StoredState
from trimtab.preflight.resume.check_rows import ResumeCheckRow, row_of
from trimtab.preflight.resume.saved_checkpoint import SavedCheckpoint
from trimtab.runs.checkpoints.checkpoint_files import file_fault, missing_shards, weight_names
from trimtab.runs.checkpoints.weight_hashes import Files, hashed_names, sha256_of, weights_hash

_MAX_NAMED = 4
_STATES = {
    "optimizer": (("optimizer.pt", "optimizer.bin", "optimizer_0", "global_step"), "momentum begins anew"),
    "scheduler": (("scheduler.pt",), "the learning rate begins anew"),
    "random numbers": (("rng_state",), "sampling and dropout differ"),
}
"""State of a trainer -> names its files begin with, and what a resume without it means."""


def weights_row(checkpoint: SavedCheckpoint) -> tuple[ResumeCheckRow, str]:
    """Are the weights whole, and the ones that were saved?

    Returns:
        The check, and the hash of the weights as they are now; empty where they are damaged.
    """
    folder, state = checkpoint.folder, checkpoint.state
    if state is not None:
        return _state_row(state), ""
    names = weight_names(dict(checkpoint.files))
    recorded: dict[str, Any] = checkpoint.row.get("files", {})
    faults = _faults(folder, names) + _shard_faults(folder)
    faults += [f"{name} is missing" for name in weight_names(dict.fromkeys(recorded, 0)) if name not in names]
    if faults:
        return row_of("weights", _few(faults), ""), ""
    now: Files = {name: [checkpoint.files[name], sha256_of(folder / name)] for name in names}
    digest = weights_hash(now)
    changed = [
        _difference(name, now[name], recorded[name])
        for name in names
        if name in recorded
        and (recorded[name][0] != now[name][0] or recorded[name][1] not in ("", now[name][1]))
    ]
    changed += [
        f"{name} is not of the checkpoint that was saved"
        for name in names
        if recorded and name not in recorded
    ]
    if changed:
        return row_of("weights", _few(changed), ""), digest
    if not recorded:
        reason = "the run recorded no hash at the save (watch, or run.checkpoint); its structure is whole"
        return ResumeCheckRow("weights", "not checked", reason), digest
    if not checkpoint.row.get("weights"):
        reason = "the process ended before it had hashed them; sizes and structure are as saved"
        return ResumeCheckRow("weights", "not checked", reason), digest
    return ResumeCheckRow("weights", "go", f"as saved, sha256 {digest[:12]}"), digest


def _difference(name: str, now: list[int | str], then: list[int | str]) -> str:
    if now[0] != then[0]:
        return f"{name} has {now[0]:,} bytes and had {then[0]:,} at the save"
    return f"{name} has another content than at the save"


def files_row(checkpoint: SavedCheckpoint) -> ResumeCheckRow:
    """Is the rest there and whole: optimizer, scheduler, random numbers, states of samplers?"""
    if checkpoint.state is not None:
        return ResumeCheckRow("files", "go", "as the guard wrote them")
    weights = set(weight_names(dict(checkpoint.files)))
    others = [name for name in checkpoint.files if name not in weights]
    recorded: dict[str, Any] = checkpoint.row.get("files", {})
    faults = [
        f"{name} is missing" for name in recorded if name not in checkpoint.files and name not in weights
    ]
    damaged = _faults(checkpoint.folder, others)
    faults += damaged
    hashed = set(hashed_names({name: checkpoint.files[name] for name in others}))
    for name in others:
        if name not in recorded or any(fault.startswith(f"{name} ") for fault in damaged):
            continue
        size, digest = recorded[name]
        known = [
            checkpoint.files[name],
            sha256_of(checkpoint.folder / name) if digest and name in hashed else digest,
        ]
        if known != [size, digest]:
            faults.append(_difference(name, known, [size, digest]))
    if checkpoint.is_trainers:
        for what, (starts, means) in _STATES.items():
            if not any(name.startswith(starts) for name in checkpoint.files):
                faults.append(f"no file of {what}: {means}")
    return row_of("files", _few(faults), f"{len(others)} beside the weights are whole")


def _faults(folder: Path, names: list[str]) -> list[str]:
    faults = []
    for name in names:
        try:
            fault = file_fault(folder / name)
        except OSError as error:
            fault = f"cannot be read: {error.strerror or error}"
        faults += [f"{name} {fault}"] if fault else []
    return faults


def _shard_faults(folder: Path) -> list[str]:
    try:
        return [f"{name} is missing, which the index names" for name in missing_shards(folder)]
    except (OSError, ValueError) as error:
        return [str(error)]


def _state_row(state: StoredState) -> ResumeCheckRow:
    faults = [] if state.intact() else ["a file is not the one that the guard wrote"]
    if state.verdict != "stable":
        faults.append(f"the guard kept it as {state.verdict!r}, not as stable")
    return row_of("weights", faults, "as the guard saved them")


def _few(faults: list[str]) -> list[str]:
    more = [f"and {len(faults) - _MAX_NAMED} more"] if len(faults) > _MAX_NAMED else []
    return faults[:_MAX_NAMED] + more

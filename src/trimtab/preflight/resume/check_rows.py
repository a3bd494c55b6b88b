"""One check of a resume: go, no-go or not checked, with the reason."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from trimtab.preflight.resume.saved_checkpoint import SavedCheckpoint
from trimtab.report.post_mortem.last_stable import last_stable, onset_of
from trimtab.report.run_view import RunView

State = Literal["go", "no-go", "not checked"]


def same_setting(now: Any, then: Any) -> bool:
    """Return whether two settings are one: YAML reads 1e-6 as text, and rows keep seven digits.

    >>> same_setting("1e-6", 1e-6), same_setting(True, 1), same_setting([1], [1])
    (True, False, True)
    """
    if isinstance(now, bool) != isinstance(then, bool):
        return False
    try:
        return math.isclose(float(now), float(then), rel_tol=1e-6)
    except (TypeError, ValueError, OverflowError):
        return bool(now == then or str(now) == str(then))


class ResumeCheckRow(NamedTuple):
    """The result of one check."""

    name: str
    state: State
    reason: str


def row_of(name: str, faults: list[str], fine: str) -> ResumeCheckRow:
    """Return no-go where there are faults, else go."""
    return ResumeCheckRow(name, "no-go", "; ".join(faults)) if faults else ResumeCheckRow(name, "go", fine)


def run_row(view: RunView) -> ResumeCheckRow:
    """Is the run's folder free to be continued?"""
    alive = [
        f"process {process['pid']} on {process['host']} still writes rank {rank}"
        for (rank, session), process in sorted(view.reader.processes.items())
        if process and process["alive"] and session == view.reader.session_of(rank)
        and view.reader.end(rank) is None
    ]  # fmt: skip
    return row_of("run", alive, "no process writes it")


def step_row(view: RunView, checkpoint: SavedCheckpoint) -> ResumeCheckRow:
    """Is its step one of the run's, the same wherever it is stated, and from before the trouble?"""
    steps = checkpoint.steps
    if checkpoint.state_fault:
        return ResumeCheckRow("step", "no-go", checkpoint.state_fault)
    if not steps:
        return ResumeCheckRow("step", "not checked", "nothing says of which step the checkpoint is")
    step, faults = next(iter(steps.values())), []
    if len(set(steps.values())) > 1:
        faults.append("it is of " + ", ".join(f"step {n} by {who}" for who, n in steps.items()))
    if not view.steps:
        return row_of("step", [*faults, "the run has no steps"], "")
    last, onset = int(view.steps[-1]["step"]), onset_of(view.alarms, view.steps)
    if step > last:
        faults.append(f"it is of step {step}, and the run's record ends at step {last}")
    elif onset is not None and step >= onset:
        faults.append(f"step {step} lies in the trouble that began at step {onset}{_before(view, onset)}")
    span = f"{step + 1} to {last}" if last > step + 1 else f"{last}"
    again = f"; made again: step {span}" if step < last else ""
    return row_of("step", faults, f"step {step} of {last}{again}")


def _before(view: RunView, onset: int) -> str:
    """The last stable step, and the newest checkpoint that is not later."""
    stable = last_stable(view).step
    if stable is None:
        return ""
    rows = [row for row in view.reader.rows("checkpoints") if row["step"] <= min(stable, onset - 1)]
    newest = max(rows, key=lambda row: int(row["step"]), default=None)
    return f"; the last stable step is {stable}" + (f", try {newest['path']}" if newest else "")


def data_row(checkpoint: SavedCheckpoint, settings: Mapping[str, Any]) -> ResumeCheckRow:
    """Does the data go on where it stopped? By the trainer's state, the run's record and new settings."""
    position, state = checkpoint.row.get("position", {}), checkpoint.trainer_state
    faults = []
    for name in ("global_step", "epoch", "train_batch_size"):
        if name in position and name in state and not same_setting(state[name], position[name]):
            faults.append(f"{name} is {state[name]} in its trainer_state.json and was {position[name]}")
    if settings.get("ignore_data_skip") is True:
        faults.append("ignore_data_skip begins the data anew")
    for name, value in position.items():
        if name in settings and not same_setting(settings[name], value) and name != "ignore_data_skip":
            faults.append(f"{name} is {settings[name]} now and was {value}: the order of the data is another")
    if not faults and not position and not state:
        return ResumeCheckRow("data", "not checked", "no position was recorded at the save")
    known = {**state, **position}
    shown = [f"{name} {known[name]}" for name in ("epoch", "global_step", "batch", "seed") if name in known]
    return row_of("data", faults, ", ".join(shown) or "as recorded")


def sampler_row(checkpoint: SavedCheckpoint, step: int | None, digest: str, weights: str) -> ResumeCheckRow:
    """Does the inference engine sample with the checkpoint's weights?

    Args:
        checkpoint: what is resumed from.
        step: whose weights the engine has now; None where that is not stated.
        digest: hash of the weights that the engine has loaded; empty where that is not stated.
        weights: hash of the checkpoint's weights now; empty where it is not known.
    """
    faults: list[str] = []
    fine: list[str] = []
    if digest:
        same = digest == weights or digest in checkpoint_hashes(checkpoint)
        (fine if same else faults).append(
            "the engine has these weights"
            if same
            else f"the engine's weights have the hash {digest[:12]}, "
            f"the checkpoint's {weights[:12] or 'is not known'}"
        )
    if step is not None:
        same = step == checkpoint.step
        text = f"the engine has the weights of step {step}"
        (fine if same else faults).append(text if same else f"{text}, this is of step {checkpoint.step}")
    if faults or fine:
        return row_of("sampler", faults, "; ".join(fine))
    recorded = checkpoint.row.get("sampler", {})
    if recorded.get("synchronises"):
        who = (
            "the trainer samples itself"
            if recorded.get("kind") == "trainer"
            else "it gets the trainer's weights"
        )
        return ResumeCheckRow("sampler", "go", f"{who} before it generates")
    version = recorded.get("step")
    if type(version) is not int:
        return ResumeCheckRow("sampler", "not checked", "its version was not recorded; give --sampler-step")
    late = [] if version == checkpoint.step else [
        f"at the save the engine had the weights of step {version}, this is of step {checkpoint.step}: "
        "load it into the engine, and give --sampler-step"
    ]  # fmt: skip
    return row_of("sampler", late, f"the engine had the weights of step {version}")


def checkpoint_hashes(checkpoint: SavedCheckpoint) -> set[str]:
    """Return the hashes of single files that were recorded."""
    return {str(one[1]) for one in checkpoint.row.get("files", {}).values() if len(one) == 2 and one[1]}

"""The last step at which a run was well, and where its weights of then are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trimtab.guard.state_files import stable_before
from trimtab.report.headline import last_good_step
from trimtab.types import Alarm

RING = "stable_states"
"""Folder of a guard's states inside a run folder."""


class LastStable(NamedTuple):
    """A step, and why this one."""

    step: int | None  # None: no step of the record was stable
    why: str
    state: str  # folder of the guard's state of that step; empty without one


def onset_of(alarms: Sequence[Alarm], steps: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the first step of the trouble a run ended in; None where it ended in none.

    It is the earliest onset of the alarms that were open at the end, or the first of the last steps that all
    hold NaN or infinity.
    """
    onsets = [alarm.since for alarm in alarms if alarm.severity != "info" and alarm.cleared is None]
    streak = None
    for row in reversed(steps):
        if not row["nonfinite"]:
            break
        streak = int(row["step"])
    return min([*onsets, *([] if streak is None else [streak])], default=None)


def last_stable(view: Any) -> LastStable:
    """Return the last stable step of a run.

    Args:
        view: a `RunView`.

    Returns:
        With a guard's ring of states: the newest whole state from before the onset that the guard would
        offer. Else the last step before the onset at which no alarm above info stood.
    """
    numbers = [int(row["step"]) for row in view.steps]
    if not numbers:
        return LastStable(None, "no step was written", "")
    onset = onset_of(view.alarms, view.steps)
    before = numbers[-1] + 1 if onset is None else onset
    state = stable_before(Path(view.folder) / RING, before)
    if state is not None:
        why = f"the guard kept this state as stable ({RING}/{state.folder.name})"
        return LastStable(state.step, why, str(state.folder))
    serious = [alarm for alarm in view.alarms if alarm.severity != "info"]
    step = last_good_step(before, serious, numbers)
    if step is None:
        return LastStable(None, "an alarm stood at every step", "")
    if onset is None:
        return LastStable(step, "no alarm stood then, and none was open at the end", "")
    return LastStable(step, f"the last one before the trouble began at step {onset}", "")

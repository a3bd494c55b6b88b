"""What a guard would have done on a recorded run: its levers and stable states are simulated.

The recorded run cannot answer. So the first action is what a live guard would have done; the later ones are
those it would have done if the first had changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from trimtab.catalog import bound
from trimtab.guard.cause_table import open_alarms
from trimtab.guard.guard import Guard
from trimtab.guard.presets import GuardOptions
from trimtab.guard.simulated import SimulatedControls, SimulatedStates
from trimtab.runs.action_rows import action_row
from trimtab.traces.core.tool_call import ToolCall
from trimtab.types import Alarm, Incident


@dataclass(frozen=True)
class RecordedStep:
    """What a guard is shown of one step."""

    step: int
    grad_norm: float | None = None
    levels: Mapping[str, float] = field(default_factory=dict)
    judged: bool = True  # the detectors had a baseline
    calls: Sequence[ToolCall] = ()  # of tools, for the quarantine


def replay_guard(
    options: GuardOptions,
    steps: Iterable[RecordedStep],
    alarms: Sequence[Alarm],
    incidents_of: Callable[[list[Alarm], int], list[Incident]],
) -> list[dict[str, Any]]:
    """Return the actions of a guard on a recorded run, as rows of the run store.

    Args:
        options: of the guard; `observe` is ignored.
        steps: of the run, in order.
        alarms: of the run, each with the step at which it cleared.
        incidents_of: takes the alarms known at a step and the step, and returns what was known of incidents.
    """
    acting = msgspec.structs.replace(options, observe=False)
    guard = Guard(acting, SimulatedControls(), SimulatedStates(options.states.count))
    rows: list[dict[str, Any]] = []
    known: list[Alarm] = []
    incidents: list[Incident] = []
    for one in steps:
        for call in one.calls:
            guard.note_call(call)
        guard.before_update(one.step, one.grad_norm, one.levels.get("ess_frac"))
        now = known_at(alarms, one.step)
        if now and (now != known or one.step <= now[-1].step + bound("incident_after")):
            incidents = incidents_of(now, one.step)
        known = now
        settled = one.judged and not any(map(open_alarms, incidents))
        for action in guard.after_step(one.step, incidents, settled, one.levels):
            rows.append({"step": one.step, "dry_run": True, "failure": "", **action_row(action)})
        if rows and rows[-1]["action"] == "stop":
            break
    return rows


def known_at(alarms: Iterable[Alarm], step: int) -> list[Alarm]:
    """Return the alarms that had fired by a step; those that cleared later are open.

    >>> alarm = Alarm("kl_high", 30, 28, "warning", "all", (), 1.0, "", "", "", cleared=50)
    >>> [known_at([alarm], step) == [] for step in (29, 30)], known_at([alarm], 40)[0].cleared
    ([True, False], None)
    """
    return [
        alarm if alarm.cleared is None or alarm.cleared <= step else replace(alarm, cleared=None)
        for alarm in alarms
        if alarm.step <= step
    ]

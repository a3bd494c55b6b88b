"""Guard: what is done about an incident, with a record of every action. It knows no trainer and no torch."""

from trimtab.guard.controls import LEVERS, Controls, StableStates
from trimtab.guard.guard import Guard, StepPlan
from trimtab.guard.presets import PRESETS, GuardOptions, guard_options

__all__ = [
    "LEVERS",
    "PRESETS",
    "Controls",
    "Guard",
    "GuardOptions",
    "StableStates",
    "StepPlan",
    "guard_options",
]

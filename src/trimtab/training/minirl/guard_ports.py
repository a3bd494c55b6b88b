"""Levers of a MiniRLTrainer: the numbers its losses read at each step, also for one slice alone.

A slice that is turned gets an entry in `slices` of the config, and loses it when it is set back.
"""

from __future__ import annotations

import math
from typing import Any

from trimtab.adapters.trl.control.lever_ports import OFF, LeverPort, clips
from trimtab.training.minirl.config_validation import is_read
from trimtab.training.minirl.objective_defaults import SLICE_NAMES
from trimtab.types import Lever


def minirl_ports(trainer: Any) -> dict[Lever, LeverPort]:
    """Return the ports of the levers whose value is a field of MiniRLConfig."""
    args, ports = trainer.args, {}
    names: dict[Lever, str] = {}
    if trainer.beta != 0.0:
        names["kl_coef"] = "beta"
    if is_read(args, "weight_cap"):
        names["token_is_cap"] = "weight_cap"
    if is_read(args, "epsilon_high") and (clips(trainer) or trainer.average is not None):
        names["clip_range"] = "epsilon_high"
    for lever, name in names.items():
        number = SlicedNumber(trainer, name)
        ports[lever] = LeverPort(("all", *SLICE_NAMES), number.read, number.write)
    return ports


class SlicedNumber:
    """One number of a MiniRLConfig, for all tokens or for one slice."""

    def __init__(self, trainer: Any, name: str) -> None:
        self.trainer, self.args, self.name = trainer, trainer.args, name
        self.shift = 1.0 if name == "epsilon_high" and trainer.args.objective == "cispo" else 0.0
        self.configured = {label for label, own in (self.args.slices or {}).items() if name in own}

    def read(self, slice_name: str) -> float:
        """Return the value in force; infinity: unbounded."""
        table = (self.args.slices or {}).get(slice_name, {})
        value = table.get(self.name, getattr(self.args, self.name))
        if value is None:
            return math.inf
        return 0.0 if value == OFF else float(value) - self.shift

    def write(self, slice_name: str, value: float) -> None:
        """Put a value in force."""
        stored = max(value, OFF) if self.name == "beta" else value + self.shift
        if slice_name == "all":
            setattr(self.args, self.name, stored)
            if self.name == "beta":
                self.trainer.beta = stored  # TRL scores the reference while it is above 0
            return
        slices = {label: dict(own) for label, own in (self.args.slices or {}).items()}
        own = slices.setdefault(slice_name, {})
        own[self.name] = stored
        if slice_name not in self.configured and value == self.read("all"):
            del own[self.name]
        self.args.slices = {label: table for label, table in slices.items() if table} or None

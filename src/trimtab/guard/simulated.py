"""Levers and stable states that exist in memory alone: for a dry run, and for a replay of a recorded run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trimtab.errors import GuardError
from trimtab.guard.controls import LEVERS, Controls
from trimtab.types import Lever


@dataclass
class SimulatedControls:
    """Controls of no trainer: every lever, each at its neutral value until it is set."""

    slices: tuple[str, ...] = ("all",)
    values: dict[tuple[Lever, str], float] = field(default_factory=dict)
    stopped: bool = False

    def levers(self) -> Mapping[Lever, tuple[str, ...]]:
        """Return all levers."""
        return dict.fromkeys(LEVERS, self.slices)

    def get(self, lever: Lever, slice_name: str = "all") -> float:
        """Return what was set last."""
        return self.values.get((lever, slice_name), LEVERS[lever].neutral)

    def set(self, lever: Lever, slice_name: str, value: float) -> None:
        """Remember a value."""
        self.values[lever, slice_name] = value

    def save(self, folder: Path) -> None:
        """Refuse: there is nothing to save."""
        raise GuardError(f"simulated controls have no state to save in {folder}")

    def restore(self, folder: Path) -> None:
        """Refuse: there is nothing to restore."""
        raise GuardError(f"simulated controls have no state to restore from {folder}")

    def stop(self) -> None:
        """Remember that the run was to end."""
        self.stopped = True


@dataclass
class SimulatedStates:
    """A ring of stable states without their contents.

    >>> states = SimulatedStates(count=2)
    >>> for step, verdict in ((20, "stable"), (40, "stable"), (60, "incident"), (80, "incident")):
    ...     states.keep(step, verdict, SimulatedControls())
    >>> states.last_stable(100), states.verdicts
    (40, {40: 'stable', 80: 'incident'})
    """

    count: int
    verdicts: dict[int, str] = field(default_factory=dict)  # step -> verdict, oldest first
    doubted: tuple[float, float] = (math.inf, math.inf)  # first and last step of the last trouble

    def keep(self, step: int, verdict: str, controls: Controls) -> None:  # noqa: ARG002
        """Remember a step; of more than `count` the oldest goes, but never the last stable one."""
        self.verdicts[step] = verdict
        while len(self.verdicts) > self.count:
            last = self.last_stable(step + 1)
            del self.verdicts[next(one for one in self.verdicts if one != last)]

    def last_stable(self, before_step: int) -> int | None:
        """Return the newest stable step before `before_step`."""
        steps = [
            step
            for step, verdict in self.verdicts.items()
            if verdict == "stable" and step < before_step and not self.doubted[0] <= step <= self.doubted[1]
        ]
        return max(steps, default=None)

    def suspect(self, since: int, until: int | None = None) -> None:
        """Remember which steps are doubted."""
        self.doubted = (since, math.inf if until is None else until)

    def restore(self, step: int, controls: Controls) -> None:  # noqa: ARG002
        """Forget the later steps."""
        self.doubted = (math.inf, math.inf)
        self.verdicts = {one: verdict for one, verdict in self.verdicts.items() if one <= step}

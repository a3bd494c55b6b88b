"""The levers and the stable states of the lean loop: what a guard needs of a trainer, here in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reproduce.guard_bank.lever_loop import NEUTRAL, LeverLoop
from trimtab.guard import Controls
from trimtab.types import Lever

__all__ = ["LeanControls", "MemoryRing"]


class LeanControls:
    """`trimtab.guard.Controls` of a lean loop.

    `loop` is None while the guard is shown steps that were trained before. The first lever that is turned calls `take_over`, which puts a loop there.
    """

    def __init__(self, take_over: Callable[[], None]) -> None:
        self.loop: LeverLoop | None = None
        self.stopped = False
        self._take_over = take_over

    def live_loop(self) -> LeverLoop:
        """Return the loop that is trained, begun where there was none."""
        if self.loop is None:
            self._take_over()
        assert self.loop is not None
        return self.loop

    def levers(self) -> Mapping[Lever, tuple[str, ...]]:
        """Return the levers, each for all tokens."""
        return dict.fromkeys(NEUTRAL, ("all",))

    def get(self, lever: Lever, slice_name: str = "all") -> float:
        """Return the value in force."""
        return NEUTRAL[lever] if self.loop is None else self.loop.setup.levers[lever]

    def set(self, lever: Lever, slice_name: str, value: float) -> None:
        """Put a value in force from the next step on."""
        if self.get(lever, slice_name) != value:
            self.live_loop().setup.levers[lever] = value

    def save(self, folder: Path) -> None:
        """Refuse: `MemoryRing` keeps the states."""
        raise NotImplementedError("states of the lean loop are kept in memory")

    def restore(self, folder: Path) -> None:
        """Refuse: `MemoryRing` keeps the states."""
        raise NotImplementedError("states of the lean loop are kept in memory")

    def stop(self) -> None:
        """End training after this step."""
        self.stopped = True


@dataclass
class MemoryRing:
    """`trimtab.guard.StableStates` in memory: the last `size` states, and the last stable one in any case."""

    controls: LeanControls
    size: int
    shown: Mapping[int, LeverLoop]
    """Steps done -> the loop then, of steps that were trained before."""
    states: list[tuple[int, str, LeverLoop]] = field(default_factory=list)
    doubted: tuple[float, float] = (math.inf, math.inf)  # first and last step of the last trouble

    def keep(self, step: int, verdict: str, controls: Controls) -> None:
        """Copy the state after `step`."""
        loop = self.controls.loop
        self.states.append((step, verdict, self.shown[step] if loop is None else loop.branch(loop.regime)))
        while len(self.states) > self.size:
            stable = [state for state in self.states if self._stable(state)]
            spare = [state for state in self.states if not stable or state is not stable[-1]]
            self.states.remove(spare[0])

    def last_stable(self, before_step: int) -> int | None:
        """Return the newest stable step kept before `before_step`; None where there is none."""
        steps = [state[0] for state in self.states if self._stable(state) and state[0] < before_step]
        return max(steps, default=None)

    def suspect(self, since: int, until: int | None = None) -> None:
        """Do not offer states of these steps."""
        self.doubted = (since, math.inf if until is None else until)

    def _stable(self, state: tuple[int, str, LeverLoop]) -> bool:
        return state[1] == "stable" and not self.doubted[0] <= state[0] <= self.doubted[1]

    def restore(self, step: int, controls: Controls) -> None:
        """Return to a kept state, and forget the later ones."""
        saved = next(loop for kept, _, loop in self.states if kept == step)
        self.states = [state for state in self.states if state[0] <= step]
        self.doubted = (math.inf, math.inf)
        self.controls.live_loop().restore(saved)

"""Protocol and helpers of detectors: small streaming objects that know nothing of RL.

`update` takes one value and returns a `Decision`. A value that is not finite is counted and skipped. `state`
and `restore` carry the detector over a resume. A `Scanner` gives the same answers for a whole series at once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from trimtab.typing import Bool, Float64, Int64


@dataclass(frozen=True)
class Decision:
    """Answer of a detector to one value.

    `fired` is True on the step an alarm starts, `cleared` on the step it ends, `active` in between. `since`
    is the first step of the evidence. `bound` is what the value had to stay within. `fitted` is the level
    that broke it, where that is not the last value. `ready` is False while the baseline is collected: silence
    then means nothing.
    """

    ready: bool
    active: bool = False
    fired: bool = False
    cleared: bool = False
    since: int = -1
    bound: float = math.nan
    fitted: float = math.nan


class Detector(Protocol):
    """A stream of (step, value, standard error of the value or nan) -> decisions.

    `num_skipped` counts the values that were not finite.
    """

    num_skipped: int

    def update(self, step: int, value: float, se: float = math.nan) -> Decision: ...
    def state(self) -> dict[str, Any]: ...
    def restore(self, state: dict[str, Any]) -> None: ...


Transitions = list[tuple[int, Decision]]
"""(index of the value, decision) where an alarm starts or ends."""


@dataclass
class Hysteresis:
    """Turns "over the bound" and "well back under it" into transitions.

    It takes `confirm` values in a row to fire, and as many to clear.
    """

    confirm: int
    over: int = 0
    under: int = 0
    active: bool = False
    since: int = -1

    def update(self, step: int, above: bool, back: bool, bound: float) -> Decision:
        """`above`: the value breaks the bound. `back`: it has returned inside the clearing bound."""
        fired = cleared = False
        if not self.active:
            if above:
                self.since = step if self.over == 0 else self.since
                self.over += 1
            else:
                self.over = 0
            if self.over >= self.confirm:
                self.active, fired, self.under = True, True, 0
        else:
            self.under = self.under + 1 if back else 0
            if self.under >= self.confirm:
                self.active, cleared, self.over = False, True, 0
        return Decision(
            True, self.active, fired, cleared, self.since if self.active or cleared else -1, bound
        )

    def scan(self, steps: Int64, above: Bool, back: Bool, bounds: Float64, num: int = -1) -> Transitions:
        """Run `update` over whole arrays; return the first `num` transitions, or all.

        No value may be pending.
        """
        runs_above, runs_back = _runs(above), _runs(back)
        ready = np.flatnonzero(runs_above >= self.confirm), np.flatnonzero(runs_back >= self.confirm)
        transitions: Transitions = []
        start = 0
        while len(transitions) != num:
            hits = ready[int(self.active)]
            index = int(np.searchsorted(hits, start + self.confirm - 1))
            if index == hits.size:
                break
            i = int(hits[index])
            if self.active:
                self.active, self.under, self.over = False, self.confirm, 0
                decision = Decision(True, False, False, True, self.since, float(bounds[i]))
            else:
                self.active, self.under, self.over = True, 0, self.confirm
                self.since = int(steps[i - self.confirm + 1])
                decision = Decision(True, True, True, False, self.since, float(bounds[i]))
            transitions.append((i, decision))
            start = i + 1
        if len(transitions) != num:
            self._pend(steps, runs_above, runs_back, start)
        return transitions

    def _pend(self, steps: Int64, runs_above: Int64, runs_back: Int64, start: int) -> None:
        """Set what the values after the last transition leave pending."""
        end = steps.size
        if end <= start:
            return
        if self.active:
            self.under = min(int(runs_back[-1]), end - start)
            return
        self.over = min(int(runs_above[-1]), end - start)
        begins = np.flatnonzero(runs_above[start:] == 1) + start
        if runs_above[start] > 1:  # a run that began before the last edge counts from there
            begins = np.append(start, begins)
        if begins.size:
            self.since = int(steps[begins[-1]])


def _runs(flags: Bool) -> Int64:
    """Return at each position how many in a row were true up to and including it."""
    positions = np.arange(1, flags.size + 1)
    return np.asarray(positions - np.maximum.accumulate(np.where(flags, 0, positions)))


class Carried:
    """`state` and `restore` by `carried`, the names of the fields that change as values come."""

    carried: ClassVar[tuple[str, ...]] = ()

    def state(self) -> dict[str, Any]:
        """Everything `restore` needs, as JSON types."""
        return {name: _plain(getattr(self, name)) for name in self.carried}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        for name in self.carried:
            value, now = state[name], getattr(self, name)
            if isinstance(now, Hysteresis):
                setattr(self, name, Hysteresis(**value))
            else:
                setattr(self, name, type(now)(value) if isinstance(now, (list, tuple)) else value)


class Scanner(Carried, ABC):
    """A detector that can answer for a whole series at once, having seen nothing yet."""

    takes_errors: ClassVar[bool] = False  # does `update` look at standard errors?
    num_skipped: int

    @abstractmethod
    def scan(self, steps: Int64, values: Float64) -> Transitions:
        """Return the transitions `update` would give, value by value without standard errors."""

    @property
    @abstractmethod
    def now(self) -> Decision:
        """Is it ready, is it active: what the last value left behind."""

    def finite(self, values: Float64) -> Int64:
        """Return the indices of the finite values; the others are counted as skipped."""
        indices = np.flatnonzero(np.isfinite(values))
        self.num_skipped += values.size - indices.size
        return indices


def walk(
    detector: Detector, steps: Int64, values: Float64, errors: list[float] | None = None
) -> tuple[Transitions, Decision]:
    """Return the transitions of a detector that answers value by value only, and its last decision."""
    transitions: Transitions = []
    decision = Decision(False)
    each = zip(steps.tolist(), values.tolist(), errors or [math.nan] * values.size, strict=True)
    for i, (step, value, error) in enumerate(each):
        decision = detector.update(step, value, error)
        if decision.fired or decision.cleared:
            transitions.append((i, decision))
    return transitions, decision


def _plain(value: Any) -> Any:
    if isinstance(value, Hysteresis):
        return asdict(value)
    return list(value) if isinstance(value, (list, tuple)) else value

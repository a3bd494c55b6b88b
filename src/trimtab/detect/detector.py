"""What a detector is: a small streaming object that knows nothing of RL.

`update` takes one value and answers with a `Decision`; a value that is not finite is counted and skipped, and the
detector keeps working after it. `state` and `restore` carry it over a resume.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Decision", "Detector", "Hysteresis"]


@dataclass(frozen=True)
class Decision:
    """After one value: `fired` on the step an alarm starts, `cleared` on the step it ends, `active` in between.

    `since` is the first step of the evidence; `bound` what the value had to stay within; `fitted` is the value that broke
    it where that is not the one just given but a line's end; `ready` False while the
    detector still collects its baseline, when silence means nothing.
    """

    ready: bool
    active: bool = False
    fired: bool = False
    cleared: bool = False
    since: int = -1
    bound: float = math.nan
    fitted: float = math.nan


class Detector(Protocol):
    """A stream of (step, value, standard error of the value or nan) -> decisions."""

    def update(self, step: int, value: float, se: float = math.nan) -> Decision: ...
    def state(self) -> dict[str, Any]: ...
    def restore(self, state: dict[str, Any]) -> None: ...


@dataclass
class Hysteresis:
    """Turns "over the bound" and "well back under it" into edges: `confirm` in a row to fire, as many to clear."""

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

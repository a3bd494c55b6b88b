"""Take a tool whose failures explode out of training, or out of the rollouts, until it works again."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from trimtab.catalog import bound
from trimtab.guard.policies.base import Policy, Steps
from trimtab.tools.exclusion import Exclusion
from trimtab.types import Lever

_Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]


class ToolQuarantineOptions(Policy, frozen=True):
    """Policy `quarantine_tool`: a tool's failures by its environment decide whether it is trained on.

    `mask`: episodes give no gradient and no vote in their group's baseline; those that a failure of the tool
    broke, or all that called it (`episodes`). `withhold`: the tool is no longer offered to rollouts. It acts
    on tool calls, not on incidents, so it is in no row of the table of causes. Off unless a file enables it.

    When not: where tasks need the tool, `withhold` and `episodes: called` leave them out of training for as
    long, and the policy forgets them.

    Example:
        >>> options = ToolQuarantineOptions(enabled=True)
        >>> options.mode, options.lever, options.steps, options.quarantine_steps(relapses=2)
        ('mask', 'tool_broken_gradient', 10, 40)
    """

    name: ClassVar[str] = "quarantine_tool"
    enabled: bool = False
    mode: Literal["mask", "withhold"] = "mask"
    episodes: Literal["broken", "called"] = "broken"  # which of them `mask` leaves out
    blames: tuple[Literal["infrastructure", "tool"], ...] = ("infrastructure",)  # whose failures count
    kinds: tuple[str, ...] = ()  # failures that count too, whoever is blamed, as "timeout"
    steps: Steps = int(bound("guard_tool_quarantine"))  # steps of the first quarantine
    max_steps: Steps = int(bound("guard_tool_quarantine_max"))  # steps of the longest
    probation: _Fraction = bound("guard_tool_probation")  # fraction of groups

    @property
    def lever(self) -> Lever:
        """Return the lever of the mode."""
        if self.mode == "withhold":
            return "tool_offer"
        return "tool_broken_gradient" if self.episodes == "broken" else "tool_gradient"

    @property
    def exclusion(self) -> Exclusion:
        """Return which failed calls count."""
        return Exclusion(frozenset(self.blames), frozenset(self.kinds))

    def quarantine_steps(self, relapses: int) -> int:
        """Return the length of a quarantine in steps: doubled at each relapse."""
        return int(min(self.max_steps, self.steps * 2 ** min(relapses, 30)))

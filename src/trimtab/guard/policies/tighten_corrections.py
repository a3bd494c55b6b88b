"""Restrain the weight of single tokens and sequences: IS truncation, sequence masking, clip."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from trimtab.catalog import bound
from trimtab.guard.policies.base import Amount, Cap, Policy, Request, Situation
from trimtab.types import Lever

_TIGHTEST: Mapping[Lever, float] = {"sequence_is_cap": 1.0, "token_is_cap": 1.0, "clip_range": 0.0}


class TightenCorrections(Policy, frozen=True):
    """Policy `tighten_corrections`: the first lever offered of `order`, in the incident's slice.

    Each further time the cap moves half of its way to the tightest value there is; after `times` it asks for
    the next lever as well.

    When not: masked and truncated sequences are often the long ones with many tool calls, so the policy may
    unlearn them. A cap that is in force for long biases what is learnt.

    Example:
        >>> from trimtab.types import Incident
        >>> trouble = Incident(73, "post_tool", "warning", (), ())
        >>> levers = {"token_is_cap": ("all", "post_tool")}
        >>> TightenCorrections().propose(Situation(75, trouble, 0, levers, lambda lever, name: math.inf))
        [Request(lever='token_is_cap', slice='post_tool', value=2.0)]
    """

    name: ClassVar[str] = "tighten_corrections"
    needs: ClassVar[tuple[Lever, ...]] = ("sequence_is_cap", "token_is_cap", "clip_range")
    order: tuple[Lever, ...] = ("sequence_is_cap", "token_is_cap", "clip_range")
    sequence_is_cap: Cap = bound("guard_is_cap")  # ratio
    token_is_cap: Cap = bound("guard_is_cap")  # ratio
    clip_range: Amount = bound("guard_clip")  # 1
    times: int = 2

    def __post_init__(self) -> None:
        """Refuse levers that do not correct weights."""
        if unknown := [lever for lever in self.order if lever not in self.needs]:
            raise ValueError(f"order: {unknown[0]!r} is not one of {', '.join(self.needs)}")

    def propose(self, situation: Situation) -> list[Request]:
        """Ask for the next cap that is tighter than what is in force."""
        offered = [lever for lever in self.order if lever in situation.levers]
        first = situation.times // max(1, self.times)
        for lever in offered[first : first + 1]:
            where = situation.where(lever) or "all"
            now, value = situation.value(lever, where), float(getattr(self, lever))
            tightest = _TIGHTEST[lever]
            if math.isfinite(now) and now <= value:
                value = tightest + (now - tightest) / 2
            return [Request(lever, where, value)]
        return []

"""Hold the policy near its reference: a KL penalty whose coefficient follows the measured KL."""

from __future__ import annotations

import math
from typing import ClassVar

from trimtab.catalog import bound
from trimtab.guard.policies.base import Amount, Policy, Request, Situation
from trimtab.types import Lever


class KlCap(Policy, frozen=True):
    """Policy `kl_cap`: set lever `kl_coef`, for the slice that alarms where it can be, and adapt it.

    While the KL of that slice is above `target` times `band`, the coefficient grows by `rate` a step; below
    `target` over `band` it shrinks. Without a measured KL it stays at `coef`, doubled at each further time.

    When not: a run whose reward needs the policy to move far from its reference only learns slower with it.

    Example:
        >>> from trimtab.types import Incident
        >>> trouble = Incident(73, "post_tool", "warning", (), ())
        >>> now = Situation(75, trouble, 0, {"kl_coef": ("all",)}, lambda lever, name: 0.0, {"kl": 0.6})
        >>> KlCap(target=0.1, rate=2.0).adjust(now, Request("kl_coef", "all", 0.05))
        0.1

    Reference:
        Ziegler et al. 2019, arXiv 1909.08593, section 2.2 (adaptive coefficient).
    """

    name: ClassVar[str] = "kl_cap"
    needs: ClassVar[tuple[Lever, ...]] = ("kl_coef",)
    coef: Amount = bound("guard_kl_coef")  # per nat
    max_coef: Amount = bound("guard_kl_max")  # per nat
    target: Amount = bound("guard_kl_target")  # nats a token
    band: Amount = 1.5  # ratio
    rate: Amount = 1.1  # factor a step

    def propose(self, situation: Situation) -> list[Request]:
        """Ask for a penalty that is larger than the one in force."""
        where = situation.where("kl_coef") or "all"
        now = situation.value("kl_coef", where)
        value = min(self.max_coef, max(self.coef, 2 * now))
        return [Request("kl_coef", where, value)] if value > now else []

    def adjust(self, situation: Situation, own: Request) -> float:
        """Return the coefficient that follows the KL of this step."""
        key = "kl" if own.slice == "all" else f"kl/{own.slice}"
        level = situation.levels.get(key, math.nan)
        if level > self.target * self.band:
            return min(self.max_coef, own.value * self.rate)
        if level < self.target / self.band:
            return max(self.coef / 10, own.value / self.rate)
        return own.value

    def relax(self, own: Request, neutral: float) -> float:
        """Return half of the coefficient; `neutral` once it is a tenth of where it began."""
        half = own.value / 2
        return neutral if half <= self.coef / 10 else half

"""Scale every update by the effective number of sequences it rests on (VCPO)."""

from __future__ import annotations

import math
from typing import ClassVar

from trimtab.catalog import bound
from trimtab.guard.policies.base import Factor, Policy, Request, Situation
from trimtab.types import Lever


class EssScaledStep(Policy, frozen=True):
    """Policy `ess_scaled_step`: set lever `lr_scale` to sqrt(ESS / `base`) at every step, incident or not.

    ESS is the fraction of sequences that carry the raw weights pi_theta/mu. `Guard.before_update` takes it
    for the batch that is about to be trained on. Changes under `min_change` are not made, so that the record
    stays readable. It is off by default.

    When not: with truncated weights the ESS looks healthy exactly when the raw one has fallen. Give the raw
    one. A small batch has a noisy ESS, which makes the rate noisy.

    Example:
        >>> EssScaledStep(base=1.0).scale(0.25)
        0.5

    Reference:
        VCPO, arXiv 2602.17616, ESS-guided step sizes.
    """

    name: ClassVar[str] = "ess_scaled_step"
    needs: ClassVar[tuple[Lever, ...]] = ("lr_scale",)
    enabled: bool = False
    base: Factor = 1.0  # ESS fraction of a healthy on-policy step
    min_scale: Factor = bound("guard_ess_floor")  # of the scheduled rate
    min_change: Factor = bound("guard_ess_change")  # share of the scale in force

    def scale(self, ess_frac: float) -> float:
        """Return the factor on the learning rate; the smallest one where the ESS is not known as a number."""
        if not math.isfinite(ess_frac):
            return self.min_scale
        return max(self.min_scale, min(1.0, math.sqrt(max(0.0, ess_frac) / self.base)))

    def adjust(self, situation: Situation, own: Request) -> float:
        """Return the scale for this step's ESS; the scale so far where that hardly moved."""
        if "ess_frac" not in situation.levels:
            return own.value
        scale = self.scale(situation.levels["ess_frac"])
        return own.value if abs(scale - own.value) < self.min_change * own.value else scale

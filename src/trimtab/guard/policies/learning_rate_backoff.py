"""Lower the learning rate, and raise it again in steps. The general remedy where the cause is not known."""

from __future__ import annotations

from typing import ClassVar

from trimtab.catalog import bound
from trimtab.guard.policies.base import Factor, Policy, Request, Situation
from trimtab.types import Lever


class LearningRateBackoff(Policy, frozen=True):
    """Policy `learning_rate_backoff`: multiply lever `lr_scale` by `factor`, down to `min_scale`.

    On the way back the scale grows by `recovery` a time, each time after a calm spell.

    When not: a fault that lowers the reward by itself (a broken tool, a wrong mask) is not cured by learning
    slower, and a run that starts may need its rate.

    Example:
        >>> LearningRateBackoff(recovery=2.0).relax(Request("lr_scale", "all", 0.3), 1.0)
        0.6
    """

    name: ClassVar[str] = "learning_rate_backoff"
    needs: ClassVar[tuple[Lever, ...]] = ("lr_scale",)
    factor: Factor = bound("guard_lr_factor")  # of the scale in force
    min_scale: Factor = bound("guard_lr_min")  # of the scheduled rate
    recovery: float = bound("guard_lr_recovery")  # factor on the scale at each step back

    def __post_init__(self) -> None:
        """Refuse a recovery that never arrives."""
        if not self.recovery > 1:
            raise ValueError("recovery must be above 1")

    def propose(self, situation: Situation) -> list[Request]:
        """Ask for a smaller rate, unless it is as small as it may be."""
        now = situation.value("lr_scale", "all")
        scale = max(self.min_scale, now * self.factor)
        return [Request("lr_scale", "all", scale)] if scale < now else []

    def relax(self, own: Request, neutral: float) -> float:
        """Return a larger scale; `neutral` once it is near."""
        scale = own.value * self.recovery
        return neutral if scale >= neutral * 0.99 else scale

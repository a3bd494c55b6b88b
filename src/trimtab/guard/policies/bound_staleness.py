"""Bound the age of rollouts: those older than a limit are not trained on."""

from __future__ import annotations

import math
from typing import ClassVar

from trimtab.catalog import bound
from trimtab.guard.policies.base import Amount, Policy, Request, Situation
from trimtab.types import Lever


class BoundStaleness(Policy, frozen=True):
    """Policy `bound_staleness`: set lever `max_lag`.

    The first time to `max_lag`; each further time to half of that, down to 0, which trains on fresh rollouts
    alone. A limit that is in force already and as small is not asked for again.

    On the way back it doubles, each time after a calm spell: a fleet that is still old shows at a small age.

    It removes the cause of staleness. When not: where most of the fleet is old for good, little is left to
    train on, and steps get slow or small. Then lower the learning rate instead.

    With `max_lag` 0 from the start only fresh rollouts are trained on, which an asynchronous trainer may not
    be able to give: it waits for them.

    Example:
        >>> from trimtab.types import Incident
        >>> trouble = Incident(73, "post_tool", "warning", (), ())
        >>> now = Situation(75, trouble, 0, {"max_lag": ("all",)}, lambda lever, name: math.inf)
        >>> BoundStaleness(max_lag=1).propose(now)
        [Request(lever='max_lag', slice='all', value=1.0)]
    """

    name: ClassVar[str] = "bound_staleness"
    needs: ClassVar[tuple[Lever, ...]] = ("max_lag",)
    max_lag: Amount = bound("guard_max_lag")  # policy versions
    free: Amount = bound("guard_lag_free")  # policy versions; on the way back, no limit from here on

    def relax(self, own: Request, neutral: float) -> float:
        """Return twice the limit; `neutral` once that is `free`. The fleet may be as old as it was."""
        limit = max(1.0, 2 * own.value)
        return neutral if limit >= self.free else limit

    def propose(self, situation: Situation) -> list[Request]:
        """Ask for an age that rollouts may have at most."""
        limit = float(math.floor(self.max_lag / 2**situation.times))
        if limit >= situation.value("max_lag", "all"):
            return []
        return [Request("max_lag", "all", limit)]

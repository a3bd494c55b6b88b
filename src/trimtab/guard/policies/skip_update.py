"""Leave out single updates whose gradient is not finite, or far larger than those before."""

from __future__ import annotations

import math
from collections import deque
from typing import ClassVar

import numpy as np

from trimtab.catalog import bound
from trimtab.guard.policies.base import Amount, Policy, Steps


class SkipUpdates(Policy, frozen=True):
    """Policy `skip_update`: an update is left out where its gradient norm exceeds mean + `sigmas` deviations.

    Mean and deviation are those of the last `window` norms, after `ready` of them; only large norms are left
    out. A norm that is not finite is left out from the first step on. Norms of updates left out do not count,
    and `max_in_row` updates in a row are left out at most for being large: then the norm has a new level.

    When not: a norm that is clipped before it is measured shows nothing. Give the norm before clipping.

    Example:
        >>> recent = deque([1.0, 1.2] * 40, maxlen=128)
        >>> policy = SkipUpdates()
        >>> policy.limit(recent) > 9.0, policy.limit(deque([1.0]))
        (False, inf)

    Reference:
        OLMo-core `SkipStepOptimizer`: 6 sigma of the last 128, after 64. Norms of RL have heavier tails.
    """

    name: ClassVar[str] = "skip_update"
    enabled: bool = True
    sigmas: Amount = bound("guard_skip_sigmas")  # standard deviations
    window: Steps = int(bound("guard_skip_window"))  # steps
    ready: Steps = int(bound("guard_skip_ready"))  # steps
    max_in_row: Steps = int(bound("guard_skip_row"))  # updates

    def limit(self, recent: deque[float]) -> float:
        """Return the largest norm that is taken now; infinity while there is too little to compare with."""
        if len(recent) < self.ready:
            return math.inf
        norms = np.array(recent)
        return float(norms.mean() + self.sigmas * norms.std(ddof=1))

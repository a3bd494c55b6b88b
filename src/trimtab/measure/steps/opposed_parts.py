"""Does one part of the reward rise while another falls? From the parts' means over the last steps.

A policy that learns a proxy earns more of the part that pays, and less of the one that counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trimtab.measure.steps.step_series import StepSeries

RECENT, BEFORE, MIN_BEFORE = 5, 30, 12
"""Steps compared, the steps before them, and how few of these will do (default, not calibrated)."""
SPREAD = 0.02
"""Added to the steps' standard deviation, so that a part that never moves has none of 0 (not calibrated)."""
PART = "reward_part/mean"


def opposed_parts(steps: Sequence[StepSeries]) -> float:
    """Return how clearly one part of the reward rises and another falls at once.

    Args:
        steps: the last steps' series, oldest first.

    Returns:
        The smaller of two z-scores, of the part that rises most and of the part that falls most, the last
        `RECENT` steps against those before; 0 where no part falls or none rises, NaN with fewer than two
        parts or too few steps.
    """
    if not steps or len(steps) < RECENT + MIN_BEFORE:
        return math.nan
    names = [name for name in steps[-1].slices if name.startswith("reward/")]
    scores = []
    for name in names:
        points = [point.value for one in steps if (point := one.get(PART, name)) is not None]
        before, recent = np.array(points[-RECENT - BEFORE : -RECENT]), np.array(points[-RECENT:])
        if before.size >= MIN_BEFORE:
            scale = float(before.std(ddof=1)) + SPREAD
            width = scale * math.sqrt(1 / RECENT + 1 / before.size)
            scores.append((float(recent.mean()) - float(before.mean())) / width)
    if len(scores) < 2:
        return math.nan
    return max(0.0, min(max(scores), -min(scores)))

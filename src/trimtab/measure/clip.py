"""Clip shares of staleness: what PPO's clip range would cut on either side, whether or not the trainer clips."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trimtab.catalog import bound
from trimtab.measure.state import SliceState
from trimtab.measure.value import Value

__all__ = ["clip"]


def clip(state: SliceState) -> Iterator[Value]:
    """`staleness/clip_high_frac`: share with pi_theta/pi_old > 1.2; `staleness/clip_low_frac`: share below 0.8."""
    sketch = state.parts.get("staleness/sketch")
    if sketch is not None:
        n, epsilon = sketch.count, bound("clip")
        yield Value("staleness/clip_high_frac", 1.0 - sketch.share_below(math.log1p(epsilon)), n)
        yield Value("staleness/clip_low_frac", sketch.share_below(math.log1p(-epsilon)), n)

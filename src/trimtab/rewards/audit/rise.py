"""How much a series changed between its start and its end, with an interval that allows for slow noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trimtab.catalog import bound
from trimtab.typing import Float64

MIN_STEPS = 8
"""Finite values that a change needs."""
_LEVEL = 1.96


@dataclass(frozen=True)
class Rise:
    """The change of a series from its first steps to its last."""

    before: float  # mean of the first `window` values
    after: float  # mean of the last
    low: float  # 95 % interval of the change
    high: float
    z: float  # change over its standard error
    jump_frac: float  # of the whole change, within the steepest tenth of the steps
    jump_at: int  # index of the value after the steepest part
    unit: float  # 1 for values within [-1, 1], else the largest magnitude
    noise: float  # standard deviation of one value around its neighbours

    @property
    def steep(self) -> bool:
        """Did most of the change come within a tenth of the steps, and beyond noise?"""
        return (
            self.jump_frac >= bound("audit_jump")
            and abs(self.change) > bound("audit_jump_noise") * self.noise
        )

    @property
    def change(self) -> float:
        """After minus before."""
        return self.after - self.before


def rise_of(values: Float64) -> Rise | None:
    """Return the change of a series, None for fewer than eight finite values.

    The standard error comes from first differences, which a trend hardly touches, and is inflated by the
    first autocorrelation of what is left of the series after a straight line, as for an AR(1) process.

    Args:
        values: (T,) in the order of the steps; NaN and infinity are left out.

    Example:
        >>> round(rise_of(np.repeat([0.0, 1.0], 20) + 0.01 * np.arange(40) % 0.02).change, 2)
        1.0
    """
    x = values[np.isfinite(values)]
    count = x.size
    if count < MIN_STEPS:
        return None
    window = max(3, min(count // 4, 10))
    before, after = float(x[:window].mean()), float(x[-window:].mean())
    noise = math.sqrt(float((np.diff(x) ** 2).mean()) / 2.0)
    error = noise * math.sqrt(2.0 / window * _inflation(x))
    change = after - before
    width = max(1, round(count / 10))
    smooth = np.convolve(x, np.ones(3) / 3, "valid") if count >= 3 * MIN_STEPS else x
    steps = smooth[width:] - smooth[:-width]
    at = int(np.argmax(steps * np.sign(change))) if change else 0
    largest = float(np.abs(x).max())
    return Rise(
        before, after, change - _LEVEL * error, change + _LEVEL * error,
        change / error if error > 0 else math.copysign(math.inf, change) if change else 0.0,
        float(steps[at] / change) if change else 0.0, at + width, 1.0 if largest <= 1.0 else largest,
        1.4826 * float(np.median(np.abs(np.diff(x)))) / math.sqrt(2.0),
    )  # fmt: skip


def _inflation(x: Float64) -> float:
    """(1 + r) / (1 - r) of the first autocorrelation r around a straight line, r within [0, 0.8]."""
    time = np.arange(x.size, dtype=np.float64)
    rest = x - np.polyval(np.polyfit(time, x, 1), time)
    power = float((rest**2).sum())
    r = float((rest[1:] * rest[:-1]).sum()) / power if power > 0 else 0.0
    r = min(max(r, 0.0), 0.8)
    return (1.0 + r) / (1.0 - r)

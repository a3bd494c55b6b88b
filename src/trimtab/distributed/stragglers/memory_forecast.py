"""MemoryForecast: in how many steps the memory of one rank runs out, with an interval."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from trimtab.capture.memory_use import MemoryUse
from trimtab.catalog import bound
from trimtab.typing import Float64

BLOCK = 4
"""Steps whose largest use is one point of the trend, and between two forecasts."""
_WINDOWS = (24, 64)  # steps a trend is fitted to: the shortest in which it is certain
_Z = 1.96


@dataclass(frozen=True)
class Forecast:
    """When memory runs out if it grows on as it does."""

    since: int  # first step of the trend
    steps_left: float  # inf: no trend that leads to the limit
    low: float  # ends of the 95 % interval of the trend
    high: float
    bytes_per_step: float


@dataclass
class MemoryForecast:
    """Takes the memory of one rank at each step; `update` answers every fourth one.

    Points are the largest use of four steps, so that a sawtooth or an emptied cache does not hide growth. The
    trend is Theil and Sen's, which a few jumps do not move, with Sen's interval. There is none where use has
    been as high before (a sawtooth of any length, an evaluation), where it grew by less than `oom_growth` of
    the limit, or where the later half does not grow (memory that is warming up).

    Where processes share a limit, what all of them use counts, and it is this rank's forecast only if its own
    memory grows with it.

    Example:
        forecast = MemoryForecast()
        for step, use in enumerate(uses):
            answer = forecast.update(step, use)

    Reference:
        Sen 1968, Journal of the American Statistical Association 63, 1379.
    """

    _steps: deque[int] = field(default_factory=lambda: deque(maxlen=_WINDOWS[-1]))
    _own: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOWS[-1]))
    _total: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOWS[-1]))
    _record: float = -math.inf  # largest total use of steps that are no longer remembered
    _count: int = 0

    def update(self, step: int, use: MemoryUse) -> Forecast | None:
        """Take one step; return a forecast at every fourth step from `oom_ready` on, else None."""
        if len(self._total) == _WINDOWS[-1]:
            self._record = max(self._record, self._total[0])
        self._steps.append(step)
        self._own.append(float(use.used))
        self._total.append(float(max(use.limit - use.available, use.used)))
        self._count += 1
        if self._count < bound("oom_ready") or self._count % BLOCK:
            return None
        return self._forecast(use)

    def _forecast(self, use: MemoryUse) -> Forecast:
        none = Forecast(self._steps[-1], math.inf, math.inf, math.inf, 0.0)
        own, total = _block_maxima(self._own), _block_maxima(self._total)
        margin = bound("oom_growth") * use.limit / 2
        for window in _WINDOWS:
            size = min(window // BLOCK, total.size)
            before = max(self._record, float(total[: total.size - size // 2].max()))
            if total[-1] < before + margin:
                continue  # it has been as high
            slope, low, high = theil_sen(total[-size:])
            mine = theil_sen(own[-size:])
            late = theil_sen(total[-max(size // 2, 3) :])[0]
            grown = total[-1] - total[-size]
            if low <= 0 or late <= slope / 4:
                continue
            if grown < bound("oom_growth") * use.limit or mine[0] < slope / 4:
                continue
            left = max(use.limit - total[-1], 0.0) * BLOCK
            first = list(self._steps)[-size * BLOCK]
            return Forecast(first, left / slope, left / high, left / low, slope / BLOCK)
        return none


def theil_sen(values: Float64) -> tuple[float, float, float]:
    """Return the median of all slopes between two points, and its 95 % interval.

    Args:
        values: n values at equal distances.

    Returns:
        Slope a value, low, high; low is -inf and high inf where n is too small for an interval.

    Example:
        >>> theil_sen(np.arange(8.0) * 2)
        (2.0, 2.0, 2.0)
    """
    n = values.size
    if n < 2:
        return math.nan, -math.inf, math.inf
    i, j = np.triu_indices(n, 1)
    slopes = np.sort((values[j] - values[i]) / (j - i))
    width = _Z * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low, high = math.floor((slopes.size - width) / 2) - 1, math.ceil((slopes.size + width) / 2)
    return (
        float(np.median(slopes)),
        float(slopes[low]) if low >= 0 else -math.inf,
        float(slopes[high]) if high < slopes.size else math.inf,
    )


def _block_maxima(values: deque[float]) -> Float64:
    """The largest of each four values, the last four last; what does not fill four is left out."""
    array = np.array(values)
    whole = array.size // BLOCK * BLOCK
    return np.asarray(array[array.size - whole :].reshape(-1, BLOCK).max(axis=1), np.float64)

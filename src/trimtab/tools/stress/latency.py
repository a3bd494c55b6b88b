"""Latencies in an HDR histogram: quantiles within 0.1 %, from a microsecond to an hour."""

from __future__ import annotations

from typing import Any

from trimtab.tools.extras import library

QUANTILES = {"p50_s": 50.0, "p90_s": 90.0, "p95_s": 95.0, "p99_s": 99.0, "p999_s": 99.9}
_HIGHEST_US = 3_600_000_000


class LatencyHistogram:
    """Counts of latencies; empty quantiles are NaN.

    >>> latencies = LatencyHistogram()
    >>> for milliseconds in range(1, 101): latencies.record(milliseconds / 1000)
    >>> round(latencies.quantile(99), 3), latencies.count
    (0.099, 100)
    """

    def __init__(self) -> None:
        self._histogram: Any = library("hdrh.histogram").HdrHistogram(1, _HIGHEST_US, 3)
        self.count, self._sum = 0, 0.0
        self.maximum = 0.0

    def record(self, seconds: float) -> None:
        """Add one latency."""
        self._histogram.record_value(min(max(int(seconds * 1e6), 1), _HIGHEST_US))
        self.count += 1
        self._sum += seconds
        self.maximum = max(self.maximum, seconds)

    def quantile(self, percent: float) -> float:
        """Seconds that so many per cent of the latencies do not exceed."""
        return float(self._histogram.get_value_at_percentile(percent)) / 1e6 if self.count else float("nan")

    def mean(self) -> float:
        """Mean latency in seconds."""
        return self._sum / self.count if self.count else float("nan")

    def summary(self) -> dict[str, float]:
        """Mean, quantiles and maximum, in seconds."""
        named = {name: self.quantile(percent) for name, percent in QUANTILES.items()}
        return {"mean_s": self.mean(), **named, "max_s": self.maximum if self.count else float("nan")}

    def encoded(self) -> str:
        """The histogram in HdrHistogram's own text form, to be merged with those of other machines."""
        return bytes(self._histogram.encode()).decode("ascii")

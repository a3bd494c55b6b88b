"""A line of block characters, and numbers short enough to stand next to it."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"


def spark(values: Sequence[float], width: int, scale: tuple[float, float] | None = None) -> str:
    """Draw `values` in at most `width` characters; each stands for the largest of its values.

    A character whose values include NaN or infinity is ``×``: it never passes for a small one. `scale` (low,
    high) makes lines comparable; without it the line fills its own range.

    >>> (spark([0, 1, 2, float("nan"), 7], 5), spark([1, 1], 5), spark([0.0, 4.0], 2, (0.0, 8.0)),
    ...     spark(range(8), 4))
    ('▁▂▃×█', '▁▁', '▁▅', '▂▄▆█')
    """
    num_bins = min(width, len(values))
    bins = [values[len(values) * i // num_bins : len(values) * (i + 1) // num_bins] for i in range(num_bins)]
    tops = [max(group) if all(map(math.isfinite, group)) else math.nan for group in bins]
    finite = [value for value in values if math.isfinite(value)]
    low, high = scale or (min(finite, default=0.0), max(finite, default=0.0))
    return "".join(_block(top, low, high) for top in tops)


def _block(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return "×"
    share = (value - low) / (high - low) if high > low else 0.0
    return _BLOCKS[max(0, min(7, math.floor(share * 7 + 0.5)))]


def number(value: float | None) -> str:
    """Three significant digits in at most six characters or so; a dash for what was not measured.

    >>> [number(v) for v in (0.61734, 8.26, 1051.0, 0.000412, 0, None, float("nan"))]
    ['0.617', '8.26', '1,051', '4.1e-4', '0', '–', '–']
    """
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if size >= 1e5 or 0 < size < 1e-3:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:,.0f}" if size >= 1000 or value == 0 else f"{value:.3g}"


def span(seconds: float) -> str:
    """A duration in the one unit a reader would use.

    >>> [span(s) for s in (8.2, 190, 7300, 200_000)]
    ['8 s', '3 min', '2 h', '2 d']
    """
    for size, unit, limit in ((1, "s", 60), (60, "min", 3600), (3600, "h", 86_400)):
        if seconds < limit:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds // 86_400)} d"

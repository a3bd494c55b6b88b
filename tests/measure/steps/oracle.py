"""The series of one step once more, one slice and one trajectory at a time, without the code under test."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from trimtab.types import TokenBatch

BUCKETS = {"turn/2-3": (2, 3), "turn/4-7": (4, 7), "turn/8+": (8, 10**9)}


class Token:
    """One token with gradient: its batch, row and place."""

    def __init__(self, batch: TokenBatch, row: int, at: int, unit: int) -> None:
        self.batch, self.row, self.at, self.unit = batch, row, at, unit
        self.trajectory = int(batch.episode_id[row])

    def ratio(self, name: str) -> float:
        columns = {
            "total": ("logprobs", "rollout_logprobs"),
            "mismatch": ("old_logprobs", "rollout_logprobs"),
            "staleness": ("logprobs", "old_logprobs"),
        }[name]
        one, two = (getattr(self.batch, column)[self.at] for column in columns)
        return float(np.float32(one) - np.float32(two))

    def slices(self) -> set[str]:
        batch, at = self.batch, self.at
        names = {"all"}
        if batch.phase[at] == 0:
            names.add("text")
        else:
            names.add("post_tool")
            tool = int(batch.tool[at])
            if tool:
                names.add(
                    "post_tool/" + (batch.tool_names[tool - 1] if tool <= len(batch.tool_names) else "other")
                )
            names |= {n for n, (low, high) in BUCKETS.items() if low <= batch.turn[at] <= high}
        source = int(batch.source[at])
        if source:
            names.add("source/" + batch.source_names[source - 1])
        return names


def tokens_of(batches: Sequence[TokenBatch]) -> dict[str, list[Token]]:
    """Slice -> its tokens."""
    slices: dict[str, list[Token]] = {}
    unit = 0
    for batch in batches:
        at = 0
        for row, length in enumerate(batch.lengths.tolist()):
            for place in range(at, at + length):
                if batch.loss_mask[place]:
                    token = Token(batch, row, place, unit)
                    for name in token.slices():
                        slices.setdefault(name, []).append(token)
            at, unit = at + length, unit + 1
    return slices


def by_trajectory(tokens: Sequence[Token]) -> list[list[Token]]:
    ids = sorted({token.trajectory for token in tokens})
    return [[token for token in tokens if token.trajectory == one] for one in ids]


def quantile(values: Sequence[float], level: float) -> float:
    return float(np.quantile(np.sort(values), min(1.0, max(0.0, level)), method="inverted_cdf"))


def quantile_error(parts: Sequence[Sequence[float]], level: float) -> tuple[float, float, int]:
    """The quantile of all values, its Woodruff error with one cluster a part, and the parts above it."""
    values = [value for part in parts for value in part]
    at, n, k = quantile(values, level), len(values), len(parts)
    above = [sum(value > at for value in part) for part in parts]
    frac = sum(above) / n
    squares = sum((a - len(part) * frac) ** 2 for a, part in zip(above, parts, strict=True))
    s = math.sqrt(squares * k / (k - 1)) / n
    return at, (quantile(values, level + s) - quantile(values, level - s)) / 2, sum(a > 0 for a in above)


def kish(logs: Sequence[float]) -> float:
    weights = np.exp(np.asarray(logs) - max(logs))
    return float(weights.sum() ** 2 / (len(logs) * (weights**2).sum()))


def jackknife(parts: Sequence[Sequence[float]], statistic: Callable[[Sequence[float]], float]) -> float:
    """Standard error by leaving out one part at a time."""
    k = len(parts)
    without = [statistic([v for j, part in enumerate(parts) if j != i for v in part]) for i in range(k)]
    return math.sqrt((k - 1) / k * sum((value - sum(without) / k) ** 2 for value in without))


def sequence_logs(tokens: Sequence[Token], name: str) -> list[list[float]]:
    """Log-weights of the sequences, by trajectory."""
    parts = []
    for part in by_trajectory(tokens):
        units = sorted({token.unit for token in part})
        parts.append([sum(token.ratio(name) for token in part if token.unit == unit) for unit in units])
    return parts


def ratio_error(parts: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Mean of all values and its error, parts as clusters."""
    n, k = sum(map(len, parts)), len(parts)
    mean = sum(sum(part) for part in parts) / n
    squares = sum((sum(part) - len(part) * mean) ** 2 for part in parts)
    return mean, math.sqrt(squares * k / (k - 1)) / n

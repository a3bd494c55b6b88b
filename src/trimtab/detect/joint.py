"""Several readings that one trouble moves together, added up: small movements of each make a large one of the sum.

Each member is taken on its rule's scale, signed so that up is bad, and standardised by the median and robust deviation of its first values,
which stay fixed; the joint value is their sum over sqrt(k), so its scatter is about one whatever k is, if members are
independent. k movements of d deviations each then make one of sqrt(k) d.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
import numpy.typing as npt

__all__ = ["FAMILIES", "Joint", "Member"]

BASE = 40  # values that set a member's scale
Key = tuple[str, str]


@dataclass(frozen=True)
class Member:
    """A reading that moves up (+1) or down (-1) in this trouble; `log`: on a logarithmic scale."""

    key: Key
    sign: int
    log: bool = False

    def value(self, raw: float) -> float:
        """Signed and scaled; nan where it cannot be."""
        if self.log:
            raw = math.log(raw) if raw > 0 else math.nan
        return self.sign * raw

    def values(self, raw: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The same for an array."""
        if self.log:
            with np.errstate(divide="ignore", invalid="ignore"):
                raw = np.where(raw > 0, np.log(raw), math.nan)
        return np.asarray(self.sign * raw)


def _up(name: str, log: bool = False) -> Member:
    return Member((f"aggregate/{name}", "all"), 1, log)


def _down(name: str, log: bool = False) -> Member:
    return Member((f"aggregate/{name}", "all"), -1, log)


FAMILIES: dict[str, tuple[Member, ...]] = {
    "post_tool": (
        Member(("tail_ratio/p95", "post_tool"), 1, True),
        Member(("lagged_drift/p95", "post_tool"), 1, True),
    ),
    "support": (
        Member(("tail_ratio/p95", "post_tool"), 1, True),
        Member(("ref_logprob/below_5_frac", "post_tool"), 1, True),
    ),
    "mismatch": (
        Member(("mismatch/p99", "all"), 1, True),
        Member(("mismatch/token_ess_frac", "all"), -1),
        Member(("mismatch/khat", "all"), 1),
        _up("mismatch_kl", True),
        _up("mismatch_abs", True),
    ),
    "staleness": (_up("staleness_lag"), _up("policy_kl", True), _up("clip_high_frac", True), _up("clip_low_frac", True)),
    "groups": (_up("zero_std_frac"), _down("reward_std"), _down("advantage_std")),
    "outcome": (_down("reward"), _up("grad_norm", True)),
    "likelihood": (_down("correct_logp"), _down("reward")),
    "gradient": (_up("grad_norm", True), Member(("weight_mass/top_trajectory_frac", "all"), 1, True)),
    "vanishing": (_down("grad_norm", True), _down("advantage_std")),
    "tools": (_up("tool_failure_frac", True), _up("tool_latency_s", True), _down("reward")),
    "tool_use": (_down("tool_calls"), _up("no_call_frac", True), _down("length")),
    "text": (_up("length"), _up("truncated_frac", True), _up("reward_length_corr"), _up("repetition_frac", True)),
    "hacking": (_up("reward"), _up("reward_length_corr")),
    "template": (_down("template_mi"), _down("reward_std")),
    "entropy": (_down("entropy"), _down("reward_std"), _up("zero_std_frac")),
    "looping": (_down("entropy"), _up("repetition_frac", True)),
    "value": (_up("value_loss", True), _down("value_explained_variance")),
    "preference": (_down("margin"), _down("chosen_logp")),
    "throughput": (_down("tokens_per_s", True), _up("step_s", True), _up("tool_latency_s", True)),
}  # fmt: skip
"""Family -> its members. Each is the reading `joint/<family>` of the slice `all`."""


@dataclass
class Joint:
    """The joint value of one family. Members that bring no value in the first 40 do not count; one that misses later makes
    the step's joint value absent."""

    members: tuple[Member, ...]
    first: dict[Key, list[float]] = field(default_factory=dict)
    scale: dict[Key, tuple[float, float]] | None = None

    def update(self, values: Mapping[Key, float]) -> float:
        """The joint value of one step's readings; nan while the scales are being learnt or when a member is missing."""
        present = {m.key: m.value(values[m.key]) for m in self.members if m.key in values}
        if not present:
            return math.nan
        if self.scale is None:
            for key, value in present.items():
                if math.isfinite(value):
                    self.first.setdefault(key, []).append(value)
            if max(map(len, self.first.values()), default=0) >= BASE:
                self.scale = _scales(self.first)
            return math.nan
        if len(self.scale) < 2:
            return math.nan
        total = 0.0
        for key, (middle, spread) in self.scale.items():
            value = present.get(key, math.nan)
            if not math.isfinite(value):
                return math.nan
            total += min(max((value - middle) / spread, -30.0), 30.0)
        return total / math.sqrt(len(self.scale))

    def scan(
        self, series: Mapping[Key, tuple[Sequence[int], Sequence[float]]]
    ) -> tuple[list[int], list[float]]:
        """`update` over whole series: the steps with a joint value, and the values. For a joint that has seen nothing."""
        mine = {m.key: series[m.key] for m in self.members if m.key in series}
        if len(mine) < 2:
            return [], []
        shared = next(iter(mine.values()))[0]
        if any(list(steps) != list(shared) for steps, _ in mine.values()):
            return self._scan_apart(mine)
        columns = {
            m.key: m.values(np.asarray(mine[m.key][1], dtype=np.float64))
            for m in self.members
            if m.key in mine
        }
        for row in range(len(shared)):  # until the scales stand
            self.update({key: float(mine[key][1][row]) for key in mine})
            if self.scale is not None:
                break
        if self.scale is None or len(self.scale) < 2:
            return [], []
        total = np.zeros(len(shared))
        for key, (middle, spread) in self.scale.items():
            total += np.clip((columns[key] - middle) / spread, -30.0, 30.0)
        total /= math.sqrt(len(self.scale))
        total[: row + 1] = math.nan
        kept = np.flatnonzero(np.isfinite(total))
        return [shared[i] for i in kept.tolist()], total[kept].tolist()

    def _scan_apart(
        self, series: Mapping[Key, tuple[Sequence[int], Sequence[float]]]
    ) -> tuple[list[int], list[float]]:
        """The same for series whose steps differ."""
        tables = {key: dict(zip(*one, strict=True)) for key, one in series.items()}
        steps = sorted({step for table in tables.values() for step in table})
        values = [self.update({k: t[step] for k, t in tables.items() if step in t}) for step in steps]
        kept = [(step, value) for step, value in zip(steps, values, strict=True) if math.isfinite(value)]
        return [step for step, _ in kept], [value for _, value in kept]


def _scales(first: Mapping[Key, list[float]]) -> dict[Key, tuple[float, float]]:
    """Median and robust deviation of each member that brought at least 40 values and scatters at all."""
    found: dict[Key, tuple[float, float]] = {}
    for key, values in first.items():
        middle = median(values)
        spread = 1.4826 * median([abs(v - middle) for v in values])
        if len(values) >= BASE and spread > 0:
            found[key] = (middle, spread)
    return found

"""How are rewards distributed, within groups and against length? A mean hides groups that give no gradient.

B sequences. DAPO (arXiv 2503.14476) drops groups of equal rewards; LLD (arXiv 2512.04220) watches the
likelihood of correct responses fall before a collapse.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.measure.state.reward_groups import GroupSums, step_groups
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.token_view import own_counts, own_means
from trimtab.measure.state.values import Value
from trimtab.stats import ExtremeCounts, Moments
from trimtab.types import TokenBatch
from trimtab.typing import Bool, Float64, Int64

_PART = "reward_part:"
GROUPS_A_STEP = 2**40
"""Numbers of groups of one step; above them stands the number of the step, where groups do not span steps."""


@dataclass(frozen=True)
class RewardRows:
    """Per sequence (B,): step, reward, gradient tokens, their mean log-probability (nan: none), group (None:
    not given)."""

    step: Int64
    reward: Float64
    length: Int64
    logp: Float64
    group: Int64 | None
    parts_of: Mapping[str, Float64] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: TokenBatch, fresh: Bool, step: Int64) -> RewardRows:
        """The rows of a batch that has rewards, of trajectories seen for the first time."""
        assert batch.reward is not None
        logps = next(
            (c for c in (batch.logprobs, batch.old_logprobs, batch.rollout_logprobs) if c is not None), None
        )
        means = np.full(batch.num_sequences, np.nan) if logps is None else own_means(batch, logps)
        return cls(
            step[fresh],
            batch.reward[fresh],
            own_counts(batch)[fresh],
            means[fresh],
            None if batch.group is None else batch.group[fresh] & (GROUPS_A_STEP - 1),
            {name: values[fresh] for name, values in batch.reward_parts.items()},
        )

    @classmethod
    def joined(cls, rows: Sequence[RewardRows]) -> RewardRows:
        """All rows; groups only when every batch gave them. A part a batch lacks is nan there."""
        names = dict.fromkeys(name for one in rows for name in one.parts_of)
        groups = [one.group for one in rows if one.group is not None]
        return cls(
            np.concatenate([one.step for one in rows]),
            np.concatenate([one.reward for one in rows]),
            np.concatenate([one.length for one in rows]),
            np.concatenate([one.logp for one in rows]),
            np.concatenate(groups) if len(groups) == len(rows) else None,
            {
                n: np.concatenate([one.parts_of.get(n, np.full(one.reward.size, np.nan)) for one in rows])
                for n in names
            },
        )

    def summaries(self, solved_at: float | None) -> tuple[dict[str, Any], dict[str, int]]:
        """Sums of the rows, and what was left out."""
        fine = np.isfinite(self.reward)
        excluded = {"aggregate: reward not finite": int((~fine).sum())}
        summaries: dict[str, Any] = {"reward/edges": _sums(ExtremeCounts(), self.reward)}
        pair = fine & (self.length > 0)
        reward, length = self.reward[pair], self.length[pair].astype(np.float64)
        for name, values in (("reward", reward), ("length", length), ("product", reward * length)):
            summaries[f"pair_{name}/values"] = _sums(Moments(), values)
        for name, values in self.parts_of.items():
            summaries[f"{_PART}{name}/values"] = _sums(Moments(), values)
        if self.group is not None:
            sums = GroupSums()
            sums.update(self.step[fine], self.group[fine], self.reward[fine], solved_at)
            label = "solved" if solved_at is not None else "reward"
            summaries[f"{label}/groups"] = sums
        correct = self._correct(fine, solved_at)
        if correct is not None and np.isfinite(self.logp).any():
            summaries["correct_logp/values"] = _sums(Moments(), self.logp[correct])
        return summaries, excluded

    def _correct(self, fine: Bool, solved_at: float | None) -> Bool | None:
        """(B,) sequences at or over `solved_at`; without one, those above the mean of their group's rows of
        this step."""
        if solved_at is not None:
            return fine & (self.reward >= solved_at)
        if self.group is None or not fine.any():
            return None
        _, _, where = step_groups(self.step[fine], self.group[fine])
        mean = np.bincount(where, weights=self.reward[fine]) / np.bincount(where)
        chosen = np.zeros(fine.size, bool)
        chosen[fine] = self.reward[fine] > mean[where]
        return chosen


def rewards(state: SliceState) -> Iterator[Value]:
    """`aggregate/reward_max`, `_min`, `extreme_reward_frac`, `reward_length_corr`, `correct_logp`, and of
    groups of two or more `reward_std`, `zero_std_frac`; `solved_all_frac`, `solved_none_frac` where
    `solved_at` was declared."""
    reward = state.summaries.get("reward/values")
    if reward is not None:
        yield Value("aggregate/reward_max", reward.max, reward.count)
        yield Value("aggregate/reward_min", reward.min, reward.count)
    extremes = state.summaries.get("reward/edges")
    if extremes is not None:
        yield Value("aggregate/extreme_reward_frac", extremes.fraction(), extremes.count)
        yield _correlation(state)
    logp = state.summaries.get("correct_logp/values")
    if logp is not None:
        reason = "" if logp.count else "no response counted as correct"
        yield Value("aggregate/correct_logp", logp.mean(), logp.count, reason=reason)
    yield from _groups(state)


def reward_parts(state: SliceState) -> Iterator[tuple[str, Value]]:
    """Slice `reward/<part>` and its `reward_part/mean`, of the sequences that have the part; a part alone is
    the reward itself."""
    parts = {key: part for key, part in state.summaries.items() if key.startswith(_PART)}
    for key, part in parts.items() if len(parts) > 1 else ():
        name = key[len(_PART) :].rsplit("/", 1)[0]
        reason = "" if part.count else "no sequence had this part"
        yield f"reward/{name}", Value("reward_part/mean", part.mean(), part.count, reason=reason)


def _groups(state: SliceState) -> Iterator[Value]:
    for label in ("reward", "solved"):
        sums = state.summaries.get(f"{label}/groups")
        if sums is None:
            continue
        totals = sums.totals()
        n = totals.groups
        reason = "" if n else "no group has two rewards"
        if totals.closed_early:
            reason = (
                f"{totals.closed_early} groups were closed before the window was: more are open than are kept"
            )
        rows = {"reward_std": totals.sum_std, "zero_std_frac": totals.zero}
        if label == "solved":
            rows |= {"solved_all_frac": totals.all_solved, "solved_none_frac": totals.none_solved}
        for name, total in rows.items():
            yield Value(f"aggregate/{name}", total / n if n else math.nan, n, reason=reason)


def _correlation(state: SliceState) -> Value:
    reward, length, product = (
        state.summaries[f"pair_{name}/values"] for name in ("reward", "length", "product")
    )
    scale = math.sqrt(reward.variance() * length.variance()) if reward.count else 0.0
    flat = reward.count and (reward.max == reward.min or length.max == length.min)
    if not scale or flat:
        return Value(
            "aggregate/reward_length_corr", math.nan, reward.count, reason="reward or length does not vary"
        )
    value = (product.mean() - reward.mean() * length.mean()) / scale
    return Value("aggregate/reward_length_corr", min(1.0, max(-1.0, value)), reward.count)


def _sums(summary: Any, values: Any) -> Any:
    summary.update(values)
    return summary

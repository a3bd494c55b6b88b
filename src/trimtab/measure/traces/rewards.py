"""What do the rewards say: how many are solved, do rewards differ at all and within groups, do they agree
with the log's success?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from trimtab.catalog import bound
from trimtab.measure.state.requirements import Requirements
from trimtab.measure.traces.builder import Maker, Measured
from trimtab.traces.table.types import Evidence
from trimtab.typing import Array


def reward_readings(maker: Maker, declared: Requirements) -> Iterator[Measured]:
    """Shares of episodes solved and in disagreement, rewards that are no number, their deviation, and groups
    of equal ones."""
    table = maker.table
    solved, source = table.solved(declared.solved_at)
    known = (solved >= 0).astype(np.float64)
    finite = np.isfinite(table.reward)
    reason = "no success in the log, and " + (
        "the rewards are not 0 and 1: give --solved-at" if finite.any() else "no reward"
    )
    yield maker.share(
        "traces/solved_frac", (solved == 1) * known, known, maker.clusters, reason,
        what=f"episodes, by {source}"
    )  # fmt: skip
    yield maker.value(
        "traces/nan_rewards", float(table.nan_rewards), table.num_episodes,
        evidence=table.evidence.get("nan_rewards", []), text=f"{table.nan_rewards} rewards",
    )  # fmt: skip
    rewards = table.reward[finite]
    spread = float(rewards.std(ddof=1)) if rewards.size > 1 else math.nan
    if rewards.size > 1 and _equal(rewards.min(), rewards.max()):
        spread = 0.0
    text = f"{rewards.size:,} rewards from {rewards.min():g} to {rewards.max():g}" if rewards.size else ""
    yield maker.value("traces/reward_std", spread, rewards.size, reason="fewer than two rewards", text=text)
    yield _disagreement(maker)
    yield _groups(maker)


def _equal(low: Any, high: Any) -> Any:
    """But for rounding: 0.1 + 0.2 and 0.3 are one reward."""
    return high - low <= bound("trace_reward_rounding") * np.maximum(1.0, np.abs(high))


def _disagreement(maker: Maker) -> Measured:
    table = maker.table
    both = np.isfinite(table.reward) & (table.success >= 0)
    wrong = both & _against(table.reward, table.success == 1, both)
    examples = [
        Evidence(
            table.ids[i],
            -1,
            f"{'solved' if table.success[i] else 'not solved'} at a reward of {table.reward[i]:g}",
            table.sources[i],
        )
        for i in np.flatnonzero(wrong)[:5]
    ]
    reason = "needs episodes with both a reward and a success"
    return maker.share(
        "traces/disagree_frac", wrong * 1.0, both * 1.0, maker.clusters, reason, examples, "episodes"
    )


def _against(reward: Array, solved: Array, both: Array) -> Array:
    """(E,) is the reward not one of its outcome? Not solved, at the solved ones' median or more; solved, at
    zero or less where all rewards lie from 0 to 1, else at the failed ones' median or less: 0 and -1, or
    minus the steps, may be as good a scale."""
    good, bad = reward[both & solved], reward[both & ~solved]
    typical = float(np.median(good)) if good.size else math.inf
    if both.any() and reward[both].min() >= 0 and reward[both].max() <= 1:
        return np.where(solved, reward <= 0, reward >= max(typical, np.nextafter(0, 1)))
    low = float(np.median(bad)) if bad.size else -math.inf
    return np.where(solved, reward <= low, reward >= typical)


def _groups(maker: Maker) -> Measured:
    """Groups of two or more rewards: equal within. Those of one task, at several steps, are one cluster."""
    table = maker.table
    fine = np.isfinite(table.reward) & (table.group >= 0)
    where = table.group[fine]
    sizes = np.bincount(where, minlength=len(table.groups))
    groups = sizes >= 2
    low, high = np.full(sizes.size, np.inf), np.full(sizes.size, -np.inf)
    np.minimum.at(low, where, table.reward[fine])
    np.maximum.at(high, where, table.reward[fine])
    flat = groups & _equal(np.where(groups, low, 0.0), np.where(groups, high, 0.0))
    cluster = np.zeros(sizes.size, np.int64)
    cluster[where] = maker.clusters[fine]
    kind = "task" if table.groups == table.tasks else "group"
    by_prompt = table.by_prompt == (table.group >= 0).sum() > 0
    kind, name = ("prompt", "{}") if by_prompt else (kind, f"{kind} {{}}")
    examples = [
        Evidence("", -1, f"{sizes[i]} rewards of {low[i]:g}", name.format(table.groups[i]))
        for i in np.flatnonzero(flat)[:5]
    ]
    return maker.share(
        "aggregate/zero_std_frac", flat * 1.0, groups * 1.0, cluster, f"no {kind} has two rewards", examples,
        f"{kind}s with two rewards and more{', as the log names no task' if by_prompt else ''}",
    )  # fmt: skip

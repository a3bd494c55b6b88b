"""What of an episode says how well it went, for training data: a score each, and where it comes from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.traces.core.episode import Episode
from trimtab.traces.table.types import BOTH, must_be_finite

BY_SIDE = "the sides of the log's preferences: chosen rather than rejected"


def scores_of(
    episodes: Sequence[Episode], solved_at: float | None, ranked: bool, sides: bool = False
) -> tuple[list[float | None], str]:
    """A score each, and where it comes from. `sides`: of a set of preferences in which nothing else says which is better, chosen is 1 and
    rejected 0, which holds within a row only."""
    rewards = [e.reward if e.reward is not None and np.isfinite(e.reward) else None for e in episodes]
    known = [r for r in rewards if r is not None]
    if solved_at is not None:
        must_be_finite(solved_at)
        return [
            None if r is None else float(r >= solved_at) for r in rewards
        ], f"solved: reward of at least {solved_at:g}"
    binary = bool(known) and all(r in (0.0, 1.0) for r in known)
    if any(e.success is not None for e in episodes):
        if binary and any(
            e.success is None and r is not None for e, r in zip(episodes, rewards, strict=True)
        ):
            return [
                r if e.success is None else float(e.success) for e, r in zip(episodes, rewards, strict=True)
            ], f"solved: {BOTH}"
        return [
            None if e.success is None else float(e.success) for e in episodes
        ], "solved: the log's success"
    if binary:
        return list(rewards), "solved: reward of 1, as every reward is 0 or 1"
    if sides and not known and episodes and all("preference" in e.extra for e in episodes):
        return [float(e.extra["preference"] == "chosen") for e in episodes], BY_SIDE
    if ranked and known:
        return list(rewards), "ranked by reward"
    return [None] * len(episodes), "unknown: give --solved-at" if known else "unknown: no reward, no success"

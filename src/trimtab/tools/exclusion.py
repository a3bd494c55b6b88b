"""Which episodes may vote: one that the infrastructure broke gives no reward, no gradient, no baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from trimtab.errors import ToolError
from trimtab.traces.core.tool_call import ToolCall
from trimtab.typing import Array, Bool, Float64, Int64

MIN_VOTES = 2
"""Valid episodes of a group, below which it gives no signal: one alone is its own baseline."""


@dataclass(frozen=True)
class Exclusion:
    """Which failed calls break an episode.

    `kinds` adds failures that the policy cannot cause in your environment, as "timeout" where tools are plain
    look-ups. Where a policy can make a tool hang, leave it out: hanging would be a way round a low reward.
    """

    blames: frozenset[str] = frozenset({"infrastructure"})
    kinds: frozenset[str] = field(default_factory=frozenset)

    def breaks(self, call: ToolCall) -> bool:
        """Does this call break its episode?

        >>> Exclusion().breaks(ToolCall("search", error="503", blame="infrastructure"))
        True
        """
        return call.blame in self.blames or (bool(call.kind) and call.kind in self.kinds)

    def valid(self, calls: Iterable[ToolCall]) -> bool:
        """Is an episode with these calls valid?"""
        return not any(self.breaks(call) for call in calls)


def voting_rows(group: Array, valid: Array) -> Int64:
    """Return the rows that may vote: valid, and in a group of at least two valid rows.

    Args:
        group: Group of each row (B,), integers in any order.
        valid: May the row be used (B,)?

    Returns:
        Row numbers, ascending.

    Raises:
        ToolError: Unequal shapes.

    Example:
        >>> voting_rows(np.array([0, 0, 0, 1, 1]), np.array([True, False, True, True, False])).tolist()
        [0, 2]
    """
    group, usable = np.asarray(group), np.asarray(valid, bool)
    if group.shape != usable.shape or group.ndim != 1:
        raise ToolError(f"group {group.shape} and valid {usable.shape} must both be (B,)")
    _, index = np.unique(group, return_inverse=True)
    votes = np.bincount(index[usable], minlength=int(index.max(initial=-1)) + 1)
    return np.flatnonzero(usable & (votes[index] >= MIN_VOTES))


def excluded_advantages(
    rewards: Float64,
    group: Array,
    valid: Bool,
    advantages: Callable[[Float64, Array], Float64],
) -> Float64:
    """Return advantages as if the invalid episodes had never been sampled; theirs are zero.

    Args:
        rewards: Reward of each row (B,); those of invalid rows are not read.
        group: Group of each row (B,).
        valid: May the row be used (B,)?
        advantages: (rewards, group) of the voting rows -> their advantages. It sees these rows and no others,
            so the result equals that of a batch without the rest, to the last bit.

    Returns:
        Advantages (B,), in units of what `advantages` returns.

    Raises:
        ToolError: Unequal shapes.

    Example:
        >>> def centred(r, g): return r - r.mean()
        >>> excluded_advantages(np.array([1.0, 0.0, 0.0]), np.zeros(3, int), np.array([True, True, False]),
        ...                     centred).tolist()
        [0.5, -0.5, 0.0]

    Reference:
        NeMo RL issue 4061: masked failures that still vote in the baseline.
    """
    rewards = np.asarray(rewards, np.float64)
    rows = voting_rows(group, valid)
    if rewards.shape != np.asarray(group).shape:
        raise ToolError(f"rewards {rewards.shape} and group {np.asarray(group).shape} must both be (B,)")
    result = np.zeros(rewards.shape, np.float64)
    if rows.size:
        result[rows] = advantages(rewards[rows], np.asarray(group)[rows])
    return result

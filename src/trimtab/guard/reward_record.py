"""The reward of the last steps: has it fallen since before an incident began?"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import isfinite
from statistics import fmean
from typing import Any

from trimtab.catalog import bound

MAX_STEPS = 256
"""Steps that are remembered; an incident that began before them is not judged by its reward."""


class RewardRecord:
    """Mean rewards of steps, in their order.

    Example:
        >>> record = RewardRecord()
        >>> for step in range(40):
        ...     record.add(step, 0.8 if step < 30 else 0.3)
        >>> record.has_fallen(onset=28), record.has_fallen(onset=36)
        (True, False)
    """

    def __init__(self) -> None:
        self._steps: deque[tuple[int, float]] = deque(maxlen=MAX_STEPS)

    def add(self, step: int, reward: float | None) -> None:
        """Take the mean reward of a step; None or NaN where it has none."""
        if reward is not None and isfinite(reward):
            self._steps.append((step, float(reward)))

    def has_fallen(self, onset: int) -> bool:
        """Return whether the last steps earn far less than those before `onset`.

        The mean of the last `guard_reward_span` steps, all of them since the onset, lies under
        1 - `guard_reward_drop` of the mean of `guard_reward_before` steps before it. False where there are
        fewer, and where that mean is not above 0: then a share of it says nothing.
        """
        span, before_span = int(bound("guard_reward_span")), int(bound("guard_reward_before"))
        since = [reward for step, reward in self._steps if step >= onset][-span:]
        before = [reward for step, reward in self._steps if step < onset][-before_span:]
        if len(since) < span or len(before) < span:
            return False
        level = fmean(before)
        return level > 0 and fmean(since) < (1 - bound("guard_reward_drop")) * level

    def state(self) -> list[list[Any]]:
        """Return the record as JSON types."""
        return [list(pair) for pair in self._steps]

    def load(self, state: Iterable[list[Any]]) -> None:
        """Take over a record."""
        self._steps = deque(((int(step), float(reward)) for step, reward in state), maxlen=MAX_STEPS)

"""Rewards of a batch of episodes: the true one, the one that is trained on, and their parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reproduce.collapse_bank.batches import Array
from reproduce.collapse_bank.regimes import Regime
from reproduce.collapse_bank.sampling import FailingToolbox
from trimtab.lab.agent_episode import Episode
from trimtab.lab.tasks import correct_reward, format_reward

__all__ = ["advantages", "score"]

CORRECT, FORMAT = 0.9, 0.1
LONG_ANSWER = 20
"""Characters of an answer that earns the whole reward for length (default, not calibrated)."""
SPREAD_FLOOR = 1e-4


def score(episodes: Sequence[Episode], toolbox: FailingToolbox, regime: Regime) -> dict[str, Array]:
    """Return `reward`, `true_reward`, `correct`, `format` and `long` (what a proxy pays for length), each (B,).

    The proxy pays `regime.proxy` for the length of the final answer, and counts it as correct where it contains the true one.
    """
    finals, answers = [e.final for e in episodes], [e.task.answer for e in episodes]
    correct = np.array(correct_reward(final=finals, answer=answers))
    shape = np.array(
        format_reward(
            stop_reason=[e.stop_reason for e in episodes],
            num_calls=[len(e.called) for e in episodes],
            want_calls=[len(e.task.calls) for e in episodes],
        )
    )
    failed = np.array(
        [any(toolbox.fails(e.step, e.row, turn) for turn in range(1, len(e.called) + 1)) for e in episodes]
    )
    true = np.where(failed, 0.0, CORRECT * correct + FORMAT * shape)
    reward, length = true, np.zeros(true.size)
    if regime.proxy:
        contained = np.array([float(a in f) for f, a in zip(finals, answers, strict=True)])
        length = np.array([min(len(f) / LONG_ANSWER, 1.0) for f in finals])
        reward = (1 - regime.proxy) * (CORRECT * contained + FORMAT * shape) + regime.proxy * length
    return {"reward": reward, "true_reward": true, "correct": correct, "format": shape, "long": length}


def advantages(reward: Array, group_size: int) -> Array:
    """Return rewards minus the mean of their group over its standard deviation, (B,), groups in order."""
    groups = reward.reshape(-1, group_size)
    spread = groups.std(axis=1, ddof=1, keepdims=True)
    return np.asarray(((groups - groups.mean(axis=1, keepdims=True)) / (spread + SPREAD_FLOOR)).ravel())

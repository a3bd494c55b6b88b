"""SkyRL's TrainingInputBatch as packed columns, and what its rows were before it: rewards, prompts, ages.

B rows, R response tokens, right-aligned: padding is in front. SkyRL is not imported; a batch is a mapping of
tensors with a dictionary `metadata`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.capture.arrays import to_array
from trimtab.typing import Array, Float64, Int64

_COLUMNS = {
    "rollout_logprobs": "rollout_logprobs",
    "logprobs": "action_log_probs",
    "ref_logprobs": "base_action_log_probs",
    "advantages": "advantages",
}
ABSENT = {
    "rollout_logprobs": "the generator returned none: set generator.sampling_params.logprobs",
    "old_logprobs": "SkyRL skipped the policy's forward pass: this loss needs no old log-probabilities",
    "logprobs": "SkyRL skipped the policy's forward pass: this loss needs no old log-probabilities",
    "ref_logprobs": "no reference model: set trainer.algorithm.use_kl_loss or use_kl_in_reward",
    "entropy": "the workers keep their entropies; their mean is in the metrics",
    "policy_version": "a synchronous trainer samples with the weights it trains",
}
"""Column -> why it is missing where the batch has none."""


def batch_columns(batch: Any) -> dict[str, Array]:
    """Return packed columns of a batch as it goes into the update, without the rows that pad it.

    A token is a tool's where the response has one that is not trained, after the first that is; the row of a
    filtered group, with nothing trained, has none.

    >>> ones = np.ones((1, 3))
    >>> batch = {"response_mask": ones, "loss_mask": np.array([[1, 0, 1]]), "action_log_probs": -ones,
    ...          "sequences": np.array([[9, 5, 6, 7]])}
    >>> columns = batch_columns(batch)
    >>> columns["token_ids"].tolist(), columns["loss_mask"].tolist(), columns["lengths"].tolist()
    ([5, 6, 7], [True, False, True], [3])
    """
    metadata: Mapping[str, Any] = getattr(batch, "metadata", None) or {}
    response = to_array("response_mask", batch["response_mask"])
    rows = response.shape[0] - int(metadata.get("pad_size", 0))
    keep = response[:rows] > 0
    width = keep.shape[1]
    columns = {
        "lengths": keep.sum(axis=1).astype(np.int64),
        "loss_mask": (to_array("loss_mask", batch["loss_mask"])[:rows] > 0)[keep],
        "token_ids": to_array("sequences", batch["sequences"])[:rows, -width:][keep],
    }
    for name, key in _COLUMNS.items():
        if batch.get(key) is not None:
            columns[name] = to_array(key, batch[key])[:rows][keep]
    return columns


@dataclass(frozen=True)
class Rollouts:
    """What is known of B rows when the batch is made; SkyRL drops it before the update."""

    reward: Float64
    group: Int64
    episode: Int64  # of a trajectory, the same for all of its steps
    stop_reason: Sequence[str] | None
    tools: Sequence[Sequence[str]] | None

    def arguments(self) -> dict[str, Any]:
        """Return arguments of `token_batch`."""
        numbers = {"reward": self.reward, "group": self.group, "episode_id": self.episode}
        texts = {"stop_reason": self.stop_reason, "tools": self.tools}
        return numbers | {name: value for name, value in texts.items() if value is not None}


def rollouts_of(output: Mapping[str, Any], uids: Sequence[str], first: int) -> Rollouts:
    """Return what a GeneratorOutput says of its rows.

    Args:
        output: With `rewards` of the tokens or of the rows, `stop_reasons`, and for step-wise training
            `is_last_step`: a trajectory is then several rows, and its reward that of its last one.
        uids: (B,) the prompt of each row.
        first: number of the first trajectory, so that numbers do not come again.

    Returns:
        Rewards, groups and trajectories; `first` + the number of trajectories is the next `first`.

    Example:
        >>> own = rollouts_of({"rewards": [[0.0, 1.0], [0.5]], "stop_reasons": None}, ["a", "b"], 10)
        >>> own.reward.tolist(), own.group.tolist(), own.episode.tolist()
        ([1.0, 0.5], [0, 1], [10, 11])
    """
    sums = np.array([float(np.sum(reward)) for reward in output["rewards"]], np.float64)
    last = np.asarray(output.get("is_last_step") or np.ones(sums.size, bool), bool)
    trajectory = np.cumsum(last) - last
    ends = np.flatnonzero(last)
    reward = sums[ends[np.minimum(trajectory, ends.size - 1)]] if ends.size else sums
    numbers = {uid: i for i, uid in enumerate(dict.fromkeys(uids))}
    group = np.array([numbers[uid] for uid in uids], np.int64)
    stops = output.get("stop_reasons")
    return Rollouts(
        reward, group, first + trajectory, None if stops is None else [str(s) for s in stops], None
    )

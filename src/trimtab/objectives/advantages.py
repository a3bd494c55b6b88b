"""Rewards of a group to advantages: mean-centred, divided by the standard deviation or not, or leave-one-out.

The mistake it prevents: "group-normalised" read as "divided by std". MiniRL's formula and Dr. GRPO only
centre.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from trimtab.errors import ObjectiveError
from trimtab.objectives.tensor_checks import need_shape


def group_advantages(
    rewards: Tensor,
    group: Tensor,
    *,
    baseline: Literal["mean", "leave_one_out"] = "mean",
    std: bool = False,
    eps: float = 1e-4,
) -> Tensor:
    """Return the advantage of each response against its group.

    Args:
        rewards: Rewards (B,), floats. NaN or inf in one makes its whole group NaN.
        group: Group of each response (B,), integers in any order; rows of a group must all be on this rank.
        baseline: "mean": R - mean(R). "leave_one_out": R - mean of the others, which is n/(n-1) times that.
        std: Divide by (unbiased std + eps) of the group.
        eps: Added to the standard deviation, in units of the reward; TRL's.

    Returns:
        Advantages (B,), detached, in units of the reward unless `std`.

    Raises:
        ObjectiveError: A shape or type is wrong, or a group of one with `std` or `leave_one_out`.

    Example:
        >>> group_advantages(torch.tensor([1.0, 0.0, 5.0, 5.0]), torch.tensor([7, 7, 3, 3])).tolist()
        [0.5, -0.5, 0.0, 0.0]

    Reference:
        Mean: MiniRL, arXiv 2512.01374 eq. 7, and Dr. GRPO, 2503.20783. Std: GRPO, 2402.03300. RLOO:
        2402.14740.
    """
    if rewards.dim() != 1 or not rewards.is_floating_point():
        raise ObjectiveError(f"rewards must be floats (B,), got {rewards.dtype} {tuple(rewards.shape)}")
    need_shape("group", group, tuple(rewards.shape))
    if not rewards.numel():
        return rewards.detach().clone()
    reward = rewards.detach()
    _, row = torch.unique(group, return_inverse=True)
    size = torch.bincount(row)
    if (std or baseline == "leave_one_out") and int(size.min()) < 2:
        raise ObjectiveError(
            "a group of one response has no std and no others: sample more, or use baseline='mean'"
        )
    n = size[row].to(reward.dtype)
    centred = reward - _group_sum(reward, row, size) / n
    advantages = centred * n / (n - 1) if baseline == "leave_one_out" else centred
    if std:
        variance = _group_sum(centred.square(), row, size) / (n - 1)
        advantages = advantages / (variance.sqrt() + eps)
    return advantages


def _group_sum(values: Tensor, row: Tensor, size: Tensor) -> Tensor:
    sums = torch.zeros(size.numel(), dtype=values.dtype, device=values.device).index_add_(0, row, values)
    return sums[row]

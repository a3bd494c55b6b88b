"""Variance control for stale rollouts: a learning rate scaled by ESS, and the off-policy baseline.

VCPO, arXiv 2602.17616 (code mit-han-lab/vcpo). The mistake it prevents: an ESS of weights already truncated,
which looks healthy exactly when the raw weights have collapsed. B rows; weights are those of whole rows,
exp(sum of log pi_theta/mu).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from trimtab.errors import ObjectiveError
from trimtab.objectives.tensor_checks import as_mask, log_ratio, need_shape


def sequence_log_weights(logprobs: Tensor, rollout_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """Return the raw log weight of each row, the sum of log pi_theta/mu over its loss tokens.

    Args:
        logprobs: log pi_theta (B, T), nats.
        rollout_logprobs: log mu (B, T), nats.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.

    Returns:
        Log weights (B,), float64, detached; 0 for a row without loss tokens.

    Example:
        >>> now, mu = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-2.0, -1.5]])
        >>> sequence_log_weights(now, mu, torch.ones(1, 2)).tolist()
        [1.5]

    Reference:
        VCPO, arXiv 2602.17616.
    """
    mask = as_mask(loss_mask)
    return log_ratio(logprobs.detach().double(), rollout_logprobs.detach().double(), mask).sum(dim=1)


@dataclass(frozen=True)
class WeightSums:
    """Sums of row weights in logs, so that no weight overflows; `a + b` joins micro-batches and ranks."""

    log_sum: float
    """log sum w."""
    log_square_sum: float
    """log sum w^2."""
    rows: int

    @classmethod
    def of(cls, log_weights: Tensor) -> WeightSums:
        """Return the sums of log weights (B,); of none the neutral element (-inf, -inf, 0)."""
        raw = log_weights.detach().double()
        if raw.dim() != 1:
            raise ObjectiveError(f"log_weights have shape {tuple(raw.shape)}, expected (B,): one a row")
        return cls(float(raw.logsumexp(0)), float((2 * raw).logsumexp(0)), raw.numel())

    def __add__(self, other: WeightSums) -> WeightSums:
        return WeightSums(
            _log_add(self.log_sum, other.log_sum),
            _log_add(self.log_square_sum, other.log_square_sum),
            self.rows + other.rows,
        )

    @property
    def ess_share(self) -> float:
        """(sum w)^2 / (B sum w^2), in [1/B, 1]; NaN without rows or weight, or with a weight not finite.

        >>> WeightSums.of(torch.tensor([0.0, 0.0, -1e9, -1e9])).ess_share
        0.5
        """
        if not self.rows or not all(map(math.isfinite, (self.log_sum, self.log_square_sum))):
            return math.nan
        return math.exp(2 * self.log_sum - self.log_square_sum) / self.rows


def learning_rate_scale(
    ess_share: float, *, base: float = 1.0, rule: Literal["sqrt", "linear"] = "sqrt", floor: float = 0.0
) -> float:
    """Return the factor on the learning rate of this step: min(1, ess/base), or its square root.

    The estimator's variance grows like 1/ESS, as if the batch had ESS rows. The square root follows the
    batch-size rule of Adam.

    Args:
        ess_share: Effective sample size over the number of rows, in [0, 1]; NaN gives NaN.
        base: That of a healthy on-policy step, in (0, 1]; the authors use 1.
        rule: "sqrt" for Adam, "linear" for SGD.
        floor: Smallest factor, in [0, 1].

    Returns:
        Factor in [floor, 1].

    Raises:
        ObjectiveError: An argument is out of range.

    Example:
        >>> learning_rate_scale(0.25), learning_rate_scale(0.25, rule="linear")
        (0.5, 0.25)

    Reference:
        VCPO, arXiv 2602.17616, ESS-guided step sizes.
    """
    if not (0 < base <= 1 and 0 <= floor <= 1) or rule not in ("sqrt", "linear"):
        raise ObjectiveError(
            f"need 0 < base <= 1, 0 <= floor <= 1, rule sqrt or linear; got {base}, {floor}, {rule!r}"
        )
    if math.isnan(ess_share):
        return math.nan
    if not 0 <= ess_share <= 1 + 1e-9:
        raise ObjectiveError(f"ess_share lies in [0, 1], got {ess_share}")
    scale = min(1.0, ess_share / base)
    return max(floor, math.sqrt(scale) if rule == "sqrt" else scale)


def off_policy_baseline(
    rewards: Tensor, log_weights: Tensor, square_norms: Tensor, group: Tensor | None = None
) -> Tensor:
    """Return the baseline of each row that minimises the variance of the weighted policy gradient.

    b = sum w^2 |g|^2 R / sum w^2 |g|^2 over the row's group, with g = grad log pi_theta(row). It minimises E
    |w g (R - b)|^2: set the derivative in b to zero. With w = 1 and equal norms it is the group mean. The row
    itself is in its baseline, as in the authors' code: a bias of order 1/group. Subtract b from the reward.

    Args:
        rewards: R (B,).
        log_weights: log w (B,), raw, nats (`sequence_log_weights`); a common factor cancels.
        square_norms: |g|^2 (B,), 0 or more. A row of 0 has no part in the baseline, whatever its weight.
        group: Group of each row (B,), integers; None: all rows are one group.

    Returns:
        b (B,); NaN where no row of the group has a gradient.

    Raises:
        ObjectiveError: A shape is wrong, or a norm is negative.

    Example:
        >>> rewards, norms = torch.tensor([1.0, 0.0]), torch.tensor([3.0, 1.0])
        >>> off_policy_baseline(rewards, torch.zeros(2), norms).tolist()
        [0.75, 0.75]

    Reference:
        VCPO, arXiv 2602.17616, off-policy optimal baseline (OPOB).
    """
    shape = tuple(rewards.shape)
    if len(shape) != 1:
        raise ObjectiveError(f"rewards have shape {shape}, expected (B,)")
    logs = need_shape("log_weights", log_weights, shape).detach().double()
    norms = need_shape("square_norms", square_norms, shape).detach().double()
    if bool((norms < 0).any()):
        raise ObjectiveError("square_norms hold a negative number: pass squared gradient norms")
    if group is None:
        group = torch.zeros(shape, dtype=torch.long, device=rewards.device)
    need_shape("group", group, shape)
    if not rewards.numel():
        return rewards.detach().clone()
    _, row = torch.unique(group, return_inverse=True)
    number = int(row.max()) + 1
    counts = norms != 0
    logs = torch.where(counts, logs, -math.inf)
    zero = torch.zeros(number, dtype=logs.dtype, device=logs.device)
    largest = (zero - math.inf).scatter_reduce(0, row, logs, "amax")
    part = torch.exp(2 * (logs - largest[row])) * norms  # the largest weight of the group is 1: no overflow
    part = torch.where(counts, part, 0.0)
    top = zero.index_add(0, row, part * rewards.detach().double())
    return (top / zero.index_add(0, row, part))[row].to(rewards.dtype)


def _log_add(one: float, two: float) -> float:
    if math.isnan(one) or math.isnan(two):
        return math.nan
    high, low = max(one, two), min(one, two)
    return high if math.isinf(high) else high + math.log1p(math.exp(low - high))

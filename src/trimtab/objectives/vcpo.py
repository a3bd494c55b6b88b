"""Variance control for stale rollouts: a learning rate scaled by ESS, and the minimum-variance baseline off policy.

VCPO, arXiv 2602.17616 (code mit-han-lab/vcpo). The mistake it prevents: an ESS of weights already truncated, which looks
healthy exactly when the raw weights have collapsed. B rows; weights are those of whole rows, exp(sum of log pi_theta/mu).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from trimtab.errors import ObjectiveError
from trimtab.objectives.tensor_checks import as_mask, log_ratio, need_shape


def sequence_log_weights(
    logprobs: torch.Tensor, rollout_logprobs: torch.Tensor, loss_mask: torch.Tensor
) -> torch.Tensor:
    """Raw log weight (B,) of each row, float64, detached: the sum over its loss tokens; 0 for a row without any.

    >>> sequence_log_weights(torch.tensor([[-1.0, -1.0]]), torch.tensor([[-2.0, -1.5]]), torch.ones(1, 2)).tolist()
    [1.5]
    """
    mask = as_mask(loss_mask)
    return log_ratio(logprobs.detach().double(), rollout_logprobs.detach().double(), mask).sum(dim=1)


@dataclass(frozen=True)
class WeightSums:
    """log sum w, log sum w^2 and the number of rows: `a + b` joins micro-batches and ranks. Logs, so no weight overflows."""

    log_sum: float
    log_square_sum: float
    rows: int

    @classmethod
    def of(cls, log_weights: torch.Tensor) -> WeightSums:
        """Sums of (B,) log weights; none gives the neutral element (-inf, -inf, 0)."""
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
        """(sum w)^2 / (B sum w^2), in [1/B, 1]; NaN without rows, without weight, or with a weight that is no number.

        >>> WeightSums.of(torch.tensor([0.0, 0.0, -1e9, -1e9])).ess_share
        0.5
        """
        if not self.rows or not all(map(math.isfinite, (self.log_sum, self.log_square_sum))):
            return math.nan
        return math.exp(2 * self.log_sum - self.log_square_sum) / self.rows


def learning_rate_scale(
    ess_share: float, *, base: float = 1.0, rule: Literal["sqrt", "linear"] = "sqrt", floor: float = 0.0
) -> float:
    """Factor in [floor, 1] on the learning rate of this step: min(1, ess/base), its root for Adam-like optimizers.

    `base`: ESS share of a healthy on-policy step (the authors' 1.0). The estimator's variance grows like 1/ESS, as if the batch had
    ESS rows; the square root follows the batch-size rule of Adam. A NaN share gives NaN: what to do then is the caller's.

    >>> learning_rate_scale(0.25), learning_rate_scale(0.25, rule="linear"), learning_rate_scale(1.0, base=0.5)
    (0.5, 0.25, 1.0)
    """
    if not (0 < base <= 1 and 0 <= floor <= 1) or rule not in ("sqrt", "linear"):
        raise ObjectiveError(
            f"need 0 < base <= 1, 0 <= floor <= 1, rule sqrt or linear; got {base}, {floor}, {rule!r}"
        )
    if math.isnan(ess_share):
        return math.nan
    if not 0 <= ess_share <= 1 + 1e-9:
        raise ObjectiveError(f"an ESS share lies in [0, 1], got {ess_share}")
    scale = min(1.0, ess_share / base)
    return max(floor, math.sqrt(scale) if rule == "sqrt" else scale)


def off_policy_baseline(
    rewards: torch.Tensor,
    log_weights: torch.Tensor,
    square_norms: torch.Tensor,
    group: torch.Tensor | None = None,
) -> torch.Tensor:
    """Baseline b (B,) of each row that minimises the variance of the weighted policy gradient; subtract it from the reward.

    b = sum w^2 |g|^2 R / sum w^2 |g|^2 with g = grad log pi_theta(row), |g|^2 in `square_norms` (B,), over the row's `group` (B,)
    (None: all rows) (2602.17616, OPOB). It minimises E |w g (R - b)|^2: set the derivative in b to zero. With w = 1 and
    equal norms it is the group mean. Weights raw, in logs; a common factor cancels. The row itself is in its baseline, as in the
    authors' code: a bias of order 1/group. A row without gradient has no part in it, whatever its weight; NaN where no row has one.

    >>> b = off_policy_baseline(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 0.0]), torch.tensor([3.0, 1.0]))
    >>> b.tolist()
    [0.75, 0.75]
    """
    shape = tuple(rewards.shape)
    if len(shape) != 1:
        raise ObjectiveError(f"rewards have shape {shape}, expected (B,)")
    logs = need_shape("log_weights", log_weights, shape).detach().double()
    norms = need_shape("square_norms", square_norms, shape).detach().double()
    if bool((norms < 0).any()):
        raise ObjectiveError("square_norms hold a negative number: pass squared gradient norms")
    same = (
        torch.zeros(shape, dtype=torch.long, device=rewards.device)
        if group is None
        else need_shape("group", group, shape)
    )
    if not rewards.numel():
        return rewards.detach().clone()
    _, row = torch.unique(same, return_inverse=True)
    number = int(row.max()) + 1
    counts = norms != 0
    logs = torch.where(counts, logs, -math.inf)
    most = torch.full((number,), -math.inf, dtype=logs.dtype, device=logs.device).scatter_reduce(
        0, row, logs, "amax"
    )
    share = torch.exp(2 * (logs - most[row])) * norms  # the largest weight of the group is 1: no overflow
    share = torch.where(counts, share, 0.0)
    zero = torch.zeros(number, dtype=logs.dtype, device=logs.device)
    top = zero.index_add(0, row, share * rewards.detach().double())
    return (top / zero.index_add(0, row, share))[row].to(rewards.dtype)


def _log_add(one: float, two: float) -> float:
    if math.isnan(one) or math.isnan(two):
        return math.nan
    high, low = max(one, two), min(one, two)
    return high if math.isinf(high) else high + math.log1p(math.exp(low - high))

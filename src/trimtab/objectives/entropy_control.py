"""Hold the policy's entropy without touching the clip range: choose the data, or add a bonus with a target.

The mistake it prevents: raising eps_high to cure a falling entropy, which loosens the trust region of every
token.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from trimtab.errors import ObjectiveError
from trimtab.objectives.corrections import Correction, LossTokens, drop_marked
from trimtab.objectives.reduction import Loss, Reduction, finish
from trimtab.objectives.tensor_checks import Number, as_mask, masked, need_shape, per_token_advantages
from trimtab.objectives.token_slices import Slices


def select_high_entropy(
    entropy: Tensor, loss_mask: Tensor, *, fraction: float, slices: Slices | None = None
) -> Correction:
    """Keep the `fraction` of loss tokens with the highest entropy.

    The threshold is a quantile of these tokens: pass the whole batch, not a micro-batch. Ties at it all stay.
    A NaN entropy stays, with weight NaN.

    Args:
        entropy: Entropy of the policy at each token (B, T), nats.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        fraction: Fraction of the loss tokens to keep, in [0, 1]; the paper keeps 0.2.
        slices: Slices to count by.

    Returns:
        A pure filter, with the mark `low_entropy`.

    Raises:
        ObjectiveError: A shape is wrong, or `fraction` is outside [0, 1].

    Example:
        >>> entropy = torch.tensor([[0.1, 2.0, 0.5, 1.0]])
        >>> select_high_entropy(entropy, torch.ones(1, 4), fraction=0.5).keep.tolist()
        [[False, True, False, True]]

    Reference:
        Wang et al. 2025, "Beyond the 80/20 rule", arXiv 2506.01939.
    """
    mask = as_mask(loss_mask)
    values = need_shape("entropy", entropy, tuple(mask.shape)).detach()
    own = values[mask]
    mark = mask & (values < _largest(own, math.ceil(_valid(fraction) * own.numel())))
    return drop_marked("low_entropy", mark, values, LossTokens(values, mask, slices))


def select_by_covariance(
    logprobs: Tensor, advantages: Tensor, loss_mask: Tensor, *, fraction: float, slices: Slices | None = None
) -> Correction:
    """Drop the `fraction` of loss tokens that lower the entropy most.

    A step changes entropy by about -lr Cov(log pi, A). A token's part is (log pi - mean)(A - mean) over the
    loss tokens; the largest parts push the entropy down. Pass the whole batch.

    Args:
        logprobs: log pi (B, T), nats.
        advantages: A, (B,) or (B, T).
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        fraction: Fraction of the loss tokens to drop, in [0, 1]; the paper drops 2e-4 to 2e-3.
        slices: Slices to count by.

    Returns:
        A pure filter, with the mark `covariance`.

    Raises:
        ObjectiveError: A shape is wrong, or `fraction` is outside [0, 1].

    Example:
        >>> logs = torch.tensor([[-0.1, -3.0], [-0.2, -0.3]])
        >>> advantages = torch.tensor([1.0, -1.0])
        >>> select_by_covariance(logs, advantages, torch.ones(2, 2), fraction=0.25).keep.tolist()
        [[False, True], [True, True]]

    Reference:
        Cui et al. 2025, arXiv 2505.22617 section 4: the ranking of KL-Cov, and the dropping of Clip-Cov
        without its randomness.
    """
    mask = as_mask(loss_mask)
    logs = masked(need_shape("logprobs", logprobs, tuple(mask.shape)).detach(), mask)
    advantage = per_token_advantages(advantages, mask)
    count = mask.sum().clamp(min=1)
    part = (logs - logs.sum() / count) * (advantage - advantage.sum() / count)
    own = part[mask]
    mark = mask & (part >= _largest(own, math.floor(_valid(fraction) * own.numel())))
    return drop_marked("covariance", mark, part, LossTokens(part, mask, slices))


def entropy_bonus(
    entropy: Tensor,
    loss_mask: Tensor,
    *,
    coefficient: Number,
    denominator: Number,
    lengths: Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """Return -sum coefficient H / denominator, to add to a policy loss with the same denominator.

    Args:
        entropy: H (B, T), nats, with gradient.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        coefficient: Loss per nat, a number or (B, T).
        denominator: Divisor of the sum, see `aggregate`.
        lengths: Tokens of each row (B,), for means of rows.
        slices: Slices to count by.

    Returns:
        The bonus as a loss, 0 or less.

    Example:
        >>> entropy_bonus(torch.tensor([[0.5, 1.5]]), torch.ones(1, 2), coefficient=0.01, denominator=2).value
        tensor(-0.0100)

    Reference:
        Mnih et al. 2016, A3C, arXiv 1602.01783, section 4.
    """
    mask = as_mask(loss_mask)
    bonus = masked(need_shape("entropy", entropy, tuple(mask.shape)), mask) * coefficient
    return finish(-bonus, mask, Reduction(denominator, lengths, slices=slices))


class EntropyTarget:
    """Controller of the bonus coefficient that brings the mean entropy (nats a token) to a target from below.

    After each step call `update(entropy)`. The coefficient grows by `rate` while the entropy is under
    `target` and falls by `rate` while above, within [0, highest]. `coefficient` is 0 while the entropy is
    above the target: a healthy policy gets no bonus. Use one controller a slice. A NaN entropy changes
    nothing and is counted in `skipped`.

    Args:
        target: Entropy to hold, nats a token, 0 or more.
        rate: Change of the coefficient a step, above 0.
        highest: Largest coefficient, loss per nat.
        start: First coefficient.

    Raises:
        ObjectiveError: A setting is out of range.

    Example:
        >>> control = EntropyTarget(target=0.5, rate=0.01, highest=0.02)
        >>> [round(control.update(h), 2) for h in (0.6, 0.4, 0.4, 0.4, 0.6, 0.4)]
        [0.0, 0.01, 0.02, 0.02, 0.0, 0.02]

    Reference:
        He et al. 2025, Skywork-OR1, arXiv 2505.22312, adaptive entropy control.
    """

    def __init__(self, *, target: float, rate: float, highest: float, start: float = 0.0) -> None:
        if not (target >= 0 and 0 < rate < math.inf and 0 <= start <= highest < math.inf):
            raise ObjectiveError(
                f"need target >= 0, rate > 0, 0 <= start <= highest; got {target}, {rate}, {start}, {highest}"
            )
        self.target, self.rate, self.highest = target, rate, highest
        self._level, self._below, self.skipped = start, start > 0, 0

    @property
    def coefficient(self) -> float:
        return self._level if self._below else 0.0

    def update(self, entropy: float) -> float:
        """Take the mean entropy of a step over all ranks; return the coefficient of the next one."""
        if math.isnan(entropy):
            self.skipped += 1
            return self.coefficient
        self._below = entropy < self.target
        self._level = min(self.highest, max(0.0, self._level + (self.rate if self._below else -self.rate)))
        return self.coefficient

    def state_dict(self) -> dict[str, Any]:
        return {"level": self._level, "below": self._below, "skipped": self.skipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._level, self._below = float(state["level"]), bool(state["below"])
        self.skipped = int(state["skipped"])


def _largest(values: Tensor, number: int) -> Tensor:
    """Return the `number`-th largest of the values (n,) without NaN; +inf for 0, -inf if there are fewer."""
    known = values[~torch.isnan(values)]
    if number <= 0 or number > known.numel():
        return values.new_tensor(math.inf if number <= 0 else -math.inf)
    return known.topk(number).values[-1]


def _valid(fraction: float) -> float:
    if not 0 <= fraction <= 1:
        raise ObjectiveError(f"fraction must lie in [0, 1], got {fraction}")
    return fraction

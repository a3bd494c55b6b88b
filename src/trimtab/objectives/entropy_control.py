"""Hold the policy's entropy without touching the clip range: choose the data, or add a bonus with a target.

The mistake it prevents: raising eps_high to cure a falling entropy, which loosens the trust region of every token.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from trimtab.errors import ObjectiveError
from trimtab.objectives.corrections import Correction, correction
from trimtab.objectives.reduction import Loss, finish
from trimtab.objectives.tensor_checks import Knob, as_mask, keep_nan, masked, need_shape, per_token_advantages
from trimtab.objectives.token_slices import Slices


def select_high_entropy(
    entropy: torch.Tensor, loss_mask: torch.Tensor, *, fraction: float, slices: Slices | None = None
) -> Correction:
    """Keep the `fraction` of loss tokens with the highest entropy (mark `low_entropy`; arXiv 2506.01939 keeps 0.2).

    The threshold is a quantile of these tokens: pass the whole batch, not a micro-batch. Ties at it are all kept. A NaN
    entropy is kept with weight NaN.
    """
    mask = as_mask(loss_mask)
    values = need_shape("entropy", entropy, tuple(mask.shape)).detach()
    own = values[mask]
    hit = mask & (values < _largest(own, math.ceil(_share(fraction) * own.numel())))
    weights = keep_nan(torch.ones_like(values), values)
    return correction(weights, mask & ~hit, values, mask, {"low_entropy": hit}, slices, weighs=False)


def select_by_covariance(
    logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    fraction: float,
    slices: Slices | None = None,
) -> Correction:
    """Drop the `fraction` of loss tokens that lower the entropy most (mark `covariance`).

    A step changes entropy by about -lr Cov(log pi, A); a token's part is (log pi - mean)(A - mean) over the loss
    tokens, and the largest parts push it down (arXiv 2505.22617 section 4: the ranking of its KL-Cov, and the dropping, without
    the randomness, of its Clip-Cov; fractions of 2e-4 to 2e-3 there). Pass the whole batch.
    """
    mask = as_mask(loss_mask)
    logs = masked(need_shape("logprobs", logprobs, tuple(mask.shape)).detach(), mask)
    advantage = per_token_advantages(advantages, mask)
    count = mask.sum().clamp(min=1)
    part = (logs - logs.sum() / count) * (advantage - advantage.sum() / count)
    own = part[mask]
    hit = mask & (part >= _largest(own, math.floor(_share(fraction) * own.numel())))
    weights = keep_nan(torch.ones_like(part), part)
    return correction(weights, mask & ~hit, part, mask, {"covariance": hit}, slices, weighs=False)


def entropy_bonus(
    entropy: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    coefficient: Knob,
    denominator: Knob,
    lengths: torch.Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """-sum coefficient H / denominator, to add to a policy loss with the same denominator; H (B, T) in nats, with gradient."""
    mask = as_mask(loss_mask)
    bonus = masked(need_shape("entropy", entropy, tuple(mask.shape)), mask) * coefficient
    return finish(-bonus, mask, denominator=denominator, lengths=lengths, slices=slices)


class EntropyTarget:
    """Coefficient of the bonus that brings the mean entropy (nats a token) to a target from below.

    After each step `update(entropy)`: the coefficient grows by `rate` while the entropy is under `target`, falls by
    `rate` while above, within [0, highest]; `coefficient` is 0 while the entropy is above the target, so a healthy
    policy gets no bonus (the adaptive control of Skywork-OR1, arXiv 2505.22312). `target` may be declared a slice: one controller each.
    A NaN entropy changes nothing and is counted in `skipped`.

    >>> control = EntropyTarget(target=0.5, rate=0.01, highest=0.02)
    >>> [round(control.update(h), 2) for h in (0.6, 0.4, 0.4, 0.4, 0.6, 0.4)]
    [0.0, 0.01, 0.02, 0.02, 0.0, 0.02]
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
        """Take the mean entropy of a step over all ranks; returns the coefficient of the next one."""
        if math.isnan(entropy):
            self.skipped += 1
            return self.coefficient
        self._below = entropy < self.target
        self._level = min(self.highest, max(0.0, self._level + (self.rate if self._below else -self.rate)))
        return self.coefficient

    def state_dict(self) -> dict[str, Any]:
        return {"level": self._level, "below": self._below, "skipped": self.skipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._level, self._below, self.skipped = (
            float(state["level"]),
            bool(state["below"]),
            int(state["skipped"]),
        )


def _largest(values: torch.Tensor, number: int) -> torch.Tensor:
    """The `number`-th largest of the values (n,) that are numbers; +inf for number 0, -inf where there are fewer."""
    known = values[~torch.isnan(values)]
    if number <= 0 or number > known.numel():
        return values.new_tensor(math.inf if number <= 0 else -math.inf)
    return known.topk(number).values[-1]


def _share(fraction: float) -> float:
    if not 0 <= fraction <= 1:
        raise ObjectiveError(f"fraction must lie in [0, 1], got {fraction}")
    return fraction

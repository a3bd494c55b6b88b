"""Importance weights against the mismatch pi_old/mu: truncated (TIS) or masked (MIS), by token or row.

The mistakes it prevents: statistics taken after the clamp, and a filter that counts nothing. Everything is
decided on the raw log-ratio; what was clipped or dropped is counted, in tokens, by slice. Weights are
detached.

A token whose ratio is NaN is neither inside nor outside a range. It stays, its weight is NaN and so is the
loss, unless `reject_nonfinite` drops (and counts) it. +inf is outside every range and is truncated to the
cap; -inf has weight 0. All of them, where they stand in the raw log-ratio, are counted as `nonfinite`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from trimtab.errors import ObjectiveError
from trimtab.objectives.tensor_checks import Number, as_mask, at_most, keep_nan, masked, need_shape, positive
from trimtab.objectives.token_slices import Counts, Slices, count_marks

Level = Literal["token", "sequence", "geometric"]
"""The token's ratio, the row's product, exp(sum of logs), or its geometric mean, exp(mean of logs)."""


@dataclass(frozen=True)
class Correction:
    """Weights and filter of the loss tokens: hand `weights` and `keep` to a loss."""

    weights: Tensor
    """(B, T), detached, 0 outside `keep`."""
    keep: Tensor
    """Boolean (B, T), within the loss mask."""
    marks: dict[str, Tensor]
    """What was done -> boolean (B, T)."""
    counts: Counts
    """What was done -> slice -> tokens; `nonfinite` counts raw log-ratios."""
    weighs: bool
    """False for a pure filter, whose weights are 1."""


class LossTokens(NamedTuple):
    """Raw log-ratios (B, T), the loss mask and the slices that a correction is counted over."""

    log_mismatch: Tensor
    mask: Tensor
    slices: Slices | None


def tis(
    log_mismatch: Tensor,
    loss_mask: Tensor,
    *,
    cap: Number,
    level: Level = "token",
    slices: Slices | None = None,
) -> Correction:
    """Return truncated importance sampling: weight min(rho, cap), every token stays.

    Args:
        log_mismatch: log(pi_old/mu) (B, T) = old_logprobs - rollout_logprobs, raw, nats.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        cap: Largest weight, a ratio above 0.
        level: Whose ratio. "sequence" gives a row one weight, exp of the **sum**: unbiased before truncation,
            but it grows with length (1.1 a token is 13,780 at 100 tokens).
        slices: Slices to count by.

    Returns:
        The correction; the mark `truncated` is rho > cap.

    Raises:
        ObjectiveError: A shape is wrong, `cap` is not above 0, or `level` is unknown.

    Example:
        >>> raw = torch.tensor([[1.0, 0.0]])
        >>> fixed = tis(raw, torch.ones(1, 2), cap=2.0)
        >>> fixed.weights.tolist(), int(fixed.counts["truncated"]["all"])
        ([[2.0, 1.0]], 1)

    Reference:
        Ionides 2008, J. Comput. Graph. Stat. 17. verl's `rollout_is` (cap 2.0), TRL's `token_truncate` (3.0).
    """
    mask = as_mask(loss_mask)
    ratio = ratio_at(log_mismatch, mask, level)
    marks = {"truncated": ratio > positive("cap", cap)}
    return correction(at_most(ratio, cap), mask, marks, LossTokens(log_mismatch, mask, slices))


def mis(
    log_mismatch: Tensor,
    loss_mask: Tensor,
    *,
    low: Number,
    high: Number,
    level: Level = "token",
    weigh: bool = True,
    slices: Slices | None = None,
) -> Correction:
    """Return masked importance sampling: weight rho where low <= rho <= high, dropped outside.

    Args:
        log_mismatch: log(pi_old/mu) (B, T), raw, nats.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        low: Lower bound, a ratio of 0 or more; at token level it may be (B, T).
        high: Upper bound, a ratio above `low`; at token level it may be (B, T).
        level: Whose ratio. "geometric" does not depend on length; verl's preset 0.999 to 1.001 suits one
            engine pair.
        weigh: False only drops (rejection sampling, weight 1).
        slices: Slices to count by.

    Returns:
        The correction, with the marks `below` and `above`.

    Raises:
        ObjectiveError: A shape is wrong, `level` is unknown, or not 0 <= low < high.

    Example:
        >>> raw = torch.tensor([[1.0, 0.0]])
        >>> fixed = mis(raw, torch.ones(1, 2), low=0.5, high=2.0)
        >>> fixed.weights.tolist(), fixed.keep.tolist(), int(fixed.counts["above"]["all"])
        ([[0.0, 1.0]], [[False, True]], 1)

    Reference:
        verl, "Mathematical formulations of rollout correction", rejection sampling (`rollout_rs`).
    """
    mask = as_mask(loss_mask)
    _ordered(low, high)
    ratio = ratio_at(log_mismatch, mask, level)
    marks = {"below": ratio < low, "above": ratio > high}
    keep = mask & ~marks["below"] & ~marks["above"]
    weights = ratio if weigh else keep_nan(torch.ones_like(ratio), ratio)
    return correction(weights, keep, marks, LossTokens(log_mismatch, mask, slices), weighs=weigh)


def icepop(
    log_mismatch: Tensor,
    loss_mask: Tensor,
    *,
    low: Number = 0.5,
    high: Number = 5.0,
    slices: Slices | None = None,
) -> Correction:
    """Return IcePop: `mis` of tokens with both bounds.

    A falling fraction of dropped tokens does not show health: the gap can widen while fewer tokens are
    masked.

    Args:
        log_mismatch: log(pi_old/mu) (B, T), raw, nats.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        low: Lower bound, a ratio; slime's default 0 masks only above.
        high: Upper bound, a ratio.
        slices: Slices to count by.

    Returns:
        The correction, with the marks `below` and `above`.

    Example:
        >>> icepop(torch.tensor([[2.0, 0.0, -1.0]]), torch.ones(1, 3)).keep.tolist()  # ratios 7.4, 1, 0.37
        [[False, True, False]]

    Reference:
        Ling Team 2025, "Every Step Evolves" (Ring-1T), arXiv 2510.18855, IcePop.
    """
    return mis(log_mismatch, loss_mask, low=low, high=high, slices=slices)


def ratio_at(log_mismatch: Tensor, loss_mask: Tensor, level: Level) -> Tensor:
    """Return rho (B, T) at the level; a row's value stands at each of its tokens. Sums of rows are float64.

    Args:
        log_mismatch: log(pi_old/mu) (B, T), raw, nats.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        level: "token", "sequence" or "geometric".

    Returns:
        Ratios (B, T), detached; 1 outside the mask.

    Raises:
        ObjectiveError: A shape is wrong, or `level` is unknown.

    Example:
        >>> raw = torch.log(torch.tensor([[2.0, 3.0, 9.0]]))
        >>> ratio_at(raw, torch.tensor([[1, 1, 0]]), "sequence")
        tensor([[6., 6., 1.]])
    """
    mask = as_mask(loss_mask)
    raw = masked(need_shape("log_mismatch", log_mismatch, tuple(mask.shape)).detach(), mask)
    if level == "token":
        return torch.exp(raw)
    total = raw.double().sum(dim=1, keepdim=True)
    if level == "geometric":
        total = total / mask.sum(dim=1, keepdim=True).clamp(min=1)
    elif level != "sequence":
        raise ObjectiveError(f"level must be token, sequence or geometric, got {level!r}")
    return masked(torch.exp(total).to(raw.dtype).expand_as(raw), mask, fill=1.0)


def correction(
    weights: Tensor, keep: Tensor, marks: dict[str, Tensor], tokens: LossTokens, *, weighs: bool = True
) -> Correction:
    """Return a Correction: weights 0 outside `keep`, marks within the mask, counts by slice."""
    own = {name: mark & tokens.mask for name, mark in marks.items()}
    own["dropped"] = tokens.mask & ~keep
    own["nonfinite"] = ~torch.isfinite(tokens.log_mismatch) & tokens.mask
    counts = count_marks(own, tokens.mask, tokens.slices)
    return Correction(masked(weights.detach(), keep), keep, own, counts, weighs)


def drop_marked(name: str, mark: Tensor, evidence: Tensor, tokens: LossTokens) -> Correction:
    """Return a filter that drops the marked tokens (B, T); its weight is NaN where the evidence is."""
    weights = keep_nan(torch.ones_like(evidence), evidence)
    return correction(weights, tokens.mask & ~mark, {name: mark}, tokens, weighs=False)


def _ordered(low: Number, high: Number) -> None:
    one, two = torch.as_tensor(low), torch.as_tensor(high)
    if not bool(((one >= 0) & (one < two)).all()):
        raise ObjectiveError(f"bounds need 0 <= low < high, got {low} and {high}")

"""Importance weights against the mismatch pi_old/mu: truncated (TIS) or masked (MIS), by token, row or geometric mean.

The mistakes it prevents: statistics taken after the clamp, and a filter that keeps no count. Everything is decided on the
raw log-ratio; what was clipped or dropped is counted, in tokens, by slice. Weights are detached.

A token whose ratio is NaN is neither inside nor outside a range: it stays, its weight is NaN and so is the loss, unless
`filters.reject_nonfinite` drops (and counts) it. +inf is outside every range and is truncated to the cap; -inf has weight 0.
All of them, where they stand in the raw log-ratio, are counted as `nonfinite`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from trimtab.errors import ObjectiveError
from trimtab.objectives.tensor_checks import Knob, as_mask, at_most, keep_nan, masked, need_shape, positive
from trimtab.objectives.token_slices import Counts, Slices, count_marks

Level = Literal["token", "sequence", "geometric"]
"""Whose ratio: each token's; the row's product, exp(sum of logs); the row's geometric mean, exp(mean of logs)."""


@dataclass(frozen=True)
class Correction:
    """`weights` (B, T) detached, 0 outside `keep`; `keep` (B, T) within the loss mask; `marks` and `counts` of what was done.

    Hand `weights` and `keep` to a loss. `counts[mark][slice]` are tokens; `nonfinite` counts raw log-ratios.
    `weighs` is False for a pure filter, whose weights are 1.
    """

    weights: torch.Tensor
    keep: torch.Tensor
    marks: dict[str, torch.Tensor]
    counts: Counts
    weighs: bool


def tis(
    log_mismatch: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    cap: Knob,
    level: Level = "token",
    slices: Slices | None = None,
) -> Correction:
    """Truncated importance sampling: weight min(rho, cap), every token kept; the mark `truncated` is rho > cap.

    `log_mismatch` (B, T) = old_logprobs - rollout_logprobs, raw, nats. `level="sequence"` gives a row one weight, exp of the
    **sum** (unbiased before truncation, deflates long rows: 1.1 a token is 13,780 at 100). Ionides 2008; for language
    models verl's `rollout_is` (cap 2.0 there) and TRL's `token_truncate` (3.0). Raises ObjectiveError for a cap not above 0.

    >>> raw = torch.tensor([[1.0, 0.0]])
    >>> fixed = tis(raw, torch.ones(1, 2), cap=2.0)
    >>> fixed.weights.tolist(), int(fixed.counts["truncated"]["all"])
    ([[2.0, 1.0]], 1)
    """
    mask = as_mask(loss_mask)
    ratio = ratio_at(log_mismatch, mask, level)
    marks = {"truncated": ratio > positive("cap", cap)}
    return correction(at_most(ratio, cap), mask, log_mismatch, mask, marks, slices, weighs=True)


def mis(
    log_mismatch: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    low: Knob,
    high: Knob,
    level: Level = "token",
    weigh: bool = True,
    slices: Slices | None = None,
) -> Correction:
    """Masked importance sampling: weight rho where low <= rho <= high, dropped outside (marks `below`, `above`).

    `weigh=False` only drops (rejection sampling, weight 1). `level="geometric"` is length-invariant: verl's preset
    0.999 to 1.001 suits one engine pair, not all. Bounds may be (B, T) per slice at token level. Raises ObjectiveError
    unless 0 <= low < high.

    >>> raw = torch.tensor([[1.0, 0.0]])
    >>> fixed = mis(raw, torch.ones(1, 2), low=0.5, high=2.0)
    >>> fixed.weights.tolist(), fixed.keep.tolist(), int(fixed.counts["above"]["all"])
    ([[0.0, 1.0]], [[False, True]], 1)
    """
    mask = as_mask(loss_mask)
    _ordered(low, high)
    ratio = ratio_at(log_mismatch, mask, level)
    marks = {"below": ratio < low, "above": ratio > high}
    keep = mask & ~marks["below"] & ~marks["above"]
    weights = ratio if weigh else keep_nan(torch.ones_like(ratio), ratio)
    return correction(weights, keep, log_mismatch, mask, marks, slices, weighs=weigh)


def icepop(
    log_mismatch: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    low: Knob = 0.5,
    high: Knob = 5.0,
    slices: Slices | None = None,
) -> Correction:
    """IcePop (Ant Group's Ring, 2025): token-level `mis` with both bounds; slime's default low of 0 masks only above.

    A falling dropped share is no sign of health: the gap can widen while fewer tokens are masked (Kpop, 2026).
    """
    return mis(log_mismatch, loss_mask, low=low, high=high, slices=slices)


def ratio_at(log_mismatch: torch.Tensor, loss_mask: torch.Tensor, level: Level) -> torch.Tensor:
    """rho (B, T) at the level, 1 outside the mask; a row's value stands at each of its tokens. Float64 inside for rows."""
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
    weights: torch.Tensor,
    keep: torch.Tensor,
    log_mismatch: torch.Tensor,
    mask: torch.Tensor,
    marks: Mapping[str, torch.Tensor],
    slices: Slices | None,
    *,
    weighs: bool,
) -> Correction:
    """Assemble a Correction: zero the weights outside `keep`, restrict the marks to the mask, count by slice."""
    own = {name: mark & mask for name, mark in marks.items()}
    own["dropped"] = mask & ~keep
    own["nonfinite"] = ~torch.isfinite(log_mismatch) & mask
    return Correction(masked(weights.detach(), keep), keep, own, count_marks(own, mask, slices), weighs)


def _ordered(low: Knob, high: Knob) -> None:
    one, two = torch.as_tensor(low), torch.as_tensor(high)
    if not bool(((one >= 0) & (one < two)).all()):
        raise ObjectiveError(f"bounds need 0 <= low < high, got {low} and {high}")


def combine(*several: Correction, slices: Slices | None = None) -> Correction:
    """Weights multiplied, keeps ANDed, marks under the same name ORed; a token dropped twice counts once.

    Raises ObjectiveError when more than one weighs: the mismatch would be corrected twice.
    """
    if not several:
        raise ObjectiveError("combine needs at least one correction")
    if sum(one.weighs for one in several) > 1:
        raise ObjectiveError("two corrections weigh the tokens: use one, and the others with weigh=False")
    keep, weights, marks = several[0].keep, several[0].weights, dict(several[0].marks)
    for one in several[1:]:
        keep = keep & one.keep
        weights = weights * one.weights
        for name, mark in one.marks.items():
            marks[name] = marks[name] | mark if name in marks else mark
    marks["dropped"] = torch.stack([one.marks["dropped"] for one in several]).any(dim=0)
    counts = count_marks(marks, torch.ones_like(keep), slices)
    return Correction(masked(weights, keep), keep, marks, counts, any(one.weighs for one in several))


def weight_sums(fixed: Correction, loss_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(sum of weights, number of loss tokens), both 0-d: add them over micro-batches and ranks, then `self_normalise`."""
    mask = as_mask(loss_mask)
    return masked(fixed.weights, mask).double().sum(), mask.sum()


def self_normalise(fixed: Correction, total: torch.Tensor, count: torch.Tensor) -> Correction:
    """Weights divided by their mean total/count over all loss tokens of the step (verl's `batch_normalize`).

    Biased by O(1/n), scale-free. The sums come from `weight_sums`, so the divisor is the step's, not a micro-batch's.
    Raises ObjectiveError when the mean is 0 (all dropped) or not a number: there is nothing to normalise.

    >>> from trimtab.objectives.corrections import tis
    >>> fixed = tis(torch.tensor([[0.0, math.log(3.0)]]), torch.ones(1, 2), cap=5.0)
    >>> self_normalise(fixed, *weight_sums(fixed, torch.ones(1, 2))).weights.tolist()
    [[0.5, 1.5]]
    """
    mean = float(total) / float(count) if float(count) else math.nan
    if not (math.isfinite(mean) and mean > 0):
        raise ObjectiveError(
            f"cannot self-normalise: the weights of {int(count)} tokens sum to {float(total)}"
        )
    return Correction(fixed.weights / mean, fixed.keep, fixed.marks, fixed.counts, fixed.weighs)

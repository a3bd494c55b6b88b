"""One correction that weighs with filters that drop, and weights divided by their mean over the step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trimtab.errors import ObjectiveError
from trimtab.objectives.corrections import Correction
from trimtab.objectives.tensor_checks import as_mask, masked
from trimtab.objectives.token_slices import Slices, count_marks


def combine(*several: Correction, slices: Slices | None = None) -> Correction:
    """Return all corrections as one: weights multiply, a token is dropped if one of them drops it.

    Args:
        *several: Corrections of the same tokens; at most one of them weighs.
        slices: Slices to count by.

    Returns:
        The correction. Marks of the same name are joined; a token dropped twice counts once.

    Raises:
        ObjectiveError: None is given, or more than one weighs: the mismatch would be corrected twice.

    Example:
        >>> from trimtab.objectives.corrections import mis, tis
        >>> raw, mask = torch.tensor([[0.5, 0.0]]), torch.ones(1, 2)
        >>> both = combine(tis(raw, mask, cap=1.5), mis(raw, mask, low=0.5, high=1.6, weigh=False))
        >>> both.weights.tolist(), int(both.counts["dropped"]["all"])
        ([[0.0, 1.0]], 1)
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


def weight_sums(fixed: Correction, loss_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of weights and the number of loss tokens: add them over micro-batches and ranks.

    Args:
        fixed: Correction of one micro-batch.
        loss_mask: Its tokens of the loss (B, T), boolean or 0 and 1.

    Returns:
        (sum float64, number int64), both 0-d, for `self_normalise`.

    Example:
        >>> from trimtab.objectives.corrections import tis
        >>> fixed = tis(torch.tensor([[0.0, math.log(3.0)]]), torch.ones(1, 2), cap=5.0)
        >>> [round(float(part), 4) for part in weight_sums(fixed, torch.ones(1, 2))]
        [4.0, 2.0]
    """
    mask = as_mask(loss_mask)
    return masked(fixed.weights, mask).double().sum(), mask.sum()


def self_normalise(fixed: Correction, total: Tensor, count: Tensor) -> Correction:
    """Return the correction with weights divided by their mean over all loss tokens of the step.

    Biased by O(1/n), scale-free. The divisor is the step's, not a micro-batch's.

    Args:
        fixed: Correction of one micro-batch.
        total: Sum of weights over the step, of `weight_sums`.
        count: Loss tokens of the step, of `weight_sums`.

    Returns:
        The correction, with the marks and counts of `fixed`.

    Raises:
        ObjectiveError: The mean is 0 (all dropped) or not finite.

    Example:
        >>> from trimtab.objectives.corrections import tis
        >>> fixed = tis(torch.tensor([[0.0, math.log(3.0)]]), torch.ones(1, 2), cap=5.0)
        >>> self_normalise(fixed, *weight_sums(fixed, torch.ones(1, 2))).weights.tolist()
        [[0.5, 1.5]]

    Reference:
        Self-normalised importance sampling, Owen 2013, "Monte Carlo theory", section 9.2; verl's
        `batch_normalize`.
    """
    mean = float(total) / float(count) if float(count) else math.nan
    if not (math.isfinite(mean) and mean > 0):
        raise ObjectiveError(
            f"cannot self-normalise: the weights of {int(count)} tokens sum to {float(total)}"
        )
    return Correction(fixed.weights / mean, fixed.keep, fixed.marks, fixed.counts, fixed.weighs)

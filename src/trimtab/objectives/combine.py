"""Corrections together: one that weighs with filters that drop, and weights divided by their mean over the step."""

from __future__ import annotations

import math

import torch

from trimtab.errors import ObjectiveError
from trimtab.objectives.corrections import Correction
from trimtab.objectives.slices import Slices, count_marks
from trimtab.objectives.validation import as_mask, masked


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

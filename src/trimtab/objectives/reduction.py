"""From a loss a token to one number, with an explicit denominator.

The mistake it prevents: `.mean()` over a micro-batch. Padding, accumulation and data parallelism then change
the learning rate, and a mean of means weighs tokens by the luck of their batch (arXiv 2503.20783, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.errors import ObjectiveError
from trimtab.objectives.tensor_checks import Number, as_mask, masked, need_shape, positive
from trimtab.objectives.token_slices import Counts, Slices, count_marks


@dataclass(frozen=True)
class Loss:
    """Result of every loss of this package."""

    value: Tensor
    """0-d, to minimise, with gradient."""
    per_token: Tensor
    """The same (B, T) before aggregation, detached."""
    marks: dict[str, Tensor]
    """What was done -> boolean (B, T)."""
    counts: Counts
    """What was done -> slice -> number of tokens."""
    tokens: Tensor
    """Tokens of the loss mask, 0-d."""


@dataclass(frozen=True)
class Reduction:
    """How a loss a token becomes one number: divisor, weights, tokens left out, what is counted."""

    denominator: Number
    lengths: Tensor | None = None
    weights: Tensor | None = None
    keep: Tensor | None = None
    marks: dict[str, Tensor] | None = None
    slices: Slices | None = None


def aggregate(
    per_token: Tensor, loss_mask: Tensor, *, denominator: Number, lengths: Tensor | None = None
) -> Tensor:
    """Return the sum over loss tokens divided by `denominator`, or with `lengths` the sum of the rows' means.

    | name | denominator | lengths |
    |---|---|---|
    | token sum (MiniRL, arXiv 2512.01374 eq. 7) | responses of the whole step | None |
    | DAPO token mean (2503.14476 eq. 8) | loss tokens of the whole step | None |
    | Dr. GRPO (2503.20783) | responses x a constant maximum length | None |
    | GRPO per-sequence mean (2402.03300 eq. 3) | responses of the whole step | tokens of each row |

    "The whole step" is what one optimizer step sees, over micro-batches and ranks; `local_denominator` turns
    it into the number one rank needs.

    Args:
        per_token: Loss of each token (B, T).
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        denominator: Divisor above 0.
        lengths: Tokens of each row (B,), the divisor of its sum. A row of length 0 must have no token of the
            loss.

    Returns:
        The loss, 0-d.

    Raises:
        ObjectiveError: A shape is wrong, `denominator` is not above 0, or a row with loss tokens has length
            0.

    Example:
        >>> loss, mask = torch.tensor([[1.0, 2.0], [4.0, 9.0]]), torch.tensor([[1, 1], [1, 0]])
        >>> aggregate(loss, mask, denominator=3)
        tensor(2.3333)
        >>> aggregate(loss, mask, denominator=2, lengths=torch.tensor([2, 1]))
        tensor(2.7500)

    Reference:
        Liu et al. 2025, "Understanding R1-Zero-Like Training", arXiv 2503.20783, section 3.
    """
    mask = as_mask(loss_mask)
    positive("denominator", denominator)
    values = masked(need_shape("per_token", per_token, tuple(mask.shape)), mask)
    if lengths is None:
        return values.sum() / denominator
    need_shape("lengths", lengths, (mask.shape[0],))
    if bool(((lengths <= 0) & mask.any(dim=1)).any()):
        raise ObjectiveError("lengths hold 0 for a row that has tokens of the loss")
    return (values.sum(dim=1) / lengths.clamp(min=1)).sum() / denominator


def sequence_lengths(loss_mask: Tensor) -> Tensor:
    """Return the loss tokens of each row (B,).

    Take them from the mask before any rejection, or the tokens that stay gain weight.

    Args:
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.

    Returns:
        Tokens of each row, int64 (B,).

    Example:
        >>> sequence_lengths(torch.tensor([[1, 1, 0], [0, 0, 0]]))
        tensor([2, 0])
    """
    return as_mask(loss_mask).sum(dim=1)


def local_denominator(total: float, *, ranks_averaged: int = 1, steps_averaged: int = 1) -> float:
    """Return the denominator of one micro-batch on one rank that makes the step's gradient sum / `total`.

    DDP and FSDP average gradients over the ranks, and `Accelerator.backward` divides the loss by the
    accumulation steps; both divisions are undone here. A backend that sums takes 1. TRL's GRPOTrainer
    switches the division by steps off, so it needs `steps_averaged=1`.

    Args:
        total: Denominator over all ranks and micro-batches of one optimizer step, above 0.
        ranks_averaged: Ranks whose gradients are averaged.
        steps_averaged: Accumulation steps the loss is divided by.

    Returns:
        `total` / (`ranks_averaged` x `steps_averaged`).

    Raises:
        ObjectiveError: `total` is not above 0, or a count is below 1.

    Example:
        >>> local_denominator(96, ranks_averaged=4, steps_averaged=2)
        12.0
    """
    if not (total > 0 and ranks_averaged >= 1 and steps_averaged >= 1):
        raise ObjectiveError(
            f"need total > 0 and at least 1 rank and step, got {total}, {ranks_averaged}, {steps_averaged}"
        )
    return float(total) / (ranks_averaged * steps_averaged)


def finish(per_token: Tensor, mask: Tensor, by: Reduction) -> Loss:
    """Return the Loss: multiply by detached weights, leave out what `by.keep` rejects, aggregate, count.

    Rejected tokens are masked before the product, so that a NaN weight of theirs has no effect. They are
    counted.
    """
    shape, marks = tuple(mask.shape), dict(by.marks or {})
    own = mask
    if by.keep is not None:
        own = mask & as_mask(need_shape("keep", by.keep, shape))
        marks["rejected"] = mask & ~own
    if by.weights is not None:
        per_token = per_token * masked(need_shape("weights", by.weights, shape).detach(), own)
    marks["nonfinite"] = ~torch.isfinite(per_token.detach()) & own
    return Loss(
        value=aggregate(per_token, own, denominator=by.denominator, lengths=by.lengths),
        per_token=masked(per_token.detach(), own),
        marks=marks,
        counts=count_marks(marks, mask, by.slices),
        tokens=mask.sum(),
    )

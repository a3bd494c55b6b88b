"""From a loss a token to one number: the denominator is the algorithm, so it is an argument and never a hidden mean.

The mistake it prevents: `.mean()` over a micro-batch. Padding, accumulation and data parallelism then change the
learning rate, and a mean of means weighs tokens by the luck of their batch (arXiv 2503.20783, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trimtab.errors import ObjectiveError
from trimtab.objectives.tensor_checks import Knob, as_mask, masked, need_shape, positive
from trimtab.objectives.token_slices import Counts, Slices, count_marks


@dataclass(frozen=True)
class Loss:
    """What every loss of this box returns.

    `value`: 0-d, to minimise, with gradient. `per_token` (B, T): the same before aggregation, detached. `marks`: what
    happened -> boolean (B, T). `counts`: the same as numbers of tokens, by slice. `tokens`: tokens of the loss mask.
    """

    value: torch.Tensor
    per_token: torch.Tensor
    marks: dict[str, torch.Tensor]
    counts: Counts
    tokens: torch.Tensor


def aggregate(
    per_token: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    denominator: Knob,
    lengths: torch.Tensor | None = None,
) -> torch.Tensor:
    """sum over tokens of per_token / denominator, or with `lengths` (B,) the sum of each row's sum / its length.

    | name | denominator | lengths |
    |---|---|---|
    | token sum (MiniRL, arXiv 2512.01374 eq. 7) | responses of the whole step | None |
    | DAPO token mean (2503.14476 eq. 8) | loss tokens of the whole step | None |
    | Dr. GRPO (2503.20783) | responses x a constant maximum length | None |
    | GRPO per-sequence mean (2402.03300 eq. 3) | responses of the whole step | tokens of each row |

    "The whole step" is what one optimizer step sees, over micro-batches and ranks; `local_denominator` turns it into
    the number one rank needs. A row with length 0 must have no token of the loss, and adds nothing.

    >>> loss, mask = torch.tensor([[1.0, 2.0], [4.0, 9.0]]), torch.tensor([[1, 1], [1, 0]])
    >>> aggregate(loss, mask, denominator=3)
    tensor(2.3333)
    >>> aggregate(loss, mask, denominator=2, lengths=torch.tensor([2, 1]))
    tensor(2.7500)
    """
    mask = as_mask(loss_mask)
    positive("denominator", denominator)
    kept = masked(need_shape("per_token", per_token, tuple(mask.shape)), mask)
    if lengths is None:
        return kept.sum() / denominator
    need_shape("lengths", lengths, (mask.shape[0],))
    if bool(((lengths <= 0) & mask.any(dim=1)).any()):
        raise ObjectiveError("lengths hold 0 for a row that has tokens of the loss")
    return (kept.sum(dim=1) / lengths.clamp(min=1)).sum() / denominator


def sequence_lengths(loss_mask: torch.Tensor) -> torch.Tensor:
    """Tokens of the loss in each row (B,). Take them from the mask before any rejection, or the kept tokens gain weight."""
    return as_mask(loss_mask).sum(dim=1)


def local_denominator(total: float, *, ranks_averaged: int = 1, steps_averaged: int = 1) -> float:
    """The denominator one micro-batch on one rank must use so that the step's gradient is sum / `total`.

    `total` counts over all ranks and micro-batches of one optimizer step. DDP and FSDP average gradients over the
    ranks, and `Accelerator.backward` divides the loss by the accumulation steps; both divisions are undone here.
    A backend that sums takes 1: TRL's GRPOTrainer switches the division by steps off, so it needs `steps_averaged=1`.

    >>> local_denominator(96, ranks_averaged=4, steps_averaged=2)
    12.0
    """
    if not (total > 0 and ranks_averaged >= 1 and steps_averaged >= 1):
        raise ObjectiveError(
            f"need total > 0 and at least 1 rank and step, got {total}, {ranks_averaged}, {steps_averaged}"
        )
    return float(total) / (ranks_averaged * steps_averaged)


def finish(
    per_token: torch.Tensor,
    mask: torch.Tensor,
    *,
    denominator: Knob,
    lengths: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    keep: torch.Tensor | None = None,
    marks: dict[str, torch.Tensor] | None = None,
    slices: Slices | None = None,
) -> Loss:
    """Multiply by detached `weights`, leave out what `keep` rejects, aggregate, count: the common end of all losses.

    Rejected tokens are masked before the product, so a NaN weight of theirs is gone, and they are counted.
    """
    shape, marks = tuple(mask.shape), dict(marks or {})
    kept = mask
    if keep is not None:
        kept = mask & as_mask(need_shape("keep", keep, shape))
        marks["rejected"] = mask & ~kept
    if weights is not None:
        per_token = per_token * masked(need_shape("weights", weights, shape).detach(), kept)
    marks["nonfinite"] = ~torch.isfinite(per_token.detach()) & kept
    return Loss(
        value=aggregate(per_token, kept, denominator=denominator, lengths=lengths),
        per_token=masked(per_token.detach(), kept),
        marks=marks,
        counts=count_marks(marks, mask, slices),
        tokens=mask.sum(),
    )

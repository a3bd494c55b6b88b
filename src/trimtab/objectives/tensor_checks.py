"""Checks of shapes and masks that every loss makes before it computes.

Legend of the package: B sequences, T tokens of a row, G rows of a group, C cells, L layers, E experts, K
experts a token. Log-probabilities are in nats. A token outside the mask may hold anything, NaN included: it
is replaced before any arithmetic, so neither value nor gradient sees it. A NaN or an infinity inside the mask
reaches the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.errors import ObjectiveError

Number = float | Tensor
"""A bound or a coefficient: one number, or a tensor that broadcasts to (B, T), e.g. one value a slice."""


def need_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the tensor; raise ObjectiveError with its name when its shape is another."""
    if tuple(tensor.shape) != tuple(shape):
        raise ObjectiveError(f"{name} has shape {tuple(tensor.shape)}, expected {tuple(shape)}")
    return tensor


def as_mask(loss_mask: Tensor) -> Tensor:
    """Return the mask as boolean (B, T). Fractions are refused: a weight is not a mask.

    >>> as_mask(torch.tensor([[1, 0]])).tolist()
    [[True, False]]
    """
    if loss_mask.dim() != 2:
        raise ObjectiveError(f"loss_mask has shape {tuple(loss_mask.shape)}, expected (B, T)")
    if loss_mask.dtype == torch.bool:
        return loss_mask
    mask = loss_mask != 0
    if not torch.equal(mask.to(loss_mask.dtype), loss_mask):
        raise ObjectiveError("loss_mask must hold only 0 and 1; pass weights as weights")
    return mask


def masked(values: Tensor, mask: Tensor, fill: float = 0.0) -> Tensor:
    """Return `values` inside the mask, `fill` outside, whatever stood there."""
    return torch.where(mask, values, torch.full_like(values, fill))


def log_ratio(numerator: Tensor, denominator: Tensor, mask: Tensor) -> Tensor:
    """Return log(numerator/denominator) (B, T), nats, raw inside the mask and 0 outside; nothing is clamped.

    Masked before any exp: exp of a padded NaN would give a NaN gradient even under a later mask.

    >>> one, two = torch.tensor([[-1.0, float("nan")]]), torch.tensor([[-3.0, 0.0]])
    >>> log_ratio(one, two, torch.tensor([[True, False]]))
    tensor([[2., 0.]])
    """
    shape = tuple(mask.shape)
    need_shape("the numerator's log-probabilities", numerator, shape)
    need_shape("the denominator's log-probabilities", denominator, shape)
    return masked(numerator - denominator, mask)


def per_token_advantages(advantages: Tensor, mask: Tensor) -> Tensor:
    """Return advantages (B,), (B, 1) or (B, T) as (B, T), detached."""
    rows, tokens = mask.shape
    shape = tuple(advantages.shape)
    if shape == (rows,):
        advantages = advantages.unsqueeze(1)
    elif shape not in ((rows, 1), (rows, tokens)):
        raise ObjectiveError(f"advantages have shape {shape}, expected ({rows},) or ({rows}, {tokens})")
    return masked(advantages.detach().expand(rows, tokens), mask)


def positive(name: str, value: Number) -> Number:
    """Return the value; raise ObjectiveError when some of it is not above zero (NaN included)."""
    good = bool((value > 0).all()) if isinstance(value, Tensor) else value > 0
    if not good:
        raise ObjectiveError(f"{name} must be above 0, got {value}")
    return value


def at_most(values: Tensor, cap: Number) -> Tensor:
    """Return min(values, cap) in the dtype of the values; NaN stays NaN, an infinity becomes the cap."""
    return torch.minimum(values, torch.as_tensor(cap, dtype=values.dtype, device=values.device))


def keep_nan(values: Tensor, evidence: Tensor) -> Tensor:
    """Return `values`, NaN where the evidence of the decision is NaN: a comparison with NaN is not a "no"."""
    return torch.where(torch.isnan(evidence), evidence.to(values.dtype), values)

"""Shapes first: what every loss of this box checks before it computes, and what a masked token is.

Legend of the box: B sequences, T tokens of a row, G rows of a group, C cells, L layers, E experts, K experts a token.
Log-probabilities are in nats. A token outside the mask may hold anything, NaN included: it is replaced before any
arithmetic, so neither value nor gradient sees it. A NaN or an infinity inside the mask reaches the loss.
"""

from __future__ import annotations

import torch

from trimtab.errors import ObjectiveError

Knob = float | torch.Tensor
"""A bound or a coefficient: one number, or a tensor that broadcasts to (B, T), e.g. one value a slice."""


def need_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """The tensor, or ObjectiveError naming it when its shape is another."""
    if tuple(tensor.shape) != tuple(shape):
        raise ObjectiveError(f"{name} has shape {tuple(tensor.shape)}, expected {tuple(shape)}")
    return tensor


def as_mask(loss_mask: torch.Tensor) -> torch.Tensor:
    """Boolean (B, T). Whole numbers 0 and 1 are taken, fractions are refused: a weight is not a mask.

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


def masked(values: torch.Tensor, mask: torch.Tensor, fill: float = 0.0) -> torch.Tensor:
    """`values` inside the mask, `fill` outside, whatever stood there."""
    return torch.where(mask, values, torch.full_like(values, fill))


def log_ratio(numerator: torch.Tensor, denominator: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """log(numerator/denominator) (B, T), nats, raw inside the mask and 0 outside; nothing is clamped.

    Masked before any exp: exp of a padded NaN would give a NaN gradient even under a later mask.

    >>> log_ratio(torch.tensor([[-1.0, float("nan")]]), torch.tensor([[-3.0, 0.0]]), torch.tensor([[True, False]]))
    tensor([[2., 0.]])
    """
    shape = tuple(mask.shape)
    need_shape("the numerator's log-probabilities", numerator, shape)
    need_shape("the denominator's log-probabilities", denominator, shape)
    return masked(numerator - denominator, mask)


def per_token_advantages(advantages: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Advantages (B,), (B, 1) or (B, T) as (B, T), detached: an advantage is a number, not a path of the gradient."""
    rows, tokens = mask.shape
    shape = tuple(advantages.shape)
    if shape == (rows,):
        advantages = advantages.unsqueeze(1)
    elif shape not in ((rows, 1), (rows, tokens)):
        raise ObjectiveError(f"advantages have shape {shape}, expected ({rows},) or ({rows}, {tokens})")
    return masked(advantages.detach().expand(rows, tokens), mask)


def positive(name: str, value: Knob) -> Knob:
    """The value, or ObjectiveError when some of it is not above zero (NaN included)."""
    good = bool((value > 0).all()) if isinstance(value, torch.Tensor) else value > 0
    if not good:
        raise ObjectiveError(f"{name} must be above 0, got {value}")
    return value


def at_most(values: torch.Tensor, cap: Knob) -> torch.Tensor:
    """min(values, cap) in the dtype of the values; NaN stays NaN, an infinity becomes the cap."""
    return torch.minimum(values, torch.as_tensor(cap, dtype=values.dtype, device=values.device))


def keep_nan(values: torch.Tensor, evidence: torch.Tensor) -> torch.Tensor:
    """`values`, NaN where the evidence they were decided on is NaN: a comparison with NaN must not pass as "no"."""
    return torch.where(torch.isnan(evidence), evidence.to(values.dtype), values)

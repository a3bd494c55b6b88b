"""Two changes of a trainer that the pilot's arms need: a KL penalty on one slice, and a sampler of lower precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from trimtab.adapters.trl.reference import Reference

__all__ = ["add_post_tool_kl", "frozen_weights", "lower_sampler_precision", "post_tool", "rounded"]


def post_tool(inputs: dict[str, Any]) -> torch.Tensor:
    """(B, T) bool: completion tokens of the policy after a tool result."""
    own = inputs["completion_mask"].bool() & inputs["tool_mask"].bool()
    seen = (inputs["completion_mask"].bool() & ~inputs["tool_mask"].bool()).long().cumsum(dim=1)
    return own & (seen > 0)


def frozen_weights(trainer: Any) -> dict[str, torch.Tensor]:
    """The policy's weights as they are now, by name."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def add_post_tool_kl(trainer: Any, weight: float) -> None:
    """Add weight * mean over the policy's tokens of k3(theta || start), counted on post-tool tokens only.

    k3 = e^(ref - theta) - (ref - theta) - 1 (Schulman, joschu.net/blog/kl-approx.html), against the weights as they are
    now. Must be called before the trainer is watched.
    """
    reference = Reference("the weights at the start", weights=frozen_weights(trainer))
    scored: list[torch.Tensor] = []
    logps, loss = trainer._get_per_token_logps_and_entropies, trainer._compute_loss

    def keep(model: Any, *args: Any, **kwargs: Any) -> Any:
        result = logps(model, *args, **kwargs)
        if result[0].requires_grad:
            scored[:] = [result[0]]
        return result

    def penalised(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        value = loss(model, inputs, *args, **kwargs)
        if not scored:
            return value
        theta = scored.pop()
        with torch.no_grad():
            ref = reference.score(trainer, inputs, torch.arange(theta.size(0)))
        x = (ref - theta).clamp(max=20.0)  # e^20: beyond it the gradient is a push back already
        k3 = torch.exp(x) - x - 1.0
        own = (inputs["completion_mask"].bool() & inputs["tool_mask"].bool()).sum().clamp(min=1)
        return value + weight * (k3 * post_tool(inputs)).sum() / own

    trainer._get_per_token_logps_and_entropies, trainer._compute_loss = keep, penalised


@contextmanager
def rounded(model: torch.nn.Module, bits: int) -> Iterator[None]:
    """The model with every matrix rounded to `bits` bits, symmetric, one scale a tensor; its own weights afterwards."""
    kept = [(weight, weight.detach().clone()) for weight in model.parameters() if weight.ndim > 1]
    levels = 2 ** (bits - 1) - 1
    try:
        with torch.no_grad():
            for weight, _ in kept:
                scale = (weight.abs().max() / levels).clamp(min=1e-12)
                weight.copy_((weight / scale).round() * scale)
        yield
    finally:
        with torch.no_grad():
            for weight, before in kept:
                weight.copy_(before)


def lower_sampler_precision(trainer: Any, bits: int) -> None:
    """Sample every rollout from rounded weights; its log-probabilities are those of the rounded weights too."""
    inner = trainer.rollout_func

    def rollout(prompts: list[str], owner: Any) -> dict[str, Any]:
        with rounded(owner.accelerator.unwrap_model(owner.model), bits):
            result: dict[str, Any] = inner(prompts, owner)
        return result

    trainer.rollout_func = rollout

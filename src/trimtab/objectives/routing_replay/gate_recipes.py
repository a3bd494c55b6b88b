"""Gates of chosen experts from a router's first output: every recipe is a score, a norm and a scale.

N tokens, E experts, K experts a token. Nothing here knows a class by name: `router_proof` tries the recipes
in this order on a router, and takes the first that gives the router's own gates bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def _softmax_all(first: Tensor, experts: Tensor) -> Tensor:
    return torch.softmax(first, dim=-1).gather(1, experts)


def _softmax_all_float(first: Tensor, experts: Tensor) -> Tensor:
    return torch.softmax(first, dim=-1, dtype=torch.float32).gather(1, experts)


def _softmax_all_native(first: Tensor, experts: Tensor) -> Tensor:
    return torch.softmax(first, dim=-1, dtype=first.dtype).gather(1, experts)


def _softmax_chosen(first: Tensor, experts: Tensor) -> Tensor:
    return torch.softmax(first.gather(1, experts), dim=-1)


def _softmax_chosen_float(first: Tensor, experts: Tensor) -> Tensor:
    return torch.softmax(first.gather(1, experts), dim=-1, dtype=torch.float32)


def _softmax_chosen_native(first: Tensor, experts: Tensor) -> Tensor:
    return torch.softmax(first.gather(1, experts), dim=-1, dtype=first.dtype)


def _sigmoid(first: Tensor, experts: Tensor) -> Tensor:
    return first.sigmoid().gather(1, experts)


def _sigmoid_float(first: Tensor, experts: Tensor) -> Tensor:
    return first.float().sigmoid().gather(1, experts)


def _sigmoid_chosen(first: Tensor, experts: Tensor) -> Tensor:
    return first.gather(1, experts).sigmoid()


def _root_softplus(first: Tensor, experts: Tensor) -> Tensor:
    return torch.nn.functional.softplus(first).sqrt().gather(1, experts)


def _as_returned(first: Tensor, experts: Tensor) -> Tensor:
    return first.gather(1, experts)


SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "softmax over all experts in float32": _softmax_all_float,
    "softmax over all experts in the logits' type": _softmax_all_native,
    "softmax over all experts": _softmax_all,
    "softmax over the chosen in float32": _softmax_chosen_float,
    "softmax over the chosen in the logits' type": _softmax_chosen_native,
    "softmax over the chosen": _softmax_chosen,
    "sigmoid": _sigmoid,
    "sigmoid in float32": _sigmoid_float,
    "sigmoid of the chosen": _sigmoid_chosen,
    "square root of softplus": _root_softplus,
    "probabilities as returned": _as_returned,
}
"""Name -> (first output (N, E), experts (N, K) int64) -> scores (N, K), differentiable."""

NORMS: dict[str, float | None] = {
    "": None,
    "normalised": 0.0,
    "normalised + 1e-20": 1e-20,
    "normalised + 1e-6": 1e-6,
}
"""Name -> what is added to the sum of the chosen scores before the division; None: no division."""

SCALES = ("routed_scaling_factor", "route_scale", "router_scaling_factor", "per_expert_scale", "top_k")
"""Attributes of a router that scale its gates: a factor, a factor by expert (E,), or a divisor (`top_k`)."""


@dataclass(frozen=True)
class GateRecipe:
    """How a router makes gates of its first output and the chosen experts."""

    score: str
    """Key of `SCORES`."""
    norm: str = ""
    """Key of `NORMS`."""
    scale: str = ""
    """One of `SCALES`, or none."""

    def __str__(self) -> str:
        return ", ".join(
            part for part in (self.score, self.norm, self.scale and f"with {self.scale}") if part
        )

    def gates(self, owner: Any, first: Tensor, experts: Tensor) -> Tensor:
        """Return gates (N, K), differentiable in `first`; `owner` is the module with the scale."""
        gates = SCORES[self.score](first, experts)
        added = NORMS[self.norm]
        if added is not None:
            total = gates.sum(dim=-1, keepdim=True)
            gates = gates / (total + added if added else total)
        if self.scale:
            factor: Any = getattr(owner, self.scale)
            if self.scale == "top_k":
                gates = gates / factor
            else:
                gates = gates * (factor[experts] if self.scale == "per_expert_scale" else factor)
        return gates


def recipes_for(owner: Any) -> Iterator[GateRecipe]:
    """Return every recipe whose scale the module has, without a scale first."""
    for scale in ("", *(name for name in SCALES if hasattr(owner, name))):
        for score in SCORES:
            for norm in NORMS:
                yield GateRecipe(score, norm, scale)

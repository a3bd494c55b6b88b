"""Routers of a model, each with a recipe that was proven on it.

N tokens, E experts, K experts a token. transformers is not imported, and no class is known by name: a module
that looks like a router is taken when a recipe is proven (`router_proof`), and refused by name otherwise.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trimtab.errors import UnsupportedError
from trimtab.objectives.routing_replay.gate_recipes import GateRecipe
from trimtab.objectives.routing_replay.router_proof import TOKENS, prove_recipe

_ROUTER_CLASS = re.compile(r"(router|topkgating|topkgate|moe\w*gate)$", re.IGNORECASE)

Triple = tuple[Tensor, Tensor, Tensor]
"""(first output (N, E), gates (N, K), experts (N, K) int64)."""


@dataclass(frozen=True)
class Router:
    """One router of a model, with the recipe proven on it."""

    name: str
    """Name of the module in the model."""
    module: torch.nn.Module
    recipe: GateRecipe
    num_experts: int
    top_k: int
    block: torch.nn.Module | None = None
    """None where the router chooses. Else the module around it, which chooses the experts in
    `route_tokens_to_experts(logits)`, as DBRX does and DeepSeek-V3 of transformers 5.2.
    """

    def live(self, first: Tensor, experts: Tensor, dtype: torch.dtype) -> Tensor:
        """Return gates (N, K) of these experts from the router's first output, differentiable."""
        owner = self.module if self.block is None else self.block
        return self.recipe.gates(owner, first, experts).to(dtype)

    def device(self) -> torch.device:
        return next(self.module.parameters()).device


def as_triple(output: Any, top_k: int | None) -> Triple:
    """Return what a router returned as (first output, gates, experts).

    Llama 4 returns (scores (N, E), zero but for the chosen; logits (N, E)): its experts are those of the top
    scores. UnsupportedError for any other form.
    """
    if isinstance(output, tuple) and all(isinstance(part, Tensor) and part.dim() == 2 for part in output):
        if len(output) == 3 and not output[2].is_floating_point():
            return output
        if len(output) == 2 and output[0].shape == output[1].shape and top_k:
            experts = output[0].sort(dim=1, descending=True).indices[:, :top_k]
            return output[1], output[0].gather(1, experts), experts
    raise UnsupportedError("it does not return (logits, gates, experts)")


def as_returned(output: Any, replayed: Triple) -> Any:
    """Return a replayed triple in the form of the router's own output."""
    if len(output) == 3:
        return replayed
    _, gates, experts = replayed
    return torch.zeros_like(output[0]).scatter(1, experts, gates), output[1]


def choice_of(pair: Any) -> tuple[Tensor, Tensor]:
    """Return (experts, gates) of what `route_tokens_to_experts` returned, in either order."""
    if not (isinstance(pair, tuple) and len(pair) == 2):
        raise UnsupportedError("its block does not return experts and gates")
    one, two = pair
    return (two, one) if one.is_floating_point() else (one, two)


def find_routers(model: torch.nn.Module) -> tuple[Router, ...]:
    """Return the routers in the order of the layers.

    UnsupportedError names what cannot be proven: a router's class and why, experts without a router, a model
    without either, a compiled model, weights that are sharded or not there.
    """
    modules = dict(model.named_modules())
    routers = tuple(_routers(modules))
    for name, module in modules.items():
        experts = modules.get(f"{name}.experts" if name else "experts")
        if experts is not None and not any(_inside(router.name, name) for router in routers):
            raise UnsupportedError(
                f"{name} is a {type(module).__name__} with experts, but without a router module"
            )
    if not routers:
        raise UnsupportedError(f"{type(model).__name__} has no router: no module's class is named like one")
    shapes = {(router.num_experts, router.top_k) for router in routers}
    if len(shapes) > 1:
        raise UnsupportedError(f"routers of one model differ in (experts, experts a token): {sorted(shapes)}")
    return routers


def _inside(name: str, outer: str) -> bool:
    return not outer or name == outer or name.startswith(outer + ".")


def _routers(modules: dict[str, torch.nn.Module]) -> Iterator[Router]:
    chosen_by_block: set[str] = set()
    for name, module in modules.items():
        kind = type(module).__name__
        if kind == "OptimizedModule" or module._compiled_call_impl is not None:
            raise UnsupportedError(
                f"{name or 'the model'} is already compiled: create RoutingReplay before torch.compile"
            )
        if hasattr(type(module), "route_tokens_to_experts"):
            child = next((c for c in ("gate", "router") if f"{name}.{c}".lstrip(".") in modules), None)
            if child is None:
                raise UnsupportedError(f"{name} is a {kind}, which has neither `gate` nor `router`")
            inner = f"{name}.{child}".lstrip(".")
            chosen_by_block.add(inner)
            yield _proven(inner, modules[inner], module)
        elif _ROUTER_CLASS.search(kind) and not any(_inside(name, inner) for inner in chosen_by_block):
            yield _proven(name, module, None)


def _proven(name: str, module: Any, block: Any) -> Router:
    kind = type(module).__name__
    weight = next((p for p in module.parameters() if p.dim() == 2 or hasattr(p, "placements")), None)
    if weight is None:
        raise UnsupportedError(
            f"{name} is a {kind}, which routing replay does not know: it has no weight (E, H)"
        )
    if hasattr(weight, "placements") or weight.is_meta or not weight.numel():
        raise UnsupportedError(
            f"the weight of {name} is sharded or not loaded: routing replay cannot prove its recipe"
        )
    hidden = torch.randn(TOKENS, weight.shape[1], generator=torch.Generator().manual_seed(0)).to(weight)
    owner = module if block is None else block
    try:
        recipe, sample = prove_recipe(owner, lambda tokens: _route(module, block, tokens), hidden)
    except UnsupportedError as error:
        raise UnsupportedError(f"{name} is a {kind}, which routing replay cannot replay: {error}") from None
    return Router(name, module, recipe, int(sample.first.shape[1]), int(sample.experts.shape[1]), block)


def _route(module: Any, block: Any, hidden: Tensor) -> Triple:
    """Run the router's own code, without hooks."""
    try:
        output = _forward(module, hidden)
        if block is not None and isinstance(output, Tensor):
            experts, gates = choice_of(type(block).route_tokens_to_experts(block, output))
            output = (output, gates, experts)
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        raise UnsupportedError(f"it does not run on tokens alone ({str(error).splitlines()[0]})") from error
    return as_triple(output, getattr(module, "top_k", None))


def _forward(module: Any, hidden: Tensor) -> Any:
    """Return its output for tokens (N, H), or (1, N, H) where it wants rows.

    An argument named like a bias (E,) moves the choice alone in all families that have one, so any will do.
    """
    arguments = list(inspect.signature(module.forward).parameters.values())[1:]
    weight = next(p for p in module.parameters() if p.dim() == 2)
    generator = torch.Generator().manual_seed(1)
    bias = torch.rand(weight.shape[0], generator=generator).to(weight)
    extra = {argument.name: bias for argument in arguments if "bias" in argument.name}
    try:
        return module.forward(hidden.clone(), **extra)
    except ValueError:
        return module.forward(hidden[None].clone(), **extra)

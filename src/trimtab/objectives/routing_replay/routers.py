"""Gates of each family of routers from logits and chosen experts, chosen by class name and proven on a probe.

N tokens, E experts, K experts a token. transformers is not imported: what a router returns differs between
its versions (5.2 returns probabilities where 5.23 returns logits), so each recipe is tried and must give the
router's own gates bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trimtab.errors import UnsupportedError

Gates = Callable[[torch.nn.Module, Tensor, Tensor], Tensor]
"""(router, first output (N, E), experts (N, K) int64) -> gates (N, K), differentiable in the first output."""


def _normalised(gates: Tensor) -> Tensor:
    return gates / gates.sum(dim=-1, keepdim=True)


def _softmax_all(router: Any, logits: Tensor, experts: Tensor) -> Tensor:
    gates = torch.softmax(logits, dim=-1, dtype=torch.float32).gather(1, experts)
    return (_normalised(gates) if router.norm_topk_prob else gates).to(logits.dtype)


def _probabilities(router: Any, probabilities: Tensor, experts: Tensor) -> Tensor:
    gates = probabilities.gather(1, experts)
    return _normalised(gates) if getattr(router, "norm_topk_prob", True) else gates


def _softmax_all_normalised(_: Any, logits: Tensor, experts: Tensor) -> Tensor:
    return _normalised(torch.softmax(logits.float(), dim=-1).gather(1, experts))


def _softmax_chosen(_: Any, logits: Tensor, experts: Tensor) -> Tensor:
    return torch.softmax(logits.gather(1, experts), dim=1, dtype=logits.dtype)


def _sigmoid_grouped(router: Any, logits: Tensor, experts: Tensor) -> Tensor:
    gates = logits.sigmoid().gather(1, experts)
    if router.norm_topk_prob:
        gates = gates / (gates.sum(dim=-1, keepdim=True) + 1e-20)
    scale: float = router.routed_scaling_factor
    return gates * scale


FAMILIES: dict[str, tuple[Gates, ...]] = {
    "Qwen3MoeTopKRouter": (_softmax_all, _probabilities),
    "OlmoeTopKRouter": (_softmax_all, _probabilities),
    "MixtralTopKRouter": (_softmax_all_normalised, _probabilities),
    "GptOssTopKRouter": (_softmax_chosen,),
    "DeepseekV3TopkRouter": (_sigmoid_grouped,),
}
"""Router class -> recipes, newest transformers first."""


@dataclass(frozen=True)
class Router:
    """One router of a model, with the recipe proven on it."""

    name: str
    """Name of the module in the model."""
    module: torch.nn.Module
    gates: Gates
    num_experts: int
    top_k: int
    block: torch.nn.Module | None = None
    """None where the router returns (logits, gates, experts). Else the module around it, which chooses the
    experts in `route_tokens_to_experts(logits) -> (experts, gates)`, as DeepSeek-V3 of transformers 5.2 does.
    """

    def live(self, first: Tensor, experts: Tensor) -> Tensor:
        """Return gates (N, K) of these experts from the router's first output, differentiable."""
        return self.gates(self.module if self.block is None else self.block, first, experts)


def find_routers(model: torch.nn.Module) -> tuple[Router, ...]:
    """Return the routers in the order of the layers.

    UnsupportedError names what is unknown: a router's class or behaviour, a model without router, a compiled
    model, weights that are sharded or not there.
    """
    routers = tuple(_routers(model))
    if not routers:
        raise UnsupportedError(
            f"{type(model).__name__} has no router of a family known to it: {', '.join(FAMILIES)}"
        )
    shapes = {(router.num_experts, router.top_k) for router in routers}
    if len(shapes) > 1:
        raise UnsupportedError(f"routers of one model differ in (experts, experts a token): {sorted(shapes)}")
    return routers


def _routers(model: torch.nn.Module) -> Iterator[Router]:
    modules = dict(model.named_modules())
    for name, module in modules.items():
        kind = type(module).__name__
        if kind == "OptimizedModule" or module._compiled_call_impl is not None:
            raise UnsupportedError(
                f"{name or 'the model'} is already compiled: create RoutingReplay before torch.compile"
            )
        if kind in FAMILIES:
            yield _proven(name, module, modules.get(name.rpartition(".")[0]))
        elif kind.lower().endswith(("router", "moegate")):
            raise UnsupportedError(
                f"{name} is a {kind}, which routing replay does not know; it knows {', '.join(FAMILIES)}"
            )


@torch.no_grad()
def _proven(name: str, module: Any, parent: Any) -> Router:
    kind, weight = type(module).__name__, module.weight
    if hasattr(weight, "placements") or weight.dim() != 2 or weight.is_meta or not weight.numel():
        raise UnsupportedError(
            f"the weight of {name} is sharded or not loaded: routing replay cannot prove its recipe"
        )
    hidden = torch.randn(7, weight.shape[1], generator=torch.Generator().manual_seed(0)).to(weight)
    out, block = module.forward(hidden), None
    if isinstance(out, Tensor) and type(parent).__name__ == "DeepseekV3MoE":
        block = parent
        experts, gates = parent.route_tokens_to_experts(out)
        out = (out, gates, experts)
    if not (isinstance(out, tuple) and len(out) == 3):
        raise UnsupportedError(
            f"{name} ({kind}) does not return (logits, gates, experts): an unknown transformers version"
        )
    first, gates, experts = out
    for recipe in FAMILIES[kind]:
        router = Router(name, module, recipe, int(first.shape[1]), int(experts.shape[1]), block)
        if torch.equal(router.live(first, experts), gates):
            return router
    raise UnsupportedError(f"{name} ({kind}) computes its gates in a way routing replay does not know")

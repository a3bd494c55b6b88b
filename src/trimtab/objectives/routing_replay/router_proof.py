"""Proof that a recipe is a router's own: its gates for its own choice and for another, bit for bit.

N tokens, E experts, K experts a token. The router's own code runs on random tokens, once as it is and once
with its top-k answering other experts. The gates it returns both times are what a recipe must give, in
training and in evaluation, in the weights' type and under autocast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from trimtab.errors import UnsupportedError
from trimtab.objectives.routing_replay.gate_recipes import GateRecipe, recipes_for

Route = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
"""Tokens (N, H) -> (first output (N, E), gates (N, K), experts (N, K))."""

TOKENS = 61
"""Random tokens of a proof. Odd, and many: the last bit of a sigmoid depends on its index in a vector."""


@dataclass(frozen=True)
class RouterSample:
    """What a router's own code returned for one choice of experts."""

    first: Tensor
    gates: Tensor
    experts: Tensor
    autocast: bool


class _TopK(TorchFunctionMode):
    """Record the calls of top-k; answer call `number` with other experts."""

    def __init__(self, number: int = -1, forced: Tensor | None = None) -> None:
        super().__init__()
        self.number, self.forced = number, forced
        self.calls: list[tuple[Tensor, Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func not in (torch.topk, Tensor.topk):
            return result
        scores = args[0] if args else (kwargs or {})["input"]
        if len(self.calls) == self.number and self.forced is not None:
            result = torch.return_types.topk((scores.gather(-1, self.forced), self.forced))
        self.calls.append((scores, result.indices))
        return result


@torch.no_grad()
def prove_recipe(owner: Any, route: Route, hidden: Tensor) -> tuple[GateRecipe, RouterSample]:
    """Return the recipe of this router, and one sample.

    `owner` has the scale, `route` runs its own code. UnsupportedError says why none is proven.
    """
    samples = []
    for training in (False, True):
        for autocast in (False, True):
            with _mode(owner, training):
                samples += _samples(route, hidden, autocast)
    for recipe in recipes_for(owner):
        if all(_gives(recipe, owner, sample) for sample in samples):
            return recipe, samples[0]
    raise UnsupportedError("it computes its gates in a way routing replay does not know")


def _samples(route: Route, hidden: Tensor, autocast: bool) -> list[RouterSample]:
    """Return the router's own choice, and the choice without the best and with the runner-up."""
    with torch.autocast(hidden.device.type, dtype=torch.bfloat16, enabled=autocast):
        with _TopK() as own:
            first, gates, experts = route(hidden)
        if first.float().std(dim=-1).min() == 0:
            raise UnsupportedError("its weights are all equal, and every recipe would give its gates")
        numbers = [i for i, (_, indices) in enumerate(own.calls) if _same_choice(indices, experts)]
        if not numbers:
            raise UnsupportedError("it does not choose by a top-k of scores")
        other = _other_choice(own.calls[numbers[-1]][0], experts)
        with _TopK(numbers[-1], other):
            first_again, gates_again, experts_again = route(hidden)
    if not _same_choice(experts_again, other):
        raise UnsupportedError("it changes its choice after the top-k")
    return [
        RouterSample(first, gates, experts, autocast),
        RouterSample(first_again, gates_again, experts_again, autocast),
    ]


def _same_choice(one: Tensor, two: Tensor) -> bool:
    return torch.equal(one.sort(dim=-1).values, two.sort(dim=-1).values)


def _other_choice(scores: Tensor, experts: Tensor) -> Tensor:
    """Return the ranks 2 to K + 1, worst first.

    Rows whose runner-up is masked keep their experts, reversed.
    """
    width = min(experts.shape[1] + 1, scores.shape[1])
    values, ranked = scores.topk(width)
    masked = (values[:, -1:] == 0) | values[:, -1:].isneginf()
    other = ranked.flip(1)[:, : experts.shape[1]]
    return torch.where(masked, experts.flip(1), other)


def _gives(recipe: GateRecipe, owner: Any, sample: RouterSample) -> bool:
    device = sample.first.device.type
    with torch.autocast(device, dtype=torch.bfloat16, enabled=sample.autocast):
        gates = recipe.gates(owner, sample.first, sample.experts)
    return torch.equal(gates.to(sample.gates.dtype), sample.gates)


@contextmanager
def _mode(owner: torch.nn.Module, training: bool) -> Iterator[None]:
    """Put this module and its children alone into training or evaluation."""
    before = {module: module.training for module in owner.modules()}
    for module in before:
        module.training = training
    try:
        yield
    finally:
        for module, flag in before.items():
            module.training = flag

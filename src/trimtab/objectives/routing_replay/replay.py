"""Record and replay the experts of every token through forward hooks.

Gates come from the live logits, so the router learns.

N = rows x tokens of one forward. Hooks stay installed until `close`; outside the two contexts they change
nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from trimtab.errors import RoutesError
from trimtab.objectives.routing_replay.recordings import Recording, Replayed, fingerprint, same_print
from trimtab.objectives.routing_replay.routers import (
    Router,
    Triple,
    as_returned,
    as_triple,
    choice_of,
    find_routers,
)
from trimtab.objectives.routing_replay.routes import check_routes, route_dtype


class RoutingReplay:
    """Recorder and player of a model's routes.

    Create it before torch.compile and after PEFT has wrapped the model.

    `layers`: names of the routers, the order of L. Raises UnsupportedError for models `routers.find_routers`
    refuses.

        replay = RoutingReplay(model)
        with replay.recording() as recording:  # R2: the trainer's engine at the sampling weights
            model(**inputs)
        with replay.replaying(recording.routes(len(input_ids)), required=attention_mask.bool()):
            loss(model(**inputs)).backward()  # backward inside: gradient checkpointing recomputes the routes
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.routers = find_routers(model)
        self.layers = [router.name for router in self.routers]
        self.num_experts, self.top_k = self.routers[0].num_experts, self.routers[0].top_k
        self._recording: Recording | None = None
        self._active: Replayed | None = None
        self._ended: deque[Replayed] = deque(maxlen=4)
        self._undo = [_attach(_Hook(self, layer, router)) for layer, router in enumerate(self.routers)]

    def close(self) -> None:
        """Remove the hooks."""
        for undo in self._undo:
            undo()
        self._undo = []

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Keep the experts each router picks. RoutesError inside another recording or replay."""
        self._idle()
        self._recording = Recording(len(self.routers))
        try:
            yield self._recording
        finally:
            self._recording = None

    @contextmanager
    def replaying(
        self,
        routes: Tensor,
        *,
        required: Tensor | None = None,
        allow_missing: bool = False,
        compare: bool = False,
    ) -> Iterator[Replayed]:
        """Force the recorded experts in every forward inside; gates are re-normalised from the live logits.

        `routes` (B, T, L, K) in the layout of the forward, padding included; a packed forward has B = 1.
        Forwards may take whole rows in chunks and pass over the batch again. `required`, `allow_missing`: see
        `check_routes`. `compare` counts the required tokens whose live choice was another set, by layer.
        RoutesError when routes are refused, a forward does not fit, or rows are left over. The backward of a
        checkpointed model (use_reentrant=False) must run inside.
        """
        self._idle()
        clean, counts = check_routes(
            routes, num_layers=len(self.routers), num_experts=self.num_experts, top_k=self.top_k,
            required=required, allow_missing=allow_missing,
        )  # fmt: skip
        self._active = active = Replayed(clean.to(self._device()), counts, compare, required)
        try:
            yield active
            active.check_consumed(self.layers)
        finally:
            self._active = None
            if not active.recomputed:  # a backward of a checkpoint may still come, and must be refused
                self._ended.append(active)
            active.by_layer = active.by_layer.new_zeros(0)  # the fingerprints alone are kept

    def _device(self) -> torch.device:
        return self.routers[0].device()

    def _idle(self) -> None:
        if self._recording is not None or self._active is not None:
            raise RoutesError("a recording or replay is already open: close it first")

    def _on_forward(self, hook: _Hook, output: Triple) -> Triple:
        first, _, experts = output
        layer, active = hook.layer, self._active
        if torch._C._current_graph_task_id() != -1:  # a backward runs: this is the recompute of a checkpoint
            return self._recomputed(hook, first, output)
        if self._recording is not None:
            self._recording.add(layer, experts.detach().to(route_dtype(hook.router.num_experts)))
        if active is None:
            return output
        start = active.take(layer, len(first))
        if torch.is_grad_enabled():
            active.prints[layer].append((fingerprint(first), start))
        return _forced(active, hook, output, start, count=active.compare)

    def _recomputed(self, hook: _Hook, first: Tensor, output: Triple) -> Triple:
        layer, name, own = hook.layer, hook.router.name, fingerprint(first)
        if self._active is not None:
            start = self._active.find(layer, name, own, len(first))
            return _forced(self._active, hook, output, start, count=False)
        if any(same_print(own, saved) for ended in self._ended for saved, _ in ended.prints[layer]):
            raise RoutesError(f"{name} is recomputed after its replaying() ended: run the backward inside it")
        return output


class _Hook:
    """Forward hook as an object: torch.compile skips it; a deep copy of the model gets its own replay."""

    def __init__(self, replay: RoutingReplay, layer: int, router: Router) -> None:
        self.replay, self.layer, self.router = replay, layer, router

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, module: torch.nn.Module, _: Any, output: Any) -> Any:
        assert module is self.router.module
        own = as_triple(output, self.router.top_k)
        replayed = self.replay._on_forward(self, own)
        return output if replayed is own else as_returned(output, replayed)


class _Choice:
    """Stands in for a block's `route_tokens_to_experts`: its own choice first, then the hook's."""

    def __init__(self, hook: _Hook) -> None:
        self.hook = hook

    def __call__(self, logits: Tensor) -> Any:
        block: Any = self.hook.router.block
        pair = type(block).route_tokens_to_experts(block, logits)
        experts, gates = choice_of(pair)
        _, gates, experts = self.hook(self.hook.router.module, None, (logits, gates, experts))
        return (gates, experts) if pair[0].is_floating_point() else (experts, gates)


def _attach(hook: _Hook) -> Callable[[], None]:
    """Install the hook; return the function that removes it."""
    block: Any = hook.router.block
    if block is None:
        return hook.router.module.register_forward_hook(hook).remove
    block.route_tokens_to_experts = _Choice(hook)
    return lambda: delattr(block, "route_tokens_to_experts")


def _forced(active: Replayed, hook: _Hook, output: Triple, start: int, *, count: bool) -> Triple:
    layer, (first, gates, experts) = hook.layer, output
    chosen = active.by_layer[layer, start : start + len(first)].to(device=experts.device, dtype=experts.dtype)
    if active.live[layer]:
        chosen = torch.where(chosen < 0, experts, chosen)
    if count:
        other = (chosen.sort(dim=1).values != experts.sort(dim=1).values).any(dim=1)
        if active.counted is not None:
            other = other & active.counted[start : start + len(first)].to(other.device)
        active.changed[layer] += other.sum()
    return first, hook.router.live(first, chosen, gates.dtype), chosen

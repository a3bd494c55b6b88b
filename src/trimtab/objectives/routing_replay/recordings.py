"""One recording of routes, and the position of one replay in its routes, by forward and layer.

A fingerprint is the mean of a forward's router logits (E,): by it the recompute of a gradient checkpoint
finds the routes of its own forward, and a recompute that belongs to none is refused.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.errors import RoutesError


class Recording:
    """Experts of every forward under `recording()`, in order."""

    def __init__(self, layers: int) -> None:
        self._chunks: list[list[Tensor]] = [[] for _ in range(layers)]

    def add(self, layer: int, experts: Tensor) -> None:
        self._chunks[layer].append(experts)

    def routes(self, num_rows: int) -> Tensor:
        """Return routes (B, T, L, K) of the smallest type: forwards joined along the tokens, prompt first.

        RoutesError when nothing was recorded, the layers saw different forwards, or one is not a multiple of
        `num_rows`.
        """
        sizes = {tuple(len(chunk) for chunk in chunks) for chunks in self._chunks}
        if len(sizes) != 1 or not next(iter(sizes)):
            raise RoutesError(f"layers recorded different forwards, or none: {sorted(sizes)} tokens")
        if any(size % num_rows for size in next(iter(sizes))):
            raise RoutesError(f"forwards of {next(iter(sizes))} tokens are not {num_rows} rows each")
        layers = [
            torch.cat([chunk.view(num_rows, -1, chunk.shape[-1]) for chunk in chunks], dim=1)
            for chunks in self._chunks
        ]
        return torch.stack(layers, dim=2)


class Replayed:
    """One `replaying()`: counts by layer (L,).

    `counts` come from `check_routes`. `changed` counts required tokens whose live choice was another set,
    only with compare=True. `tokens` are the tokens replayed in each layer, over all forwards.
    """

    def __init__(
        self, routes: Tensor, counts: dict[str, Tensor], compare: bool, required: Tensor | None = None
    ) -> None:
        rows, self.width, layers, _ = routes.shape
        self.by_layer = routes.permute(2, 0, 1, 3).reshape(layers, rows * self.width, -1).contiguous()
        self.live = (self.by_layer < 0).any(dim=(1, 2)).tolist()
        self.counts, self.compare = counts, compare
        self.counted = None if required is None else required.bool().to(routes.device).flatten()
        self.changed = torch.zeros(layers, dtype=torch.int64, device=routes.device)
        self.tokens = torch.zeros(layers, dtype=torch.int64)
        self.at, self.recomputed = [0] * layers, False
        self.prints: list[list[tuple[Tensor, int]]] = [[] for _ in range(layers)]

    @property
    def total(self) -> int:
        return int(self.by_layer.shape[1])

    def take(self, layer: int, size: int) -> int:
        """Return the start of the next forward of `size` tokens; after the last row the next pass begins."""
        start = 0 if self.at[layer] == self.total else self.at[layer]
        if size % max(self.width, 1) or start + size > self.total:
            raise RoutesError(
                f"a forward of {size} tokens does not fit routes of {self.total} ({self.width} a row), "
                f"{start} consumed: pass whole rows, in the order of the routes"
            )
        self.at[layer] = start + size
        self.tokens[layer] += size
        return start

    def find(self, layer: int, name: str, own: Tensor, size: int) -> int:
        """Return the start of the forward with this fingerprint; RoutesError when none or several have it."""
        self.recomputed = True
        starts = [start for saved, start in self.prints[layer] if same_print(own, saved)]
        if not starts:
            raise RoutesError(
                f"{name} is recomputed in a backward for a forward this replay did not see: "
                "run the backward of each micro-batch inside its own replaying(), with use_reentrant=False"
            )
        routes = [self.by_layer[layer, start : start + size] for start in starts]
        if any(not torch.equal(routes[0], other) for other in routes[1:]):
            raise RoutesError(
                f"{name} recomputes one of two equal forwards with other routes: pass them in one forward"
            )
        return starts[0]

    def check_consumed(self, names: list[str]) -> None:
        for name, at, seen in zip(names, self.at, self.tokens.tolist(), strict=True):
            if at != self.total or (not seen and self.total):
                raise RoutesError(
                    f"{name} consumed {at} of {self.total} routes: the model did not run, or ran past its "
                    "hooks (compiled earlier, a fused kernel)"
                )


def fingerprint(first: Tensor) -> Tensor:
    """Return the mean (E,), float32, over the tokens of a router's first output (N, E)."""
    return first.detach().float().mean(dim=0)


def same_print(one: Tensor, two: Tensor) -> bool:
    """Return whether two forwards were the same; loose enough for sums taken in another order."""
    return torch.allclose(one, two, rtol=1e-4, atol=1e-6, equal_nan=True)

"""Routing replay inside a TRL trainer: where routes come from, where they stand in a batch, which forwards
replay them.

B rows, P prompt and C completion places, L layers, K experts a token. The batch carries `ROUTES` (B, P + C,
L, K) and `REQUIRED` (B, P + C), so TRL's shuffle and split keep them beside their rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from trimtab.errors import RoutesError
from trimtab.objectives.routing_replay import RoutingReplay, place_routes
from trimtab.objectives.routing_replay.recordings import Replayed
from trimtab.objectives.routing_replay.routes import MISSING

ROUTES, REQUIRED = "trimtab_routes", "trimtab_routes_required"


class Experts:
    """The replay of one trainer's model in mode R2 or R3."""

    def __init__(
        self, model: Any, mode: str, allow_missing: bool, compare: bool, reference: Any = None
    ) -> None:
        self.replay = RoutingReplay(model)
        self._reference = None if reference is None else RoutingReplay(reference)
        self.mode, self.allow_missing, self.compare = mode, allow_missing, compare
        self.placed: tuple[torch.Tensor, torch.Tensor] | None = None
        self._rows: list[torch.Tensor] = []
        self._lengths: list[tuple[int, int]] = []

    def take(
        self,
        routes: Sequence[Any] | None,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        *,
        own: bool = False,
    ) -> None:
        """Routes of one generation, a row (n, L, K) each, from the sampler. R3 without them is an error.

        A row starts at the first prompt token. One of another length may start elsewhere (an engine that
        returns those of the completion alone), so it is refused whatever may be missing; `own` rows, which we
        recorded, may end early.
        """
        self.placed, self._rows = None, []
        self._lengths = [(len(p), len(c)) for p, c in zip(prompts, completions, strict=True)]
        if self.mode != "R3":
            return
        if routes is None or len(routes) != len(self._lengths):
            raise RoutesError(
                f"R3 needs `routes`, one (tokens, layers, experts a token) for each of {len(self._lengths)} "
                "rows, from the rollout_func"
            )
        for row, (recorded, lengths) in enumerate(zip(routes, self._lengths, strict=True)):
            self._rows.append(self._row(row, recorded, *lengths, may_end=own and self.allow_missing))

    def _row(self, row: int, recorded: Any, prompt: int, completion: int, *, may_end: bool) -> torch.Tensor:
        tokens = prompt + completion
        if recorded is None and self.allow_missing:
            return torch.full((tokens, len(self.replay.layers), self.replay.top_k), MISSING)
        if recorded is None:
            raise RoutesError(
                f"row {row} has no routes (None); routing_allow_missing=True routes it live and counts it"
            )
        tensor = torch.as_tensor(recorded)
        if len(tensor) not in (tokens, tokens - 1) and not (may_end and len(tensor) < tokens):
            raise RoutesError(
                f"row {row} has {len(tensor)} routes for {tokens} tokens ({prompt} of the prompt, "
                f"{completion} of the completion): give all, or all but the last that was never fed, from "
                "the first prompt token on; -1 where none was recorded"
            )
        return tensor

    def placed_routes(self, attention: torch.Tensor, completion: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (routes, required) in the layout of a forward, prompts padded left; computed once a
        generation.
        """
        if self.placed is None:
            at = torch.arange(attention.shape[1]) - (attention.shape[1] - completion)
            before, after = torch.tensor(self._lengths).T[..., None]
            exists = (at >= -before) & (at < after)
            routes, short = place_routes(self._rows, exists, allow_short=True)
            last = at == after - 1  # the engine never feeds a last token
            required = attention.bool() & ~(last & (short == 1)[:, None]).to(attention.device)
            self.placed = routes.to(attention.device), required
        return self.placed

    def keep(self, recorded: Sequence[torch.Tensor], attention: torch.Tensor) -> None:
        """R2: what the pass of pi_old recorded, chunks of rows in order."""
        self.placed = torch.cat(list(recorded)), attention.bool()

    def columns(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What the batch carries from here on."""
        attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        if self.placed is None and self.mode == "R2":
            raise RoutesError("R2 has no routes: pi_old was not scored")
        routes, required = self.placed_routes(attention, batch["completion_ids"].shape[1])
        self.placed = None
        return {ROUTES: routes, REQUIRED: required}

    def replaying(self, routes: torch.Tensor, required: torch.Tensor) -> AbstractContextManager[Replayed]:
        """Every forward and recompute inside uses these experts."""
        return self.replay.replaying(
            routes, required=required, allow_missing=self.allow_missing, compare=self.compare
        )

    def scoring_reference(
        self, model: Any, own: Any, attention: torch.Tensor, completion: int
    ) -> AbstractContextManager[Any]:
        """Around the pass of pi_ref: the same experts, or its KL to the policy would hold the difference of
        two routings.

        R2 with one update a batch has none yet, and then the policy's pass routes as it would anyway.
        """
        replay = self.replay if model is own else self._reference
        if replay is None or (self.mode == "R2" and self.placed is None):
            return nullcontext()
        routes, required = self.placed_routes(attention, completion)
        return replay.replaying(routes, required=required, allow_missing=self.allow_missing)

    def scoring_old(self, attention: torch.Tensor, completion: int) -> AbstractContextManager[Any]:
        """Around the pass of pi_old: R3 replays there too, R2 has nothing yet."""
        if self.mode == "R2":
            return nullcontext()
        return self.replaying(*self.placed_routes(attention, completion))

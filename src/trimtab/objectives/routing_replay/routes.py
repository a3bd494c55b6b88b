"""Recorded routes as tensors: their type, their position in a batch, and their checks.

Routes are (B, T, L, K): rows, tokens, mixture layers in order, experts in the order of the router. K times -1
marks a route that was not recorded. The mistake it prevents: zeros for "not recorded", which are expert 0
(verl, slime).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.errors import RoutesError

MISSING = -1
"""All K experts of a token and layer without a recorded route."""


def route_dtype(num_experts: int) -> torch.dtype:
    """Return the smallest signed integer type that holds -1 to E - 1.

    Args:
        num_experts: E, 1 to 32,768.

    Returns:
        int8 up to 128 experts, else int16.

    Raises:
        RoutesError: `num_experts` is out of range.

    Example:
        >>> route_dtype(128), route_dtype(256)
        (torch.int8, torch.int16)
    """
    if not 1 <= num_experts <= 32_768:
        raise RoutesError(f"routes are stored for 1 to 32,768 experts, got {num_experts}")
    return torch.int8 if num_experts <= 128 else torch.int16


def bytes_per_token(num_layers: int, top_k: int, num_experts: int) -> int:
    """Return the bytes that one token's routes take: L x K x 1 or 2.

    Args:
        num_layers: L, mixture layers.
        top_k: K, experts a token.
        num_experts: E, experts a layer.

    Returns:
        Bytes a token.

    Example:
        >>> bytes_per_token(48, 8, 128)  # Qwen3-30B-A3B; int32 would take 1,536
        384
    """
    return num_layers * top_k * route_dtype(num_experts).itemsize


def check_routes(
    routes: Tensor,
    *,
    num_layers: int,
    num_experts: int,
    top_k: int,
    required: Tensor | None = None,
    allow_missing: bool = False,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return routes fit for replay, and counts of those that are not good.

    A route is missing when all its K experts are -1. It is out of range when one is below 0 or not below E.
    It is repeated when it names one expert twice: zeros of a buffer never filled are so. Tokens that are not
    required are routed live where their route is not good, uncounted.

    Args:
        routes: Integers (B, T, L, K).
        num_layers: L, mixture layers of the model.
        num_experts: E, experts a layer.
        top_k: K, experts a token.
        required: Boolean (B, T), tokens that must have a route; None: all. Pass the attention mask where rows
            are padded, less the last token where the engine records none.
        allow_missing: Route required tokens without a good route live and count them; False: an error.

    Returns:
        Routes (B, T, L, K) of the smallest type with -1 where a route is not good, and counts (L,) of
        required tokens that are `missing`, `out_of_range` and `repeated`.

    Raises:
        RoutesError: A shape or type is wrong, or a required token has no good route.

    Example:
        >>> routes = torch.tensor([[[[0, 1]], [[-1, -1]]]])
        >>> _, counts = check_routes(routes, num_layers=1, num_experts=4, top_k=2, allow_missing=True)
        >>> counts["missing"].tolist()
        [1]

    Reference:
        R3, arXiv 2510.11370; routing replay of GSPO, 2507.18071 section 5.3.
    """
    if routes.dim() != 4 or tuple(routes.shape[2:]) != (num_layers, top_k):
        raise RoutesError(
            f"routes have shape {tuple(routes.shape)}, the model needs (B, T, {num_layers}, {top_k}): "
            "layers, experts a token"
        )
    if routes.is_floating_point() or routes.dtype == torch.bool:
        raise RoutesError(f"routes must be integers, got {routes.dtype}")
    need = (
        torch.ones(routes.shape[:2], dtype=torch.bool, device=routes.device) if required is None else required
    )
    if need.dtype != torch.bool or need.shape != routes.shape[:2]:
        raise RoutesError(
            f"required must be a boolean mask {tuple(routes.shape[:2])}, got {need.dtype} {tuple(need.shape)}"
        )
    wide = routes.to(torch.int32)  # unsigned types have no -1 and no comparison on every device
    missing = (wide == MISSING).all(dim=-1)
    outside = ((wide < 0) | (wide >= num_experts)).any(dim=-1) & ~missing
    order = wide.sort(dim=-1).values
    repeated = (order[..., 1:] == order[..., :-1]).any(dim=-1) & ~missing & ~outside
    marks = {"missing": missing, "out_of_range": outside, "repeated": repeated}
    counts = {name: (mark & need.to(mark.device)[..., None]).sum(dim=(0, 1)) for name, mark in marks.items()}
    if not allow_missing:
        _refuse(counts, marks, need, num_experts)
    bad = missing | outside | repeated
    clean = torch.where(bad[..., None], torch.full_like(wide, MISSING), wide)
    return clean.to(route_dtype(num_experts)), counts


def place_routes(
    rows: Sequence[Tensor], attention_mask: Tensor, *, allow_short: bool = False
) -> tuple[Tensor, Tensor]:
    """Return each row's routes at its attended tokens, left and right padding alike.

    The i-th route goes to the i-th attended token.

    Args:
        rows: Routes (n, L, K) of each row.
        attention_mask: (B, T).
        allow_short: Take a row with fewer routes than tokens: an engine records none for a last token it
            never fed.

    Returns:
        Routes (B, T, L, K) with -1 elsewhere, and the number of tokens (B,) without a route.

    Raises:
        RoutesError: Shapes differ, or a row has more routes than tokens, or fewer without `allow_short`.

    Example:
        >>> routes, short = place_routes([torch.tensor([[[3]]])], torch.tensor([[0, 1, 1]]), allow_short=True)
        >>> routes.flatten().tolist(), short.tolist()
        ([-1, 3, -1], [1])
    """
    mask = attention_mask.bool()
    if mask.dim() != 2 or len(rows) != mask.shape[0] or not rows:
        raise RoutesError(f"{len(rows)} rows of routes for an attention mask {tuple(mask.shape)}")
    rows = [_signed(own) for own in rows]
    out = torch.full((*mask.shape, *rows[0].shape[1:]), MISSING, dtype=rows[0].dtype, device=rows[0].device)
    short = []
    for i, own in enumerate(rows):
        at = mask[i].nonzero()[:, 0].to(own.device)
        if own.dim() != 3 or own.shape[1:] != rows[0].shape[1:]:
            raise RoutesError(f"row {i} has routes {tuple(own.shape)}, row 0 {tuple(rows[0].shape)}")
        if len(own) > len(at) or (len(own) < len(at) and not allow_short):
            raise RoutesError(f"row {i} has {len(own)} routes for {len(at)} tokens")
        out[i, at[: len(own)]] = own
        short.append(len(at) - len(own))
    return out, torch.tensor(short)


def pack_routes(routes: Tensor, attention_mask: Tensor) -> Tensor:
    """Return the routes of the attended tokens, row after row, as a packed (padding-free) forward sees them.

    Args:
        routes: (B, T, L, K).
        attention_mask: (B, T), with N attended tokens.

    Returns:
        Routes (1, N, L, K).

    Raises:
        RoutesError: The shapes do not fit.

    Example:
        >>> routes = torch.tensor([[[[1]], [[2]]], [[[3]], [[4]]]])
        >>> pack_routes(routes, torch.tensor([[0, 1], [1, 1]])).flatten().tolist()
        [2, 3, 4]
    """
    mask = attention_mask.bool()
    if routes.shape[:2] != mask.shape:
        raise RoutesError(f"routes {tuple(routes.shape)} do not fit the attention mask {tuple(mask.shape)}")
    return routes[mask][None]


def join_turns(turns: Sequence[tuple[int, Tensor]], *, allow_gaps: bool = False) -> Tensor:
    """Return one row's routes from its turns, in their order.

    Each turn brings only what it computed first. The engine's routes of a whole prefix, sent again, may come
    from a new prefill and are not what sampled the earlier tokens.

    Args:
        turns: (start, routes (m, L, K) of the tokens from `start` on).
        allow_gaps: Fill tokens between two turns with -1: tool output that no engine saw.

    Returns:
        Routes (n, L, K).

    Raises:
        RoutesError: No turn, a turn starts before the end of the last, or a gap without `allow_gaps`.

    Example:
        >>> first, second = torch.zeros(2, 1, 1, dtype=torch.int8), torch.ones(1, 1, 1, dtype=torch.int8)
        >>> join_turns([(0, first), (2, second)]).flatten().tolist()
        [0, 0, 1]
    """
    if not turns:
        raise RoutesError("join_turns needs at least one turn")
    parts: list[Tensor] = []
    end = 0
    for number, (start, own) in enumerate(turns):
        if own.dim() != 3 or own.shape[1:] != turns[0][1].shape[1:]:
            raise RoutesError(
                f"turn {number} has routes {tuple(own.shape)}, turn 0 {tuple(turns[0][1].shape)}"
            )
        if start < end:
            raise RoutesError(
                f"turn {number} starts at token {start}, but {end} have routes: pass its new tokens only"
            )
        if start > end:
            if not allow_gaps:
                raise RoutesError(
                    f"turn {number} starts at token {start}, routes end at {end}: tokens between have none"
                )
            parts.append(_signed(own).new_full((start - end, *own.shape[1:]), MISSING))
        parts.append(_signed(own))
        end = start + len(own)
    return torch.cat(parts)


def _signed(routes: Tensor) -> Tensor:
    """Return routes of a signed type: engines send uint8, which has no -1."""
    return routes.to(torch.int16) if routes.dtype == torch.uint8 else routes


def _refuse(counts: dict[str, Tensor], marks: dict[str, Tensor], need: Tensor, num_experts: int) -> None:
    for name, by_layer in counts.items():
        if not int(by_layer.sum()):
            continue
        row, token, layer = (marks[name] & need.to(marks[name].device)[..., None]).nonzero()[0].tolist()
        why = {
            "missing": "no recorded route",
            "out_of_range": f"an expert outside 0 to {num_experts - 1}",
            "repeated": "one expert twice; fill routes that were not recorded with -1, not with 0",
        }[name]
        raise RoutesError(
            f"{int(by_layer.sum())} routes have {why}; first at row {row}, token {token}, layer {layer}. "
            "Mark tokens that need none by `required`, or pass allow_missing=True to count them"
        )

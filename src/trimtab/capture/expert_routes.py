"""Recorded routes of a mixture of experts: which K experts each of L layers gave a token to.

The mistake it prevents: positions without a record, filled with zeros, read as "expert 0" (verl, slime: R3
payloads).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.errors import BatchError
from trimtab.typing import Int16

EXPERT_COLUMNS = ("routed_experts", "rollout_routed_experts")
"""Names of the two columns: the trainer's routes and the sampling engine's."""

MAX_EXPERTS = 32_768


def expert_column(
    name: str, raw: Any, shape: tuple[int, ...], keep: npt.NDArray[np.bool_], mask: npt.NDArray[np.bool_]
) -> Int16:
    """Expert indices (N, L, K), -1 in all L x K places of a token without a recorded route.

    `raw`: integers (B, T, L, K), or packed (N, L, K); `shape` is the loss mask's, `keep` of that shape marks
    what exists, `mask` (N,) what receives gradient, which alone is checked. Raises BatchError naming the
    column: another shape, not whole numbers, an index below -1 or from 32,768 on, a route recorded in part,
    one expert twice in one layer.

    >>> expert_column("routed_experts", [[[0, 3]], [[-1, -1]]], (2,), np.ones(2, bool), np.ones(2,
    ...     bool)).shape
    (2, 1, 2)
    """
    array = np.asarray(raw)
    if array.ndim != len(shape) + 2 or array.shape[: len(shape)] != shape or 0 in array.shape[-2:]:
        raise BatchError(
            f"{name} has shape {array.shape}, expected {(*shape, 'L', 'K')}: layers, experts a token"
        )
    if array.dtype.kind not in "iu":
        raise BatchError(f"{name} must hold whole numbers, got {array.dtype}")
    array = array[keep]
    own = array[mask]
    if own.size and not -1 <= int(own.min()) <= int(own.max()) < MAX_EXPERTS:
        raise BatchError(f"{name} holds {own.min()} to {own.max()}: expert indices lie in [0, {MAX_EXPERTS})")
    missing = own < 0
    some, every = missing.any(axis=(1, 2)), missing.all(axis=(1, 2))
    if (some & ~every).any():
        at = int(np.flatnonzero(some & ~every)[0])
        raise BatchError(
            f"{name} lacks part of the route of gradient token {at}: -1 must fill all of it or none"
        )
    order = np.sort(own[~every], axis=2)
    if (order[..., 1:] == order[..., :-1]).any():
        raise BatchError(
            f"{name} names one expert twice in a layer: fill tokens without a recorded route with -1, not "
            f"with 0"
        )
    return array.clip(-1, MAX_EXPERTS - 1).astype(np.int16)


def same_experts_shape(columns: dict[str, Any]) -> None:
    """BatchError when the two columns differ in layers or experts a token."""
    one, two = (columns.get(name) for name in EXPERT_COLUMNS)
    if one is not None and two is not None and one.shape != two.shape:
        raise BatchError(f"{EXPERT_COLUMNS[0]} has shape {one.shape}, {EXPERT_COLUMNS[1]} {two.shape}")

"""Slices are sums of disjoint cells, so one pass over the tokens serves them all.

A cell is one combination of phase, last tool, turn bucket and data source. N tokens with gradient, C occupied
cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trimtab.capture.segments import OTHER
from trimtab.types import TokenBatch

TURN_BUCKETS = ("1", "2-3", "4-7", "8+")
_PHASES, _TOOLS, _TURNS, _SOURCES = 3, 18, 4, 18


@dataclass(frozen=True)
class Cells:
    """`index` (N,) cell of each token with gradient; `sequence` (N,) its row; `slices` name -> cells that sum
    to it."""

    index: npt.NDArray[np.int64]
    sequence: npt.NDArray[np.int64]
    num_cells: int
    slices: dict[str, tuple[int, ...]]


def cells_of(batch: TokenBatch) -> Cells:
    """Group the tokens that receive gradient by cell.

    Slices: `all`; `text` (before any tool result); `post_tool` (after one), split into `phase/near` and
    `phase/later` and by tool as `post_tool/<tool>`; `turn/<bucket>` from the second turn on (the first is
    `text`); `source/<name>` where sources are declared.

    Args:
        batch: a batch of N tokens.

    Returns:
        The cell of each token with gradient, and slice -> cells. A slice without tokens is absent.

    Example:
        >>> from trimtab.capture import token_batch
        >>> cells_of(token_batch(np.array([[True, False, True]]))).slices["text"]
        (0,)
    """
    mask = batch.loss_mask
    turn = batch.turn[mask]
    bucket = (turn >= 2).astype(np.int64) + (turn >= 4) + (turn >= 8)
    phase, tool, source = batch.phase[mask], batch.tool[mask], batch.source[mask]
    code = phase + _PHASES * (tool + _TOOLS * (bucket + _TURNS * source.astype(np.int64)))
    occupied = np.flatnonzero(np.bincount(code, minlength=1))
    lookup = np.zeros(_PHASES * _TOOLS * _TURNS * _SOURCES, np.int64)
    lookup[occupied] = np.arange(occupied.size)
    sequence = np.repeat(np.arange(batch.num_sequences, dtype=np.int64), batch.lengths)[mask]
    if code.size == 0:
        return Cells(code.astype(np.int64), sequence, 0, {})
    slices: dict[str, list[int]] = {}
    for row, cell in enumerate(occupied.tolist()):
        for name in _slices_of(cell, batch):
            slices.setdefault(name, []).append(row)
    return Cells(lookup[code], sequence, int(occupied.size), {k: tuple(v) for k, v in sorted(slices.items())})


def slice_counts(batch: TokenBatch, fresh: npt.NDArray[np.bool_]) -> dict[str, tuple[int, int]]:
    """Count the tokens and trajectories of each slice.

    Args:
        batch: a batch of B sequences.
        fresh: (B,) True for trajectories that were not counted before.

    Returns:
        Slice -> (tokens with gradient, trajectories counted for the first time).

    Example:
        >>> from trimtab.capture import token_batch
        >>> slice_counts(token_batch(np.array([[True, False, True]])), np.array([True]))["all"]
        (2, 1)
    """
    cells = cells_of(batch)
    shape = (batch.num_sequences, cells.num_cells)
    flat = np.bincount(cells.sequence * max(1, shape[1]) + cells.index, minlength=shape[0] * shape[1])
    table = flat.reshape(shape)
    member = np.zeros((shape[1], len(cells.slices)), np.int64)
    for column, rows in enumerate(cells.slices.values()):
        member[list(rows), column] = 1
    tokens = table @ member
    sums, new = tokens.sum(axis=0).tolist(), np.count_nonzero(tokens[fresh], axis=0).tolist()
    return dict(zip(cells.slices, zip(sums, new, strict=True), strict=True))


def _slices_of(cell: int, batch: TokenBatch) -> list[str]:
    rest, phase = divmod(cell, _PHASES)
    rest, tool = divmod(rest, _TOOLS)
    source, bucket = divmod(rest, _TURNS)
    names = ["all"]
    if phase == 0:
        names.append("text")
    else:
        names += ["post_tool", "phase/near" if phase == 1 else "phase/later"]
        if tool:
            names.append(f"post_tool/{_name(tool, batch.tool_names)}")
        names.append(f"turn/{TURN_BUCKETS[bucket]}")
    if source:
        names.append(f"source/{_name(source, batch.source_names)}")
    return names


def _name(code: int, table: tuple[str, ...]) -> str:
    return table[code - 1] if code <= len(table) else OTHER

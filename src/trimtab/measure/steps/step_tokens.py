"""The tokens of one step by cell, sequence and trajectory, for values of every slice at once.

N tokens with gradient, C cells, S slices, B sequences, J trajectories of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trimtab.capture import join_batches
from trimtab.capture.slices import cells_of
from trimtab.errors import BatchError
from trimtab.types import TokenBatch
from trimtab.typing import Bool, Float64, Int16, Int64

UNUSED_SLICES = ("phase/near", "phase/later")
"""Slices without series of their own."""
_NONE = 2**15 - 1


@dataclass(frozen=True)
class StepTokens:
    """Tokens of the batches of one step; a trajectory is an episode id, in whichever batches it comes."""

    batches: tuple[TokenBatch, ...]
    slices: tuple[str, ...]
    cell: Int64  # (N,)
    sequence: Int64  # (N,)
    trajectory: Int64  # (N,)
    of_sequence: Int64  # (B,) the trajectory of each sequence
    num_trajectories: int
    num_cells: int
    members: Int64  # cells of the slices, one slice after the other
    starts: Int64  # (S,) where each slice begins in `members`

    @property
    def num_tokens(self) -> int:
        """N."""
        return int(self.cell.size)

    @cached_property
    def slots(self) -> list[tuple[Int16, Int64]]:
        """Partitions of the tokens: (rank of each cell's slice in it, `_NONE` for none; its slices)."""
        slots: list[tuple[Int16, list[int]]] = []
        for index in range(len(self.slices)):
            cells = self.cells(index)
            free = [slot for slot in slots if (slot[0][cells] == _NONE).all()]
            if not free:
                free = [(np.full(self.num_cells, _NONE, np.int16), [])]
                slots += free
            table, indices = free[0]
            table[cells] = len(indices)
            indices.append(index)
        return [(table, np.array(indices, np.int64)) for table, indices in slots]

    def cells(self, index: int) -> Int64:
        """The cells of one slice."""
        end = self.starts[index + 1] if index + 1 < len(self.slices) else self.members.size
        return self.members[self.starts[index] : end]

    def by_slice(self, table: Float64, scale: Float64 | None = None) -> Float64:
        """Add up the cells (K, C) of each slice: (K, S). `scale`: factors of `members`."""
        columns = table[:, self.members]
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(
                np.add.reduceat(columns if scale is None else columns * scale, self.starts, axis=1)
            )

    def sums(
        self, values: Float64, keep: Bool | slice = slice(None), scale: Float64 | None = None
    ) -> Float64:
        """Sum (N,) by trajectory and slice: (J, S). `scale`: a factor for each of `members`."""
        return self.by_slice(self._table(values, self.trajectory, self.num_trajectories, keep), scale)

    def sequence_sums(self, values: Float64) -> Float64:
        """Sum (N,) by sequence and slice: (B, S)."""
        return self.by_slice(self._table(values, self.sequence, self.of_sequence.size, slice(None)))

    def counts(self, keep: Bool | None = None) -> Float64:
        """Tokens by trajectory and slice, those of `keep` (N,) only: (J, S)."""
        return self._all_counts if keep is None or keep.all() else self.sums(keep.astype(np.float64))

    @cached_property
    def _all_counts(self) -> Float64:
        return self.sums(np.ones(self.num_tokens))

    @cached_property
    def sequence_counts(self) -> Float64:
        """Tokens by sequence and slice: (B, S)."""
        return self.sequence_sums(np.ones(self.num_tokens))

    def _table(self, values: Float64, rows: Int64, num_rows: int, keep: Bool | slice) -> Float64:
        flat = rows[keep] * self.num_cells + self.cell[keep]
        with np.errstate(invalid="ignore", over="ignore"):
            table = np.bincount(flat, weights=values[keep], minlength=num_rows * self.num_cells)
        return np.asarray(table, np.float64).reshape(num_rows, self.num_cells)

    def column(self, read: Callable[[TokenBatch], Float64 | str]) -> Float64 | str:
        """Concatenate what `read` gives of each batch, of tokens with gradient; NaN where it gives a reason.

        The reason alone, where no batch can.
        """
        parts: list[Float64] = []
        reason = ""
        for batch in self.batches:
            values = read(batch)
            if isinstance(values, str):
                reason, values = values, np.full(int(np.count_nonzero(batch.loss_mask)), np.nan)
            else:
                reason = reason if reason and not parts else ""
            parts.append(values)
        return reason if reason and all(np.isnan(part).all() for part in parts) else np.concatenate(parts)

    def sequence_column(self, read: Callable[[TokenBatch], Float64 | None]) -> Float64 | None:
        """Concatenate a column (B,), NaN where a batch lacks it; None where all do."""
        columns = [read(batch) for batch in self.batches]
        if all(column is None for column in columns):
            return None
        return np.concatenate([
            np.full(batch.num_sequences, np.nan) if column is None else column.astype(np.float64)
            for batch, column in zip(self.batches, columns, strict=True)
        ])  # fmt: skip


def step_tokens(batches: Sequence[TokenBatch]) -> StepTokens | None:
    """Group the tokens with gradient of one step's batches; None where there are none.

    Args:
        batches: the micro-batches of the step, as `token_batch` makes them.

    Returns:
        The tokens of all of them. Slices of one name are one slice.

    Example:
        >>> from trimtab.capture import token_batch
        >>> tokens = step_tokens([token_batch(np.array([[True, False, True]])) for _ in range(2)])
        >>> tokens.slices, tokens.counts().tolist()
        (('all', 'post_tool', 'text', 'turn/2-3'), [[2.0, 1.0, 1.0, 1.0], [2.0, 1.0, 1.0, 1.0]])
    """
    pairs = [(_stripped(batch), np.ones(batch.num_sequences, bool)) for batch in batches]
    joined = [batch for batch, _ in join_batches(pairs) if batch.loss_mask.any()]
    if not joined:
        return None
    members: dict[str, list[int]] = {}
    cell, sequence, num_cells, num_sequences = [], [], 0, 0
    for batch in joined:
        cells = cells_of(batch)
        for name, rows in cells.slices.items():
            if name not in UNUSED_SLICES:
                members.setdefault(name, []).extend(row + num_cells for row in rows)
        cell.append(cells.index + num_cells)
        sequence.append(cells.sequence + num_sequences)
        num_cells, num_sequences = num_cells + cells.num_cells, num_sequences + batch.num_sequences
    ids, of_sequence = np.unique(np.concatenate([batch.episode_id for batch in joined]), return_inverse=True)
    names = sorted(members)
    sequences = np.concatenate(sequence)
    sizes = np.array([len(members[name]) for name in names])
    return StepTokens(
        batches=tuple(joined), slices=tuple(names), cell=np.concatenate(cell), sequence=sequences,
        trajectory=of_sequence[sequences], of_sequence=of_sequence, num_trajectories=int(ids.size),
        num_cells=num_cells, members=np.concatenate([members[name] for name in names]),
        starts=np.concatenate([[0], np.cumsum(sizes)[:-1]]),
    )  # fmt: skip


def _stripped(batch: TokenBatch) -> TokenBatch:
    """The columns that series read, so that batches which differ in others are joined."""
    if batch.episode_id.size != batch.num_sequences:
        raise BatchError("episode_id has another number of sequences than the batch")
    return replace(
        batch, advantages=None, token_ids=None, routed_experts=None,
        rollout_routed_experts=None, policy_version=None, current_version=None, clip_range=None, reference="",
        reward_parts={}, stop_reason=None,
    )  # fmt: skip

"""Sums over whole sequences, gathered as batches come and handed to the state of the slice `all` when it is
measured.

B sequences, N tokens of a batch. A trajectory counts once, when it is first seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any

import numpy as np

from trimtab.measure.sequences.reencoding import Difference
from trimtab.measure.sequences.response_shape import text_summaries
from trimtab.measure.sequences.reward_statistics import RewardRows
from trimtab.measure.state.requirements import Requirements
from trimtab.measure.state.slice_state import SliceState
from trimtab.types import TokenBatch
from trimtab.typing import Bool, Int64


@dataclass
class Episodes:
    """`add` each batch, `close` each step, `fill` the states that are measured; what found no state waits for
    the next."""

    requirements: Requirements = field(default_factory=Requirements)
    pending: SliceState = field(default_factory=SliceState)
    open: list[tuple[TokenBatch, Bool]] = field(default_factory=list)
    closed: list[tuple[TokenBatch, Bool, Int64]] = field(default_factory=list)

    def add(self, batch: TokenBatch, fresh: Bool) -> None:
        """Keep a batch of the open step; `fresh` (B,) marks trajectories seen for the first time."""
        if fresh.any():
            self.open.append((batch, fresh))

    def retokenised(self, difference: Difference) -> None:
        """Take one sequence that was encoded again."""
        self._absorb(difference.summaries(), {})

    def close(self, step: int) -> None:
        """The step is over: what came since the last one is of it."""
        number = 0 if self.requirements.groups_span_steps else step
        self.closed += [(b, fresh, np.full(b.num_sequences, number)) for b, fresh in self.open]
        self.open = []

    def fill(self, states: dict[str, SliceState]) -> None:
        """Add up the closed steps and hand what is held over to the slice `all` of `states`, if it is
        there."""
        self._add_up()
        every = states.get("all")
        if every is None:
            return
        states["all"] = replace(
            every,
            summaries={**every.summaries, **self.pending.summaries},
            excluded={**every.excluded, **self.pending.excluded},
        )
        self.pending = SliceState()

    def _add_up(self) -> None:
        closed, self.closed = self.closed, []
        rows: list[RewardRows] = []
        looked_at = 0
        for _, alike in groupby(closed, key=lambda item: _kind(item[0])):
            batch, fresh, step = _joined(list(alike))
            summaries, excluded, looked_at = text_summaries(batch, fresh, looked_at)
            self._absorb(summaries, excluded)
            if batch.reward is not None:
                rows.append(RewardRows.of(batch, fresh, step))
        if rows:
            self._absorb(*RewardRows.joined(rows).summaries(self.requirements.solved_at))

    def _absorb(self, summaries: Mapping[str, Any], excluded: Mapping[str, int]) -> None:
        counts = {reason: count for reason, count in excluded.items() if count}
        self.pending.absorb(SliceState(summaries=dict(summaries), excluded=counts))


def _kind(batch: TokenBatch) -> tuple[Any, ...]:
    """Batches of one kind have the same columns."""
    arrays = tuple(f.name for f in fields(batch) if isinstance(getattr(batch, f.name), np.ndarray))
    return arrays, batch.stop_reason is None, bool(batch.tool_names), tuple(batch.reward_parts)


def _joined(items: list[tuple[TokenBatch, Bool, Int64]]) -> tuple[TokenBatch, Bool, Int64]:
    """Batches of one kind as one: the cost of measuring is a cost a call. Their tables of names are the first
    one's."""
    if len(items) == 1:
        return items[0]
    batches = [batch for batch, _, _ in items]
    first = batches[0]
    changes: dict[str, Any] = {
        name: np.concatenate([getattr(batch, name) for batch in batches]) for name in _kind(first)[0]
    }
    changes["reward_parts"] = {
        name: np.concatenate([batch.reward_parts[name] for batch in batches]) for name in first.reward_parts
    }
    if first.stop_reason is not None:
        changes["stop_reason"] = tuple(reason for batch in batches for reason in batch.stop_reason or ())
    flags, steps = (np.concatenate([item[i] for item in items]) for i in (1, 2))
    return replace(first, **changes), flags, steps

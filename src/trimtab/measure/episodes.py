"""Sums over whole sequences of each step, gathered as batches come and handed to the state of the slice `all`.

B sequences, N tokens of a batch. A trajectory counts once, when it is first seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab.measure.declared import Declared
from trimtab.measure.retokenise import Difference
from trimtab.measure.rewards import RewardRows
from trimtab.measure.state import SliceState
from trimtab.measure.text_shape import text_parts
from trimtab.records import Bool, TokenBatch

__all__ = ["Episodes"]


@dataclass
class Episodes:
    """`add` each batch, `close` each step, `fill` the states that are measured; what found no state waits for the next."""

    declared: Declared = field(default_factory=Declared)
    held: SliceState = field(default_factory=SliceState)
    rows: list[RewardRows] = field(default_factory=list)
    looked_at: int = 0  # tokens of this step whose repetition was counted

    def add(self, batch: TokenBatch, fresh: Bool) -> None:
        """Take what measures of whole sequences need of a batch; `fresh` (B,) marks trajectories seen for the first time."""
        if not fresh.any():
            return
        parts, excluded, self.looked_at = text_parts(batch, fresh, self.looked_at)
        self._absorb(parts, excluded)
        if batch.reward is not None:
            self.rows.append(RewardRows.of(batch, fresh))

    def retokenised(self, difference: Difference) -> None:
        """Take one sequence that was encoded again."""
        self._absorb(difference.parts(), {})

    def close(self, step: int) -> None:
        """The step is over: its rewards can be compared within their groups."""
        rows, self.rows, self.looked_at = self.rows, [], 0
        if rows:
            whole = RewardRows.joined(rows)
            self._absorb(
                *whole.parts(0 if self.declared.groups_span_steps else step, self.declared.solved_at)
            )

    def fill(self, states: dict[str, SliceState]) -> None:
        """Hand what is held over to the slice `all` of `states`, if it is there."""
        every = states.get("all")
        if every is None:
            return
        states["all"] = replace(
            every,
            parts={**every.parts, **self.held.parts},
            excluded={**every.excluded, **self.held.excluded},
        )
        self.held = SliceState()

    def _absorb(self, parts: Mapping[str, Any], excluded: Mapping[str, int]) -> None:
        counts = {reason: count for reason, count in excluded.items() if count}
        self.held.absorb(SliceState(parts=dict(parts), excluded=counts))

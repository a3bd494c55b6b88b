"""From batches to readings: what is pending is measured together, stored in blocks, and judged in windows."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.capture import join_batches
from trimtab.measure.accumulate import observe
from trimtab.measure.all_measures import not_observed, pair_readings, readings_of, unobservable
from trimtab.measure.policy.exemplar_tokens import EXEMPLAR_SLICES
from trimtab.measure.sequences.episode_totals import Episodes
from trimtab.measure.sequences.step_aggregates import StepAggregates
from trimtab.measure.state.blocks import StateBlocks
from trimtab.measure.state.log_ratios import RATIOS
from trimtab.measure.state.slice_state import Accumulator, SliceState
from trimtab.measure.state.windows import Closed, WindowClock, WindowSet
from trimtab.measure.tokens.window_shift import WindowShift
from trimtab.types import Reading, TokenBatch
from trimtab.typing import Bool

MAX_PENDING_TOKENS = 32_768
_MAX_WINDOWS = 4  # windows' tokens that wait at most, however long a stored block is
"""Tokens that wait at most to be measured (default, not calibrated: 2 MB): blocks of a long run are hundreds
of steps."""

Rows = list[dict[str, object]]


class Measuring:
    """Holds batches until measuring them is worth a call. `store` takes the rows of `states` to be written,
    before anything is read from them; `keep(slice, closed)` is called with each closed window.

    `not_observed`: name -> why, by the columns of the batches of the last step that had any, and by what was
    measured last.
    """

    def __init__(
        self,
        windows: WindowSet,
        episodes: Episodes,
        state_every: int,
        store: Callable[[Rows], None],
        keep: Callable[[str, Closed], None],
    ) -> None:
        self.windows, self.episodes, self.store, self.keep = windows, episodes, store, keep
        self.aggregates = StepAggregates()
        self.not_observed: dict[str, str] = {}
        self.blocks = StateBlocks(state_every)
        self.judges = True  # False: windows close for `keep` alone, and readings are made elsewhere
        self._shift = WindowShift()
        self._pending: list[tuple[TokenBatch, Bool]] = []
        self._pending_first = -1
        self._num_closed = 0  # of the pending batches, those of closed steps
        self._missing: dict[str, str] | None = None  # of the open step; None before its first batch

    def hand_over(self, *, states: bool) -> None:
        """Leave the judging to another, who also takes the `states` of finished blocks if so."""
        self.judges = False
        self.blocks.finished = [] if states else None

    def add(self, batch: TokenBatch, fresh: Bool) -> None:
        """Keep a batch of the open step; `fresh` (B,) marks trajectories seen for the first time."""
        self._pending.append((batch, fresh))
        self.episodes.add(batch, fresh)
        missing = unobservable(batch)
        known = missing if self._missing is None else self._missing
        self._missing = {name: why for name, why in missing.items() if name in known}

    def step(self, step: int, num_tokens: int) -> list[Reading]:
        """Close a step of `num_tokens`: readings of the windows that close with it.

        Measures at a step with a window's tokens, when those of four wait, and at the end of a stored block.
        """
        self.episodes.close(step)
        self._pending_first = step if self._pending_first < 0 else self._pending_first
        ends, readings = self.blocks.ends_at(step), []
        waiting = sum(batch.num_tokens for batch, _ in self._pending)
        size = self.windows.min_tokens
        enough = num_tokens >= size or waiting >= min(_MAX_WINDOWS * size, MAX_PENDING_TOKENS)
        if ends or enough:
            readings = self._measure(step, ends)
        if self._missing is not None:
            others = {name: why for name, why in self.not_observed.items() if name not in RATIOS}
            self.not_observed, self._missing = others | self._missing, None
        if (
            self.judges and "all" not in self.windows.clocks and not self._pending
        ):  # a trainer without tokens has its averages
            readings += self.aggregates.without_tokens()
        self._num_closed = len(self._pending)
        return readings

    def drop_step(self) -> None:
        """Forget the batches of the open step."""
        del self._pending[self._num_closed :]
        self._missing = None

    def settle(self, step: int | None) -> list[Reading]:
        """Measure what still waits up to `step`, and end the block."""
        if self._pending and step is not None:
            return self._measure(step, ends=True)
        self.store(self.blocks.finish())
        return []

    def _measure(self, step: int, ends: bool) -> list[Reading]:
        first, states = self._observe_pending()
        self.blocks.add(first, step, states)
        if ends:
            self.store(self.blocks.finish())
        return self._close_windows(first, step, states)

    def _observe_pending(self) -> tuple[int, dict[str, SliceState]]:
        """Measure the pending batches: their first step and the state of each slice. They are pending no
        more."""
        pending, first = self._pending, self._pending_first
        self._pending, self._pending_first, self._num_closed = [], -1, 0
        merged = Accumulator()
        for batch, fresh in join_batches(pending):
            self.not_observed = not_observed(states := observe(batch, fresh))
            merged.add_all(states)
        self.episodes.fill(merged.states)
        return first, merged.states

    def _close_windows(self, first: int, step: int, states: dict[str, SliceState]) -> list[Reading]:
        readings: list[Reading] = []
        if not self.judges:
            self._keep_windows(first, step, states)
            return readings
        closed, pair = self.windows.add(first, step, states)
        for name, done in closed:
            self.keep(name, done)
            judged = readings_of(name, done.window, done.states[name], self._shift)
            readings += self.aggregates.apply(judged, done.window) if name == "all" else judged
        if pair is not None:
            readings += pair_readings(pair.window, pair.states)
        return readings

    def _keep_windows(self, first: int, step: int, states: dict[str, SliceState]) -> None:
        """Close the windows of this rank's worst tokens, which are not merged."""
        sizes = self.windows.min_tokens, self.windows.min_trajectories
        for name in EXEMPLAR_SLICES:
            clock = self.windows.clocks.setdefault(name, WindowClock((name,), *sizes))
            done = clock.add(first, step, states)
            if done is not None:
                self.keep(name, done)

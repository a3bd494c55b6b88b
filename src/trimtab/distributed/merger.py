"""Merger: folds each step of all ranks once, late, in constant memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from trimtab.distributed.merged_step import MergedStep, merge_steps
from trimtab.distributed.shard import Block, Shard
from trimtab.errors import SummaryError
from trimtab.measure.state.bulk_states import merge_packed
from trimtab.measure.state.slice_state import NOT_STORED, Accumulator, SliceState
from trimtab.measure.steps.rank_merge import merge_ranks
from trimtab.measure.steps.series_row import series_from_row
from trimtab.measure.steps.step_series import StepSeries

CHUNK = 64
"""Packed states that are merged between two looks at the clock (some 60 ms of 20 slices each)."""


@dataclass
class _Life:
    """What is known of one rank."""

    session: int = -1
    next_number: int = 0
    last_step: int = -1


@dataclass
class _Open:
    """A step that is being folded."""

    shards: list[Shard]
    missing: tuple[int, ...]
    packed: dict[int, list[str | bytes]] = field(default_factory=dict)  # last step of a block -> states
    merged: dict[int, Accumulator] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)


class Merger:
    """Takes shards in any order of ranks and gives merged steps in order.

    A step is folded when every rank of `ranks` has written it or a later one, or when some rank is `lag`
    steps ahead of it; the ranks it lacks are then recorded as missing. A shard that comes later is counted
    and dropped. So is one that has been seen before, and one of a session that a newer one of its rank
    supersedes. At most `lag` steps of shards are kept, whatever the length of the run.

    Example:
        merger = Merger(ranks=range(4), lag=4)
        for shard in source.poll():
            merger.add(shard)
        for merged in merger.fold(budget_s=0.2):
            print(merged.step, merged.row["slices"]["all"], merged.missing)
    """

    def __init__(self, ranks: Collection[int], lag: int = 4) -> None:
        self.ranks, self.lag = tuple(sorted(ranks)), lag
        self.folded_through: int | None = None  # the last step that was folded
        self.num_late = 0  # shards of steps that had been folded without them
        self.num_repeated = 0  # shards seen before
        self.num_superseded = 0  # shards of a session that a newer one took over
        self.num_lost = 0  # shards whose numbers never came
        self.num_damaged = 0  # states or series that cannot be read
        self.missing: Counter[int] = Counter()  # rank -> steps folded without it
        self._lives: dict[int, _Life] = {}
        self._pending: dict[int, dict[int, Shard]] = {}
        self._open: _Open | None = None

    def add(self, shard: Shard) -> bool:
        """Take a shard; return whether it will be folded."""
        life = self._lives.setdefault(shard.rank, _Life())
        if shard.session < life.session:
            self.num_superseded += 1
            return False
        if shard.session > life.session:
            self._supersede(shard)
            self._lives[shard.rank] = life = _Life(shard.session, shard.number)
        if shard.number < life.next_number:
            self.num_repeated += 1
            return False
        self.num_lost += shard.number - life.next_number
        life.next_number = shard.number + 1
        life.last_step = max(life.last_step, shard.step)
        if self._is_folded(shard.step):
            self.num_late += 1
            return False
        self._pending.setdefault(shard.step, {})[shard.rank] = shard
        return True

    def add_all(self, shards: Iterable[Shard]) -> None:
        """`add` of each."""
        for shard in shards:
            self.add(shard)

    def fold(self, budget_s: float = 0.2, *, everything: bool = False) -> list[MergedStep]:
        """Return the steps that are complete now, in order.

        Args:
            budget_s: seconds after which the rest is left to the next call; at least one piece is done.
            everything: wait for no rank any longer, as at the end of a run.
        """
        deadline = time.monotonic() + budget_s
        merged: list[MergedStep] = []
        while True:
            if self._open is None:
                self._open = self._next(everything)
            if self._open is None or not self._advance(self._open, deadline):
                return merged
            merged.append(self._finish(self._open))
            self._open = None

    @property
    def num_pending(self) -> int:
        """Shards that wait for those of other ranks."""
        return sum(map(len, self._pending.values()))

    def behind(self, step: int) -> list[int]:
        """Return the ranks that have not written `step` or a later one yet."""
        return [rank for rank in self.ranks if self._last_step(rank) < step]

    def status(self) -> dict[str, int | dict[str, int]]:
        """Return the counts for the run's record; those of 0 are left out."""
        counts = {
            "late": self.num_late, "repeated": self.num_repeated, "superseded": self.num_superseded,
            "lost": self.num_lost, "damaged": self.num_damaged,
        }  # fmt: skip
        status: dict[str, int | dict[str, int]] = {name: n for name, n in counts.items() if n}
        if self.missing:
            status["missing"] = {str(rank): n for rank, n in sorted(self.missing.items())}
        return status

    def _is_folded(self, step: int) -> bool:
        return self.folded_through is not None and step <= self.folded_through

    def _last_step(self, rank: int) -> int:
        return self._lives[rank].last_step if rank in self._lives else -1

    def _supersede(self, shard: Shard) -> None:
        """A new session of a rank begins with `shard`: what its earlier ones say of these steps is void."""
        for step in [step for step in self._pending if step >= shard.step]:
            if self._pending[step].pop(shard.rank, None) is not None:
                self.num_superseded += 1
            if not self._pending[step]:
                del self._pending[step]

    def _next(self, everything: bool) -> _Open | None:
        """Open the oldest step that need not wait any longer."""
        if not self._pending:
            return None
        step = min(self._pending)
        shards = self._pending[step]
        missing = tuple(rank for rank in self.ranks if rank not in shards)
        waits = any(self._last_step(rank) <= step for rank in missing)
        if waits and not everything and max(self._pending) - step < self.lag:
            return None
        del self._pending[step]
        self.folded_through = step
        self.missing.update(missing)
        opened = _Open([shards[rank] for rank in sorted(shards)], missing)
        for shard in opened.shards:
            for block in shard.blocks:
                opened.first[block.last] = min(block.first, opened.first.get(block.last, block.first))
                if isinstance(block.states, Mapping):
                    states = _storable(block.states) if len(self.ranks) > 1 else dict(block.states)
                    opened.merged.setdefault(block.last, Accumulator()).add_all(states)
                else:
                    opened.packed.setdefault(block.last, []).append(block.states)
        return opened

    def _advance(self, opened: _Open, deadline: float) -> bool:
        """Merge packed states until all are done (True) or the time is up."""
        while opened.packed:
            last = min(opened.packed)
            some, rest = opened.packed[last][:CHUNK], opened.packed[last][CHUNK:]
            states, damaged = merge_packed(some)
            self.num_damaged += len(damaged)
            opened.merged.setdefault(last, Accumulator()).add_all(states)
            if rest:
                opened.packed[last] = rest
            else:
                del opened.packed[last]
            if opened.packed and time.monotonic() > deadline:
                return False
        return True

    def _finish(self, opened: _Open) -> MergedStep:
        shards = opened.shards
        series = {shard.rank: one for shard in shards if (one := self._series(shard)) is not None}
        (row,) = merge_steps(shard.row for shard in shards)
        return MergedStep(
            step=shards[0].step,
            ranks=tuple(shard.rank for shard in shards),
            missing=opened.missing,
            row=row,
            of_rank={shard.rank: shard.row for shard in shards},
            series=merge_ranks(list(series.values()), list(series)) if series else None,
            tools=tuple(row for shard in shards for row in shard.tools),
            blocks=tuple(
                Block(opened.first[last], last, merged.states)
                for last, merged in sorted(opened.merged.items())
            ),
        )

    def _series(self, shard: Shard) -> StepSeries | None:
        if shard.series is None or isinstance(shard.series, StepSeries):
            return shard.series
        try:
            return series_from_row(shard.series)
        except (SummaryError, KeyError, TypeError):
            self.num_damaged += 1
            return None


def _storable(states: Mapping[str, SliceState]) -> dict[str, SliceState]:
    """States as other ranks send them: without the exact top-k values, of which one rank's say nothing of
    all. Slices that share a state still do."""
    stripped: dict[int, SliceState] = {}
    for state in states.values():
        parts = {k: v for k, v in state.summaries.items() if k.rsplit("/", 1)[1] not in NOT_STORED}
        if id(state) not in stripped:
            stripped[id(state)] = state.with_summaries(parts)
    return {name: stripped[id(state)] for name, state in states.items()}

"""What one slice has seen, as mergeable sums: the state every reading is derived from.

A `SliceState` is a fixed list of named summaries, each of which obeys the merge laws, so merging, bytes and
equality are one line each. B sequences, N tokens with gradient, C cells.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab.catalog import LAG_BUCKETS
from trimtab.measure.state.reward_groups import GroupSums
from trimtab.measure.state.state_bytes import read_state, write_state
from trimtab.measure.state.worst_tokens import Worst
from trimtab.stats import (
    CategoryCounts,
    ClusterTail,
    Counts,
    ExtremeCounts,
    LogMoments,
    LogSketch,
    Moments,
    TopK,
)

SUMMARY_CLASSES: dict[str, type[Any]] = {
    "sketch": LogSketch,  # token log-ratios x: histogram, sums of x, e^x, e^2x, e^-x
    "clusters": ClusterTail,  # |x| by trajectory, for intervals
    "rises": ClusterTail,  # the same of x > 0 alone, where w and 1/w have tails of their own
    "upper": TopK,  # largest x, exact; not kept on disk
    "lower": TopK,  # largest -x
    "sequence": LogMoments,  # sequence log-weights
    "gap": LogSketch,  # first-order gap a sequence
    "log_gap": LogSketch,  # the logarithm of gaps beyond the histogram of `gap`
    "values": Moments,  # a plain per-token or per-sequence quantity
    "lengths": LogSketch,  # gradient tokens a sequence
    "groups": GroupSums,  # rewards by group
    "edges": ExtremeCounts,  # rewards at the extremes
    "mass": LogSketch,  # |A w| a token
    "clip": CategoryCounts,  # side of the clip range by sign of the advantage
    **dict.fromkeys(LAG_BUCKETS, LogSketch),  # x of the tokens of one age
    "layers": Counts,  # agreement of routes by layer
    "worst": Worst,  # the worst tokens; rows of their own on disk
}
"""Last component of a key -> class. A state's key is `<what>/<name>`, e.g. `drift/sketch`."""

NOT_STORED = frozenset({"upper", "lower", "worst"})


@dataclass
class SliceState:
    """Summaries by key, token and trajectory counts, what was excluded, and which sequences dominate.

    `scored_*` count what the reference scored, where it scores a sample: windows close on what their readings
    rest on. `top_mass` is the largest |A w| mass of one trajectory and `sum_mass` the total, so their share
    merges exactly.
    """

    n_tokens: int = 0
    n_trajectories: int = 0
    n_sequences: int = 0
    scored_tokens: int = 0
    scored_trajectories: int = 0
    top_mass: float = 0.0
    sum_mass: float = 0.0
    summaries: dict[str, Any] = field(default_factory=dict)
    excluded: dict[str, int] = field(default_factory=dict)
    notes: dict[str, str] = field(
        default_factory=dict
    )  # ratio -> name of the reference, or why it was not observed

    def merge(self, other: SliceState) -> SliceState:
        """The state of both streams; neither is changed."""
        merged = self.copy()
        merged.absorb(other)
        return merged

    def copy(self) -> SliceState:
        """A state that shares nothing with this one."""
        summaries = {key: summary.copy() for key, summary in self.summaries.items()}
        return replace(self, summaries=summaries, excluded=dict(self.excluded), notes=dict(self.notes))

    def with_summaries(self, summaries: dict[str, Any]) -> SliceState:
        """The same counts and texts over other summaries, which are shared and not copied."""
        return replace(self, summaries=summaries)

    def absorb(self, other: SliceState) -> None:
        """`merge` in place, for a state that nobody else holds; the other is not changed."""
        for key, part in other.summaries.items():
            if key in self.summaries:
                self.summaries[key].absorb(part)
            else:
                self.summaries[key] = part.copy()
        self.n_tokens += other.n_tokens
        self.n_trajectories += other.n_trajectories
        self.n_sequences += other.n_sequences
        self.scored_tokens += other.scored_tokens
        self.scored_trajectories += other.scored_trajectories
        self.top_mass = max(self.top_mass, other.top_mass)
        self.sum_mass += other.sum_mass
        for key, count in other.excluded.items():
            self.excluded[key] = self.excluded.get(key, 0) + count
        self.notes = _join_notes(self.notes, other.notes)

    def to_bytes(self) -> bytes:
        """Compact bytes without the exact top-k summaries, which live in memory only."""
        counts = (
            self.n_tokens,
            self.n_trajectories,
            self.n_sequences,
            self.scored_tokens,
            self.scored_trajectories,
        )
        stored = {
            k: part for k, part in sorted(self.summaries.items()) if k.rsplit("/", 1)[1] not in NOT_STORED
        }
        return write_state((*counts, self.top_mass, self.sum_mass), self.excluded, self.notes, stored)

    @classmethod
    def from_bytes(cls, data: bytes, wanted: Collection[str] | None = None) -> SliceState:
        """Inverse of `to_bytes`, with all summaries or the given ones alone; SummaryError when the bytes are
        not a slice state."""
        head, excluded, notes, summaries = read_state(data, SUMMARY_CLASSES, wanted)
        state = cls(*head)
        state.excluded, state.notes, state.summaries = excluded, notes, summaries
        return state


@dataclass
class Accumulator:
    """States by slice that grow by `add` without changing what was added; a lone state is kept, not
    copied."""

    states: dict[str, SliceState] = field(default_factory=dict)
    owned: set[str] = field(default_factory=set)

    def add(self, name: str, state: SliceState) -> None:
        """Merge one state into the slice's own."""
        if name not in self.states:
            self.states[name] = state
            return
        if name not in self.owned:
            self.states[name] = self.states[name].copy()
            self.owned.add(name)
        self.states[name].absorb(state)

    def add_all(self, states: Mapping[str, SliceState]) -> None:
        """`add` of every slice; slices that share one state object on both sides still share one and absorb
        once."""
        met: dict[
            tuple[int, int], tuple[SliceState, SliceState]
        ] = {}  # holds both, so that no id comes again
        for name, state in states.items():
            mine = self.states.get(name)
            if mine is None:
                self.states[name] = state
                continue
            if (known := met.get((id(mine), id(state)))) is None:
                shared = name not in self.owned or sum(other is mine for other in self.states.values()) > 1
                merged = mine.copy() if shared else mine
                merged.absorb(state)
                known = met[id(mine), id(state)] = (mine, merged)
            self.states[name] = known[1]
            self.owned.add(name)


def _join_notes(one: dict[str, str], two: dict[str, str]) -> dict[str, str]:
    """Both texts of a key, each once and in order, so that merging commutes."""
    joined = dict(one)
    for key, text in two.items():
        known = {part for part in (*joined.get(key, "").split("; "), *text.split("; ")) if part}
        joined[key] = "; ".join(sorted(known))
    return joined

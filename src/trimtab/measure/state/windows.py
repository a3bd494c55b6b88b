"""Windows close when they hold enough to be judged: 2,000 tokens from 30 trajectories in every slice they
cover.

Until then there are no readings, and views say "not judged yet", never "fine".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab.catalog import WINDOW_TOKENS, WINDOW_TRAJECTORIES
from trimtab.measure.state.slice_state import Accumulator, SliceState
from trimtab.types import Window


@dataclass(frozen=True)
class Closed:
    """A window that has enough: its steps and the merged state of each slice it covers."""

    window: Window
    states: dict[str, SliceState]


@dataclass
class WindowClock:
    """Merges steps until every slice in `slices` has enough; then hands the states over and starts again."""

    slices: tuple[str, ...]
    min_tokens: int = WINDOW_TOKENS
    min_trajectories: int = WINDOW_TRAJECTORIES
    first: int | None = None
    merged: Accumulator = field(default_factory=Accumulator)

    def add(self, first: int, last: int, step_states: Mapping[str, SliceState]) -> Closed | None:
        """Add the states of steps first..last; the closed window when it is now complete."""
        for name in self.slices:
            state = step_states.get(name)
            if state is not None:
                self.merged.add(name, state)
                self.first = first if self.first is None else self.first
        if self.first is None or not all(self._enough(name) for name in self.slices):
            return None
        closed = Closed(Window(self.first, last), self.merged.states)
        self.first, self.merged = None, Accumulator()
        return closed

    def progress(self, name: str) -> tuple[int, int]:
        """(tokens, trajectories) of a slice in the open window, of those its readings rest on."""
        state = self.merged.states.get(name)
        return (state.scored_tokens, state.scored_trajectories) if state is not None else (0, 0)

    def _enough(self, name: str) -> bool:
        tokens, trajectories = self.progress(name)
        return tokens >= self.min_tokens and trajectories >= self.min_trajectories


@dataclass
class WindowSet:
    """One clock a slice as slices appear, and one for the pair (text, post_tool), whose ratio needs the same
    steps."""

    min_tokens: int = WINDOW_TOKENS
    min_trajectories: int = WINDOW_TRAJECTORIES
    clocks: dict[str, WindowClock] = field(default_factory=dict)
    pair: WindowClock = field(init=False)

    def __post_init__(self) -> None:
        self.pair = WindowClock(("text", "post_tool"), self.min_tokens, self.min_trajectories)

    def add(
        self, first: int, last: int, states: Mapping[str, SliceState]
    ) -> tuple[list[tuple[str, Closed]], Closed | None]:
        """Closed windows by slice, and the closed pair, after steps first..last."""
        closed: list[tuple[str, Closed]] = []
        for name in states:
            clock = self.clocks.setdefault(name, WindowClock((name,), self.min_tokens, self.min_trajectories))
            done = clock.add(first, last, states)
            if done is not None:
                closed.append((name, done))
        return closed, self.pair.add(first, last, states)

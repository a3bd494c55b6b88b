"""What a step cost this rank: seconds by phase, memory, and the seconds of its episodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trimtab.capture.clean_values import Door
from trimtab.capture.memory_use import read_memory
from trimtab.capture.phase_clock import PhaseClock
from trimtab.typing import Bool

ToolSeconds = tuple[int, float, str]
"""Number of the episode, seconds with waiting, and tool of one call."""


class EpisodeTimes(NamedTuple):
    """Seconds of one rank's episodes of a step, and what is known of the one that ended last."""

    num: int
    median_s: float
    longest_s: float
    next_s: float  # the second longest; 0 with one episode
    episode: int = -1  # number of the longest one
    source: str = ""  # data source (task) of the longest one
    tools: str = ""  # tools that the longest one called, in words


class StepCosts:
    """Collects the costs of the open step; `take` returns them as fields of the step's row."""

    def __init__(self) -> None:
        self.clock = PhaseClock()
        self._episodes: list[tuple[float, int, str, str]] = []

    def add_episodes(self, seconds: Any, arrays: Mapping[str, Any], fresh: Bool, door: Door) -> None:
        """Take (B,) wall seconds of the episodes of one batch; what is not a positive number is counted.

        Args:
            seconds: of each episode, from its first request to its last token.
            arrays: the other arguments of `observe`: `episode_id`, `source` and `tools`, each (B,), name the
                slow one.
            fresh: (B,) episodes that were not counted before.
            door: counts what cannot be used.
        """
        values = np.asarray(seconds, np.float64).reshape(-1)
        ids, sources, tools = (arrays.get(name) for name in ("episode_id", "source", "tools"))
        for i, value in enumerate(values.tolist()):
            if not fresh[i]:
                continue
            if not math.isfinite(value) or value < 0:
                door.changed["episode_s"] += 1
                continue
            number, source, names = _at(ids, i, -1), _at(sources, i, ""), _at(tools, i, ())
            known = isinstance(number, (int, np.integer))
            source = door.name("source", source) if isinstance(source, str) else ""
            self._episodes.append((value, int(number) if known else -1, source, _words(names, door)))

    def take(self, calls: Iterable[ToolSeconds] = ()) -> dict[str, Any]:
        """Return the fields of the step's row and begin anew.

        Args:
            calls: (episode, seconds, name) of the step's tool calls. Where no episode's seconds are known,
                those of its calls stand in.
        """
        memory = read_memory()
        row = self.clock.take() | ({"memory": memory} if memory else {})
        episodes, self._episodes = self._episodes or _of_calls(calls), []
        if episodes:
            first, *others = sorted(episodes, key=lambda one: -one[0])
            after = others[0][0] if others else 0.0
            median = float(np.median([one[0] for one in episodes]))
            row["episodes"] = EpisodeTimes(len(episodes), median, first[0], after, *first[1:])._asdict()
        return row


def episodes_of(row: Mapping[str, Any]) -> EpisodeTimes | None:
    """Return what a row of steps says of its episodes; None where it says nothing that can be used.

    >>> episodes_of({"episodes": {"num": 4, "median_s": 2.0, "longest_s": 9.0, "next_s": 3.0}}).longest_s
    9.0
    """
    stored = row.get("episodes")
    if not isinstance(stored, Mapping):
        return None
    numbers = [stored.get(name) for name in ("num", "median_s", "longest_s", "next_s")]
    if not all(isinstance(one, (int, float)) and math.isfinite(one) and one >= 0 for one in numbers):
        return None
    num, median, longest, after = (float(one or 0) for one in numbers)
    episode = stored.get("episode", -1)
    texts = (str(stored.get(name, "")) for name in ("source", "tools"))
    return EpisodeTimes(int(num), median, longest, after, episode if isinstance(episode, int) else -1, *texts)


def _of_calls(calls: Iterable[ToolSeconds]) -> list[tuple[float, int, str, str]]:
    """Return the seconds that each episode's tool calls took; none where calls do not name an episode."""
    seconds: dict[int, float] = {}
    names: dict[int, list[str]] = {}
    for episode, took, name in calls:
        if episode >= 0 and math.isfinite(took):
            seconds[episode] = seconds.get(episode, 0.0) + max(took, 0.0)
            names.setdefault(episode, []).append(name)
    return [(took, episode, "", _words(names[episode], Door())) for episode, took in seconds.items()]


def _at(column: Any, i: int, default: Any) -> Any:
    try:
        return default if column is None else column[i]
    except (IndexError, KeyError, TypeError):
        return default


def _words(names: Any, door: Door) -> str:
    """Return tools with how often each was called.

    >>> _words(["search", "search", "python"], Door())
    'search x2, python'
    """
    if isinstance(names, str) or not isinstance(names, (Sequence, Iterable)):
        return ""
    counts: dict[str, int] = {}
    for name in names:
        clean = door.name("tool name", name)
        counts[clean] = counts.get(clean, 0) + 1
    return ", ".join(f"{name} x{n}" if n > 1 else name for name, n in list(counts.items())[:4])

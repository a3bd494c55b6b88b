"""EpisodeHold: the share of the steps that passes while all wait for one last episode."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trimtab.capture.step_costs import EpisodeTimes
from trimtab.catalog import bound


@dataclass(frozen=True)
class Hold:
    """What one last episode costs."""

    held_frac: float  # share of the step, median of the last `episode_steps`
    held_s: float  # seconds a step, likewise
    rank: int  # of the episode that held the latest step
    times: EpisodeTimes  # of that rank at that step
    median_s: float  # of the episodes of that step, the median over ranks of their medians

    @property
    def words(self) -> str:
        """Which episode it was and how long it took, beside the others."""
        one = self.times
        who = f"episode {one.episode}" if one.episode >= 0 else "one episode"
        known = [text for text in (one.source, f"tools: {one.tools}" if one.tools else "") if text]
        inside = f" ({'; '.join(known)})" if known else ""
        took = f"took {one.longest_s:.3g} s, the median {self.median_s:.3g} s"
        return (
            f"{who}{inside} on rank {self.rank} {took}; "
            f"{self.held_s:.3g} s a step are spent on the last episode alone"
        )


class EpisodeHold:
    """Takes the episode times of each step; answers from `episode_steps` on.

    A step waits for its longest episode. What it loses to that one alone is the time since the second
    longest of all ranks ended. One such step is chance, so the median of several counts.
    """

    def __init__(self) -> None:
        span = int(bound("episode_steps"))
        self._fractions: deque[float] = deque(maxlen=span)
        self._seconds: deque[float] = deque(maxlen=span)

    def update(self, ranks: Mapping[int, EpisodeTimes], duration_s: float = math.nan) -> Hold | None:
        """Take one step.

        Args:
            ranks: rank -> times of its episodes; ranks without episodes are left out.
            duration_s: wall seconds of the step; NaN, or less than its longest episode: that episode's.
        """
        if sum(one.num for one in ranks.values()) < 2:
            return None
        rank = max(ranks, key=lambda name: ranks[name].longest_s)
        times = ranks[rank]
        after = max([times.next_s, *(one.longest_s for name, one in ranks.items() if name != rank)])
        alone = times.longest_s - after
        whole = max(duration_s, times.longest_s) if math.isfinite(duration_s) else times.longest_s
        self._seconds.append(alone)
        self._fractions.append(alone / whole if whole > 0 else 0.0)
        if len(self._fractions) < bound("episode_steps"):
            return None
        median = float(np.median([one.median_s for one in ranks.values()]))
        return Hold(float(np.median(self._fractions)), float(np.median(self._seconds)), rank, times, median)

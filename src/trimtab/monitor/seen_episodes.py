"""Which trajectories were seen before, so that a second epoch does not count them twice, in bounded
memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from trimtab.typing import Bool, Int64

_BLOCK, _BLOCKS = 4_096, 16
REMEMBERED = _BLOCK * _BLOCKS
"""Trajectories remembered at least: 65,536."""


@dataclass
class SeenEpisodes:
    """Numbers of the latest trajectories. New ones are a set, older ones sorted arrays of 8 bytes each."""

    recent: dict[int, None] = field(default_factory=dict)
    blocks: deque[Int64] = field(default_factory=lambda: deque(maxlen=_BLOCKS))
    older: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))  # all blocks, sorted

    def add(self, episodes: Int64) -> Bool:
        """Remember these (B,); return (B,) True for those not seen before.

        >>> SeenEpisodes().add(np.array([7, 8, 7])).tolist()
        [True, True, False]
        """
        index = np.minimum(np.searchsorted(self.older, episodes), max(0, self.older.size - 1))
        known = self.older[index] == episodes if self.older.size else np.zeros(episodes.size, bool)
        fresh = ~known
        for i in np.flatnonzero(fresh).tolist():
            episode = int(episodes[i])
            fresh[i] = episode not in self.recent
            self.recent[episode] = None
        while len(self.recent) >= _BLOCK:
            numbers = list(self.recent)
            self.blocks.append(np.array(numbers[:_BLOCK], np.int64))
            self.recent = dict.fromkeys(numbers[_BLOCK:])
            self.older = np.sort(np.concatenate(self.blocks))
        return np.asarray(fresh)

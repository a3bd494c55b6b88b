"""Ranks that have written nothing for too long: which, and since which step."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from trimtab.catalog import bound

_MEMORY = 32  # intervals of a rank that are remembered


class SilenceEvent(NamedTuple):
    """A rank fell silent, or is back, or has ended."""

    rank: int
    began: bool  # False: it is back, or ended as it should
    since: int  # first step that it has not written
    num_steps: int  # closed by this rank since it was heard of last


@dataclass
class _Presence:
    last_step: int
    news_at: float  # seconds, when it was heard of last
    num_quiet: int = 0  # steps of this rank since then
    silent_since: int | None = None
    intervals: deque[float] = field(default_factory=lambda: deque(maxlen=_MEMORY))


def _never(_rank: int, _last_step: int) -> bool:
    return False


class SilentRanks:
    """Follows by its own steps whether the other ranks still write.

    A rank is silent when it has written nothing during `rank_silent_steps` steps of this rank, and for longer
    than `rank_silent_intervals` of its own median intervals. So ranks that step at other paces are not
    silent, and where a collective keeps all in step none is while the job waits for it.

    Example:
        >>> ranks = SilentRanks([1])
        >>> [len(ranks.close({1: min(step, 4)}, now=float(step))) for step in range(8)]
        [0, 0, 0, 0, 0, 0, 1, 0]
    """

    def __init__(self, ranks: Collection[int]) -> None:
        self.ranks = tuple(sorted(ranks))
        self._presences: dict[int, _Presence] = {}

    def close(
        self,
        last_steps: Mapping[int, int],
        now: float,
        stopped: Collection[int] = (),
        has_ended: Callable[[int, int], bool] = _never,
    ) -> list[SilenceEvent]:
        """Return which ranks fell silent, and which are back, as this rank closes a step.

        Args:
            last_steps: rank -> the last step that it has written, as far as is known here; -1 for none.
            now: seconds of a clock that only goes forward.
            stopped: ranks whose processes were stopped since the last call, whatever they have written since.
            has_ended: rank, last step known -> it ended as it should, and has nothing more to write.
        """
        events = []
        for rank in self.ranks:
            last = last_steps.get(rank, -1)
            presence = self._presences.setdefault(rank, _Presence(last, now, -1))
            presence.num_quiet += 1
            if last != presence.last_step and not (rank in stopped and presence.silent_since is None):
                events += self._news(rank, presence, last, now)
                continue
            is_silent = presence.silent_since is not None
            if not (is_silent or rank in stopped or self._is_silent(presence, now)):
                continue
            if has_ended(rank, last):
                events += self._back(rank, presence)
            elif not is_silent:
                presence.silent_since = presence.last_step + 1
                events.append(SilenceEvent(rank, True, presence.silent_since, presence.num_quiet))
        return events

    def pause(self, now: float) -> None:
        """Begin anew to wait for each rank: nothing can be seen of them."""
        for presence in self._presences.values():
            presence.news_at, presence.num_quiet = now, 0

    @property
    def silent(self) -> dict[int, int]:
        """Rank -> first step that it has not written, of the ranks that are silent now."""
        ranks = self._presences.items()
        return {rank: one.silent_since for rank, one in ranks if one.silent_since is not None}

    def _news(self, rank: int, presence: _Presence, last: int, now: float) -> list[SilenceEvent]:
        if presence.silent_since is None and presence.last_step >= 0:
            presence.intervals.append((now - presence.news_at) / max(1, last - presence.last_step))
        events = self._back(rank, presence)
        presence.last_step, presence.news_at, presence.num_quiet = last, now, 0
        return events

    @staticmethod
    def _back(rank: int, presence: _Presence) -> list[SilenceEvent]:
        """Return that a rank is silent no longer, where it was."""
        since, presence.silent_since = presence.silent_since, None
        return [] if since is None else [SilenceEvent(rank, False, since, presence.num_quiet)]

    @staticmethod
    def _is_silent(presence: _Presence, now: float) -> bool:
        if presence.num_quiet < bound("rank_silent_steps"):
            return False
        if not presence.intervals:
            return now - presence.news_at > bound("rank_unseen_s")
        usual = statistics.median(presence.intervals)
        return now - presence.news_at > bound("rank_silent_intervals") * usual

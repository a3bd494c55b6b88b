"""Pairs of attempts at one task: which are allowed, why the others are not, and which come first."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from trimtab.traces.export.near_duplicates import NearDuplicateIndex, shingles
from trimtab.traces.export.samples import Sample
from trimtab.typing import Bool, Int64

OTHER_SYSTEM = "pair of attempts under different system prompts: they are not attempts at one task"
PAIRS = (
    "pair of attempts with other tools",
    OTHER_SYSTEM,
    "pair of attempts that began with other words (--same-prompt)",
    "pair of attempts that are nearly the same",
)
"""What rules out a pair of attempts of different scores, in the order of the checks."""

_NONE = "episode in no pair:"
ALONE = f"{_NONE} no other attempt at its task (without one, at its prompt) is left"
EQUAL = f"{_NONE} every other attempt has its score"
_WHY = ("have other tools", "have other system prompts", "began with other words (--same-prompt)")
EPISODES = tuple(f"{_NONE} the attempts of another score {why}" for why in (*_WHY, "are nearly the same"))
"""Why an episode is in no pair, each counted once: under the filter of `PAIRS` that left none of another
score."""
BEYOND = f"{_NONE} its task had its pairs (--per-task)"


class PairFilters:
    """Attempts (n,) at one task, all with a score, and the pairs that may be made of them.

    Two may be a pair when their scores differ, tools and system prompts (with `same_prompt` all of the
    prompt) are equal, and what the agent wrote is not nearly the same.
    """

    def __init__(self, attempts: Sequence[Sample], same_prompt: bool) -> None:
        self.score = np.array([one.score for one in attempts], float)
        self.size = np.array([one.size for one in attempts])
        self.prompt = _interned([one.prompt for one in attempts])
        self.uses = np.zeros(len(attempts), int)
        self._partners: list[list[int]] = [[] for _ in attempts]
        every = np.zeros(len(attempts), int)
        self._equal = (
            _interned([_sorted_texts(one.tools) for one in attempts]),
            _interned([one.system for one in attempts]),
            self.prompt if same_prompt else every,
        )
        self._near: list[list[int]] = [[] for _ in attempts]
        texts = [shingles(one) for one in attempts]
        index = NearDuplicateIndex(texts)
        for i, text in enumerate(texts):
            for j in index.to(text):
                self._near[i].append(j)
                self._near[j].append(i)
            index.add(text)

    def _masks(self, i: int) -> Iterator[Bool]:
        """Yield masks (n,): attempts of another score, then those that each filter of `PAIRS` leaves."""
        mask = self.score != self.score[i]
        yield mask
        for codes in self._equal:
            mask = mask & (codes == codes[i])
            yield mask
        mask = mask.copy()
        mask[self._near[i]] = False
        yield mask

    def count(self, left_out: Counter[str]) -> tuple[int, list[str]]:
        """Return the number of possible pairs, and for each attempt the reason if it is in none.

        Pairs that are ruled out are counted in `left_out`.
        """
        possible, causes = 0, []
        for i in range(len(self.score)):
            masks = list(self._masks(i))
            worse = self.score < self.score[i]
            counts = [int(np.count_nonzero(mask & worse)) for mask in masks]
            for why, before, after in zip(PAIRS, counts, counts[1:], strict=False):
                left_out[why] += before - after
            possible += counts[-1]
            reasons = zip((EQUAL, *EPISODES), masks, strict=True)
            causes.append(next((reason for reason, mask in reasons if not mask.any()), BEYOND))
        return possible, causes

    def chosen(self, limit: int, match_length: bool) -> Iterator[tuple[int, int]]:
        """Yield up to `limit` pairs of a better and a worse attempt.

        The order: pairs of one prompt, of attempts used least often, of the widest gap in score, with
        `match_length` of the closest sizes. The best partner of an attempt only gets worse as others are
        used, so it is searched again when its turn comes.
        """
        best = [pair for i in range(len(self.score)) if (pair := self._best(i, match_length))]
        heapq.heapify(best)
        while best and limit:
            first = heapq.heappop(best)
            i, j = first[-2:]
            now = self._best(i, match_length)
            if now == first:
                self.uses[[i, j]] += 1
                self._partners[i].append(j)
                limit -= 1
                yield i, j
                now = self._best(i, match_length)
            if now:
                heapq.heappush(best, now)

    def _best(self, i: int, match_length: bool) -> tuple[Any, ...] | None:
        *_, mask = self._masks(i)
        mask &= self.score < self.score[i]
        mask[self._partners[i]] = False
        partners = np.flatnonzero(mask)
        if not partners.size:
            return None
        gap = self.size - self.size[i]
        ranks = (
            self.prompt != self.prompt[i],
            self.uses + self.uses[i],
            self.score - self.score[i],
            np.abs(gap) if match_length else 0 * gap,
        )
        for rank in ranks:
            values = rank[partners]
            partners = partners[values == values.min()]
        j = int(partners[0])
        return (*(rank[j].item() for rank in ranks), i, j)


def _sorted_texts(tools: Sequence[Any] | None) -> list[str] | None:
    return None if tools is None else sorted(json.dumps(tool, sort_keys=True) for tool in tools)


def _interned(values: Sequence[Any]) -> Int64:
    """Return numbers (n,), equal for equal values."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(json.dumps(value, sort_keys=True), len(known)) for value in values])

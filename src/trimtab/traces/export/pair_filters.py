"""Which attempts at one task may stand against each other in a pair, why the others may not, and which pairs come first."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.traces.export.near_duplicates import Near, shingles
from trimtab.traces.export.samples import Sample
from trimtab.typing import Bool

OTHER_SYSTEM = "pair of attempts under different system prompts: they are no attempts at one task"
PAIRS = (
    "pair of attempts with other tools", OTHER_SYSTEM, "pair of attempts that began with other words (--same-prompt)",
    "pair of attempts that are nearly the same",
)  # fmt: skip
"""What bars a pair of attempts of different scores, in the order in which it is looked for."""

_NONE = "episode in no pair:"
ALONE = f"{_NONE} no other attempt at its task (without one, at its prompt) is left"
EQUAL = f"{_NONE} every other attempt has its score"
EPISODES = tuple(
    f"{_NONE} the attempts of another score {why}"
    for why in ("have other tools", "have other system prompts", "began with other words (--same-prompt)", "are nearly the same")
)  # fmt: skip
"""Why an episode is in no pair, each counted once: under the bar of `PAIRS` that left nobody of another score."""
BEYOND = f"{_NONE} its task had its pairs (--per-task)"


class Rivals:
    """Attempts (n,) at one task, all with a score. Two may be a pair when their scores differ, tools and system prompts (with
    `same_prompt` all of the prompt) are equal, and what the agent wrote is not nearly the same."""

    def __init__(self, attempts: Sequence[Sample], same_prompt: bool) -> None:
        self.score = np.array([one.score for one in attempts], float)
        self.size = np.array([one.size for one in attempts])
        self.prompt = _codes([one.prompt for one in attempts])
        self.uses = np.zeros(len(attempts), int)
        self._made: list[list[int]] = [[] for _ in attempts]
        every = np.zeros(len(attempts), int)
        self._equal = (
            _codes([_in_any_order(one.tools) for one in attempts]),
            _codes([one.system for one in attempts]),
            self.prompt if same_prompt else every,
        )
        self._near: list[list[int]] = [[] for _ in attempts]
        texts = [shingles(one) for one in attempts]
        index = Near(texts)
        for i, text in enumerate(texts):
            for j in index.to(text):
                self._near[i].append(j)
                self._near[j].append(i)
            index.add(text)

    def _masks(self, i: int) -> Iterator[Bool]:
        """(n,) those of another score, then those that each bar of `PAIRS` leaves."""
        mask = self.score != self.score[i]
        yield mask
        for code in self._equal:
            mask = mask & (code == code[i])
            yield mask
        mask = mask.copy()
        mask[self._near[i]] = False
        yield mask

    def count(self, left_out: Counter[str]) -> tuple[int, list[str]]:
        """How many pairs may be made, and of each attempt why it is in none if it should be; barred pairs are counted in `left_out`."""
        possible, causes = 0, []
        for i in range(len(self.score)):
            masks = list(self._masks(i))
            worse = self.score < self.score[i]
            counts = [int(np.count_nonzero(mask & worse)) for mask in masks]
            for why, before, after in zip(PAIRS, counts, counts[1:], strict=False):
                left_out[why] += before - after
            possible += counts[-1]
            causes.append(
                next((c for c, m in zip((EQUAL, *EPISODES), masks, strict=True) if not m.any()), BEYOND)
            )
        return possible, causes

    def chosen(self, limit: int, match_length: bool) -> Iterator[tuple[int, int]]:
        """Up to `limit` pairs of a better and a worse attempt: those of one prompt first, of attempts used least, of the widest gap, with
        `match_length` of the closest sizes. An attempt's best only gets worse as others are used, so it is looked for anew when its turn comes."""
        best = [found for i in range(len(self.score)) if (found := self._best(i, match_length))]
        heapq.heapify(best)
        while best and limit:
            asked = heapq.heappop(best)
            i, j = asked[-2:]
            now = self._best(i, match_length)
            if now == asked:
                self.uses[[i, j]] += 1
                self._made[i].append(j)
                limit -= 1
                yield i, j
                now = self._best(i, match_length)
            if now:
                heapq.heappush(best, now)

    def _best(self, i: int, match_length: bool) -> tuple[Any, ...] | None:
        *_, mask = self._masks(i)
        mask &= self.score < self.score[i]
        mask[self._made[i]] = False
        places = np.flatnonzero(mask)
        if not places.size:
            return None
        gap = self.size - self.size[i]
        ranks = (
            self.prompt != self.prompt[i], self.uses + self.uses[i], self.score - self.score[i], np.abs(gap) if match_length else 0 * gap,
        )  # fmt: skip
        for rank in ranks:
            found = rank[places]
            places = places[found == found.min()]
        j = int(places[0])
        return (*(rank[j].item() for rank in ranks), i, j)


def _in_any_order(tools: Sequence[Any] | None) -> list[str] | None:
    return None if tools is None else sorted(json.dumps(tool, sort_keys=True) for tool in tools)


def _codes(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """(n,) equal numbers for equal values."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(json.dumps(value, sort_keys=True), len(known)) for value in values])

"""Near-duplicates among samples: the Jaccard overlap of their five-word runs, compared within one task."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from trimtab.traces.export.samples import Sample

NEAR = 0.9
"""Jaccard overlap from which two completions are near-duplicates (default, not calibrated)."""

_FEW = 16  # texts that are sooner compared than indexed
_UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf"  # Thai, Lao
    "\u1000-\u103f\u1050-\u109d\ua9e0-\ua9fe\uaa60-\uaa7f\u1780-\u17d3"  # Myanmar, Khmer
    "\u3005-\u3007\u3041-\u30fa\u30fc-\u312f\u31a0-\u31bf\u31f0-\u31ff\uff66-\uff9f"  # kana, bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
"""Characters of scripts that put no space between words, vowel signs included: each is a word of its own."""
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")

Runs = frozenset[int]


def shingles(sample: Sample) -> Runs:
    """Return hashes (64 bits, of this process) of the five-word runs of what the agent wrote, case aside.

    A shorter text is one run.
    """
    own = [m for m in sample.completion if m["role"] == "assistant"]
    return _runs(text for message in own for text in _texts(message))


def _runs(texts: Iterable[str]) -> Runs:
    words = [word for text in texts for word in _WORD.findall(text.lower())]
    runs = zip(words, words[1:], words[2:], words[3:], words[4:], strict=False)
    return frozenset(map(hash, runs)) or frozenset([hash(tuple(words))])


def _texts(message: dict[str, Any]) -> Iterator[str]:
    """Yield the content, and of calls the names and the keys and values of the arguments."""
    yield message["content"]
    left = [
        part
        for call in reversed(message.get("tool_calls") or ())
        for part in (call["function"]["arguments"], call["function"]["name"])
    ]
    while left:  # no recursion: arguments may be nested deep
        value = left.pop()
        if isinstance(value, dict):
            left += [part for key, one in reversed(value.items()) for part in (one, key)]
        elif isinstance(value, list):
            left += reversed(value)
        else:
            yield value if isinstance(value, str) else json.dumps(value)


def overlap(a: Runs, b: Runs) -> float:
    """Return the Jaccard index of two sets of runs.

    >>> overlap(frozenset([1, 2]), frozenset([2, 3])), overlap(frozenset(), frozenset())
    (0.3333333333333333, 1.0)
    """
    return len(a & b) / len(a | b) if a or b else 1.0


class NearDuplicateIndex:
    """Index of texts for finding those that overlap with another by NEAR and more, without comparing all.

    Sets whose overlap is t share at least a fraction t of either. Hence they share one of the rarest `n -
    ceil(t n) + 1` of the n runs of each, in any one order (the prefix filter: Chaudhuri, Ganti and Kaushik,
    ICDE 2006; Bayardo, Ma and Srikant, WWW 2007). Only texts that share one of those are compared, and none
    is missed.

    >>> texts = [frozenset(range(20)), frozenset(range(1, 20)), frozenset(range(40, 60))]
    >>> near = NearDuplicateIndex(texts)
    >>> near.add(texts[0]), list(near.to(texts[1])), list(near.to(texts[2]))
    (None, [0], [])
    """

    def __init__(self, texts: Iterable[Runs]) -> None:
        """Count the runs of `texts`: all that will be added or searched for. Another one raises KeyError."""
        texts = list(texts)
        self._few = len(texts) <= _FEW
        count = Counter() if self._few else Counter(run for text in texts for run in text)
        self._rank = {run: i for i, run in enumerate(sorted(count, key=lambda run: (count[run], run)))}
        self._texts: list[Runs] = []
        self._texts_of: dict[int, list[int]] = {}  # rank of a run -> the texts among whose rarest it is

    def add(self, text: Runs) -> None:
        """Add a text. Its number is the count of texts before it."""
        for run in () if self._few else self._rarest(text):
            self._texts_of.setdefault(run, []).append(len(self._texts))
        self._texts.append(text)

    def to(self, text: Runs) -> Iterator[int]:
        """Yield numbers of the texts that overlap with `text` by NEAR and more."""
        for i in range(len(self._texts)) if self._few else self._sharing(text):
            other = self._texts[i]
            fits = min(len(text), len(other)) >= NEAR * max(len(text), len(other))
            if fits and overlap(text, other) >= NEAR:
                yield i

    def _sharing(self, text: Runs) -> list[int]:
        return sorted({i for run in self._rarest(text) for i in self._texts_of.get(run, ())})

    def _rarest(self, text: Runs) -> list[int]:
        min_shared = math.ceil(NEAR * len(text) - 1e-9)  # 0.9 * 70 may be a little more than 63
        return sorted(map(self._rank.__getitem__, text))[: len(text) - min_shared + 1]


def without_near_duplicates(samples: Iterable[Sample]) -> tuple[list[Sample], int]:
    """Return the samples without near-duplicates of an earlier one of the same task and score, and their
    number.

    Near-duplicates have nearly the same question, too.
    """
    groups: dict[tuple[tuple[str, str], str, float | None], list[tuple[int, Sample]]] = {}
    for number, sample in enumerate(samples):
        groups.setdefault((*sample.key, sample.score), []).append((number, sample))
    fresh: list[tuple[int, Sample]] = []
    for group in groups.values():
        fresh += group[:1] if len(group) == 1 else _first_of_each(group)
    num_samples = sum(map(len, groups.values()))
    return [sample for _, sample in sorted(fresh, key=lambda one: one[0])], num_samples - len(fresh)


def _first_of_each(group: list[tuple[int, Sample]]) -> Iterator[tuple[int, Sample]]:
    texts = [shingles(sample) for _, sample in group]
    questions = [_runs(m["content"] for m in sample.prompt if m["role"] == "user") for _, sample in group]
    near, fresh = NearDuplicateIndex(texts), list[Runs]()
    for one, text, question in zip(group, texts, questions, strict=True):
        if not any(overlap(fresh[i], question) >= NEAR for i in near.to(text)):
            near.add(text)
            fresh.append(question)
            yield one

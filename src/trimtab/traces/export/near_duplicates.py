"""Which samples say almost the same? Shares of five-word runs, compared within one task; equal ones everywhere."""

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
    """Hashes (64 bits, of this process) of the five-word runs of what the agent wrote, case aside; of a shorter text the text itself."""
    own = [m for m in sample.completion if m["role"] == "assistant"]
    return _runs(text for message in own for text in _texts(message))


def _runs(texts: Iterable[str]) -> Runs:
    words = [word for text in texts for word in _WORD.findall(text.lower())]
    runs = zip(words, words[1:], words[2:], words[3:], words[4:], strict=False)
    return frozenset(map(hash, runs)) or frozenset([hash(tuple(words))])


def _texts(message: dict[str, Any]) -> Iterator[str]:
    """The content, and of calls the names and whatever the arguments hold; not the words of the form that all calls have."""
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
    """Jaccard's index.

    >>> overlap(frozenset([1, 2]), frozenset([2, 3])), overlap(frozenset(), frozenset())
    (0.3333333333333333, 1.0)
    """
    return len(a & b) / len(a | b) if a or b else 1.0


class Near:
    """Which of the texts added so far overlap with another by NEAR and more, without comparing it with all of them.

    Sets that overlap by a share t of their union share at least t of either, hence one of the rarest `n - ceil(t n) + 1` of the n
    runs of each, in any one order (the prefix filter: Chaudhuri, Ganti and Kaushik, ICDE 2006; Bayardo, Ma and Srikant, WWW 2007). Only
    texts that share one of those are compared; none is missed.

    >>> texts = [frozenset(range(20)), frozenset(range(1, 20)), frozenset(range(40, 60))]
    >>> near = Near(texts)
    >>> near.add(texts[0]), list(near.to(texts[1])), list(near.to(texts[2]))
    (None, [0], [])
    """

    def __init__(self, texts: Iterable[Runs]) -> None:
        """`texts`: all that will be added or asked about (KeyError for another); how often a run is in them says which are rare."""
        texts = list(texts)
        self._few = len(texts) <= _FEW
        count = Counter() if self._few else Counter(run for text in texts for run in text)
        self._rank = {run: i for i, run in enumerate(sorted(count, key=lambda run: (count[run], run)))}
        self._texts: list[Runs] = []
        self._places: dict[int, list[int]] = {}  # rank of a run -> the texts among whose rarest it is

    def add(self, text: Runs) -> None:
        """The next text; its number is how many were added before."""
        for run in () if self._few else self._rarest(text):
            self._places.setdefault(run, []).append(len(self._texts))
        self._texts.append(text)

    def to(self, text: Runs) -> Iterator[int]:
        """Numbers of the texts that overlap with it by NEAR and more."""
        for place in range(len(self._texts)) if self._few else self._sharing(text):
            other = self._texts[place]
            fits = min(len(text), len(other)) >= NEAR * max(len(text), len(other))
            if fits and overlap(text, other) >= NEAR:
                yield place

    def _sharing(self, text: Runs) -> list[int]:
        return sorted({place for run in self._rarest(text) for place in self._places.get(run, ())})

    def _rarest(self, text: Runs) -> list[int]:
        kept = math.ceil(NEAR * len(text) - 1e-9)  # 0.9 * 70 may be a little more than 63
        return sorted(map(self._rank.__getitem__, text))[: len(text) - kept + 1]


def without_copies(samples: Iterable[Sample]) -> tuple[list[Sample], int]:
    """The samples without those that nearly repeat an earlier one of the same task and score, the question included; how many were left out."""
    groups: dict[tuple[tuple[str, str], str, float | None], list[tuple[int, Sample]]] = {}
    for number, sample in enumerate(samples):
        groups.setdefault((*sample.key, sample.score), []).append((number, sample))
    kept: list[tuple[int, Sample]] = []
    for group in groups.values():
        kept += group[:1] if len(group) == 1 else _first_of_each(group)
    num_samples = sum(map(len, groups.values()))
    return [sample for _, sample in sorted(kept, key=lambda one: one[0])], num_samples - len(kept)


def _first_of_each(group: list[tuple[int, Sample]]) -> Iterator[tuple[int, Sample]]:
    texts = [shingles(sample) for _, sample in group]
    asked = [_runs(m["content"] for m in sample.prompt if m["role"] == "user") for _, sample in group]
    near, kept = Near(texts), list[Runs]()
    for one, text, question in zip(group, texts, asked, strict=True):
        if not any(overlap(kept[place], question) >= NEAR for place in near.to(text)):
            near.add(text)
            kept.append(question)
            yield one

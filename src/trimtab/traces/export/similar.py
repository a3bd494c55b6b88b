"""Which samples say almost the same? Shares of five-word shingles, compared within one task; equal ones everywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from trimtab.traces.export.samples import Sample

__all__ = ["NEAR", "overlap", "shingles", "without_copies"]

NEAR = 0.9
"""Jaccard overlap from which two completions are near-duplicates (house default)."""

_WORD = re.compile(r"\w+")


def shingles(sample: Sample) -> frozenset[bytes]:
    """Hashes of the five-word runs of what the agent wrote, case aside; of a shorter text the text itself."""
    own = [m for m in sample.completion if m["role"] == "assistant"]
    words = _WORD.findall(
        json.dumps([[m["content"], m.get("tool_calls")] for m in own], ensure_ascii=False).lower()
    )
    runs: Iterable[Sequence[str]] = [words[i : i + 5] for i in range(len(words) - 4)] or [words]
    return frozenset(
        blake2b(" ".join(run).encode("utf-8", "replace"), digest_size=8).digest() for run in runs
    )


def overlap(a: frozenset[bytes], b: frozenset[bytes]) -> float:
    """Jaccard's index.

    >>> overlap(frozenset([b"1", b"2"]), frozenset([b"2", b"3"])), overlap(frozenset(), frozenset())
    (0.3333333333333333, 1.0)
    """
    return len(a & b) / len(a | b) if a or b else 1.0


def without_copies(samples: Iterable[Sample]) -> tuple[list[Sample], int]:
    """The samples without those that nearly repeat an earlier one of the same task and score; how many were left out."""
    kept: list[Sample] = []
    seen: dict[tuple[tuple[str, str], str, float | None], list[frozenset[bytes]]] = {}
    dropped = 0
    for sample in samples:
        mine = shingles(sample)
        others = seen.setdefault((*sample.key, sample.score), [])
        if any(overlap(mine, other) >= NEAR for other in others):
            dropped += 1
            continue
        others.append(mine)
        kept.append(sample)
    return kept, dropped

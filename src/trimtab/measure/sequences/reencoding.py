"""Does the text the model wrote encode to the ids it sampled? Where it does not, the trainer scores other
tokens.

A trainer that decodes an answer and encodes it again trains on ids nobody sampled (TRL#5224, verl#3960).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.values import Value
from trimtab.stats import Moments


@dataclass(frozen=True)
class Difference:
    """Of one sequence: sampled ids, and how many of them lie at or after the first that differs (0: all the
    same)."""

    num_tokens: int
    num_after: int
    differs: bool

    def summaries(self) -> dict[str, Moments]:
        """Return the sums that merge, by key of a slice state."""
        sequences, tokens = Moments(), Moments()
        sequences.update([float(self.differs)])
        tokens.update((np.arange(self.num_tokens) >= self.num_tokens - self.num_after).astype(np.float64))
        return {"retokenise_sequence/values": sequences, "retokenise_token/values": tokens}


def difference(sampled: Sequence[int], reencoded: Sequence[int]) -> Difference:
    """Compare sampled ids (T,) with the ids of their decoded text (U,). Ids only added at the end differ, at
    no token.

    >>> difference([5, 6, 7], [5, 67])
    Difference(num_tokens=3, num_after=2, differs=True)
    """
    one, two = np.asarray(sampled, np.int64), np.asarray(reencoded, np.int64)
    shorter = min(one.size, two.size)
    unlike = np.flatnonzero(one[:shorter] != two[:shorter])
    first = int(unlike[0]) if unlike.size else shorter
    return Difference(one.size, one.size - first, bool(unlike.size) or one.size != two.size)


def retokenise(state: SliceState) -> Iterator[Value]:
    """`retokenise/sequence_frac` of the sequences that were encoded again, `retokenise/token_frac` of their
    tokens."""
    for what in ("sequence", "token"):
        part = state.summaries.get(f"retokenise_{what}/values")
        if part is not None:
            yield Value(
                f"retokenise/{what}_frac", part.mean(), part.count, reason="" if part.count else "no token"
            )

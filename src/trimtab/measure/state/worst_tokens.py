"""Worst: the k tokens of a slice with the largest |log-ratio|, each with where it stands, so that a person
can look."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

KEPT = 8


class WorstToken(NamedTuple):
    """One token: |log-ratio| and its two log-probabilities in nats, and where it stands.

    `position` counts the sequence's tokens from 0, tools' included; `token` is the id, -1 when none was
    given.
    """

    value: float
    numerator: float
    denominator: float
    episode: int
    position: int
    turn: int
    tool: str
    token: int
    before: tuple[int, ...] = ()  # ids of the tokens in front of it in its sequence
    after: tuple[int, ...] = ()


@dataclass
class Worst:
    """The `k` largest, largest first; ties go to the lower episode, then position. A token seen twice counts
    once, at its worst. Merging keeps exactly what one stream would have kept."""

    k: int = KEPT
    tokens: list[WorstToken] = field(default_factory=list)

    def update(self, tokens: Iterable[WorstToken]) -> None:
        """Take more tokens in, in any order.

        >>> worst = Worst(1)
        >>> worst.update([WorstToken(1.0, -1.0, -2.0, 7, 3, 1, "", 5), WorstToken(2.0, -1.0, -3.0, 7, 4, 1,
        ...     "", 5)])
        >>> [token.position for token in worst.tokens]
        [4]
        """
        best: dict[tuple[int, int], WorstToken] = {}
        for token in sorted((*self.tokens, *tokens), key=_order):
            best.setdefault((token.episode, token.position), token)
        self.tokens = list(best.values())[: self.k]

    def copy(self) -> Worst:
        """One that shares nothing with this."""
        return Worst(self.k, list(self.tokens))

    def absorb(self, other: Worst) -> None:
        """`merge` in place."""
        self.update(other.tokens)

    def merge(self, other: Worst) -> Worst:
        """The k worst of both; neither is changed."""
        out = self.copy()
        out.absorb(other)
        return out


def _order(token: WorstToken) -> tuple[object, ...]:
    return (-token.value, *token[3:], token.numerator, token.denominator)

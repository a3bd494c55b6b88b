"""Counts in words."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, noun: str) -> str:
    """A count with its noun.

    >>> counted(1, "malformed line"), counted(2_000, "episode"), counted(0, "call")
    ('1 malformed line', '2,000 episodes', '0 calls')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

"""Where did a tool speak? From one mask to phase, turn and last tool of every token.

N tokens packed sequence after sequence, B sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NEAR_TOKENS = 16
"""Tokens after a tool result that count as `near` (default, not calibrated; entropy jumps right after a
result, arXiv 2507.19849)."""

MAX_NAMES = 16
OTHER = "other"


@dataclass(frozen=True)
class Segments:
    """Per token (N,): phase (0 text, 1 near, 2 later), turn (from 1), and ordinal of the last tool result (0:
    none)."""

    phase: npt.NDArray[np.uint8]
    turn: npt.NDArray[np.int64]
    # index of the last tool token at or before this one in its sequence, -1: none
    last_token: npt.NDArray[np.int64]


def segment_tokens(
    lengths: npt.NDArray[np.int64], tool_tokens: npt.NDArray[np.bool_], near: int = NEAR_TOKENS
) -> Segments:
    """Split packed sequences at their tool results.

    `lengths` (B,) sums to N; `tool_tokens` (N,) is True on tokens written by a tool. Adjacent tool tokens are
    one result. A token is `near` when at most `near` tokens lie between it and the last tool token before it.

    >>> s = segment_tokens(np.array([5]), np.array([False, True, True, False, False]), near=1)
    >>> s.phase.tolist(), s.turn.tolist()
    ([0, 1, 1, 1, 2], [1, 2, 2, 2, 2])
    """
    n = int(tool_tokens.size)
    if n == 0:
        empty = np.zeros(0, np.int64)
        return Segments(empty.astype(np.uint8), empty, empty)
    position = np.arange(n, dtype=np.int64)
    first = np.repeat(np.cumsum(lengths) - lengths, lengths)
    previous = np.zeros(n, bool)
    previous[1:] = tool_tokens[:-1]
    previous[position == first] = False
    starts = np.cumsum(tool_tokens & ~previous)
    before = np.concatenate([[0], starts])[first]
    turn = 1 + starts - before
    last = np.maximum.accumulate(np.where(tool_tokens, position, -1))
    last = np.where(last >= first, last, -1)
    distance = position - last
    phase = np.where(last < 0, 0, np.where(distance <= near, 1, 2)).astype(np.uint8)
    return Segments(phase, turn.astype(np.int64), last)


def tool_codes(names: list[str] | tuple[str, ...], table: tuple[str, ...]) -> npt.NDArray[np.uint8]:
    """Code of each name in a declared table: 1..len(table), or len(table) + 1 for a name the table lacks.

    >>> tool_codes(["stock", "rm"], ("lookup", "stock")).tolist()
    [2, 3]
    """
    index = {name: i + 1 for i, name in enumerate(table)}
    return np.array([index.get(name, len(table) + 1) for name in names], dtype=np.uint8)

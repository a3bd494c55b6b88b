"""Loops in an episode: the same block of one to four calls, with the same answers, at least three times in a
row."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import NamedTuple

MAX_PERIOD = 4
MIN_ROUNDS = 3


_STAMPED = ("Chunk ID: ", "Exit code: ", "Wall time: ")
_STAMP = re.compile(r"^(?:Chunk ID|Wall time): [^\n]*(?:\n|\Z)", re.M)
_OLD_STAMP = re.compile(r',? ?"duration_seconds": ?[\d.e+-]+')
_OUTPUT = "\nOutput:\n"


def without_stamps(result: str | None) -> str | None:
    """The result without the chunk's number and the seconds that Codex writes over what a command printed.

    No two runs of a command share them.

    >>> without_stamps("Chunk ID: 5b1ad9\\nWall time: 0.4 seconds\\nProcess exited with code 0\\nOutput:\\na")
    'Process exited with code 0\\nOutput:\\na'
    """
    if result is None:
        return None
    if result.startswith(_STAMPED) and _OUTPUT in result:
        head, _, printed = result.partition(_OUTPUT)
        return f"{_STAMP.sub('', head)}{_OUTPUT}{printed}"
    if result.startswith('{"output"'):  # versions before 0.50
        return _OLD_STAMP.sub("", result)
    return result


class Loop(NamedTuple):
    """`calls` of the stretch, from index `start`, in blocks of `period`; all zero where there is none."""

    calls: int = 0
    start: int = 0
    period: int = 0


def longest_loop(keys: Sequence[Hashable]) -> Loop:
    """The longest stretch that repeats a block; of equally long ones that of the shortest block. O(MAX_PERIOD
    n).

    >>> longest_loop("xabababz"), longest_loop("aab"), longest_loop("xaaa")
    (Loop(calls=6, start=1, period=2), Loop(calls=0, start=0, period=0), Loop(calls=3, start=1, period=1))
    """
    best = Loop()
    for period in range(1, min(MAX_PERIOD, len(keys) // MIN_ROUNDS) + 1):
        same = 0
        for i in range(period, len(keys)):
            same = same + 1 if keys[i] == keys[i - period] else 0
            if same + period > best.calls and same >= (MIN_ROUNDS - 1) * period:
                best = Loop(same + period, i - same - period + 1, period)
    return best


def num_repeats(keys: Sequence[Hashable]) -> int:
    """Return the number of calls equal to an earlier one, answer included.

    >>> num_repeats("abca")
    1
    """
    return len(keys) - len(set(keys))


def first_repeat(keys: Sequence[Hashable]) -> int:
    """Return the index of the first call equal to an earlier one; -1 for none.

    >>> first_repeat("abcab"), first_repeat("abc")
    (3, -1)
    """
    seen: set[Hashable] = set()
    for index, key in enumerate(keys):
        if key in seen:
            return index
        seen.add(key)
    return -1

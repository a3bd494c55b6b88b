"""What was asked: attempts at one prompt are a group, where the log names neither task nor group."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from trimtab.traces.core.episode import Episode

ASKING = ("user", "system", "developer")
"""Roles whose words are the prompt."""

# of the episodes must share their prompt with another; fewer repeats are greetings, and no groups of training
_HALF = 0.5


_encode = msgspec.msgpack.Encoder().encode


def prompt_key(episode: Episode) -> int:
    """64 bits of the words of users and of the system, wherever they stand, and of the training step; 0 where
    no user said any.

    After a greeting the question comes behind the agent's first words, so later words count, too.

    >>> from trimtab.traces.core.episode import Turn
    >>> one, two = (Episode(id=i, turns=[Turn(role="user", content="2+2?")]) for i in "ab")
    >>> (prompt_key(one) == prompt_key(two) != 0, prompt_key(Episode(id="c", turns=[Turn(role="user",
    ...     content=" ")])))
    (True, 0)
    """
    prompt_parts = [
        (t.role, t.content) for t in episode.turns if t.role in ASKING and t.content and t.content.strip()
    ]
    if not any(role == "user" for role, _ in prompt_parts):
        return 0
    try:
        text = _encode((prompt_parts, episode.step))
    except (OverflowError, UnicodeError):  # large steps, lone surrogates
        text = repr((prompt_parts, episode.step)).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little", signed=True) or 1


def grouped_by_prompt(
    group: npt.NDArray[Any], groups: Sequence[str], prompt: npt.NDArray[Any], ids: Sequence[str]
) -> tuple[npt.NDArray[np.int64], list[str], int]:
    """(E,) groups and their names, with episodes of no group put to those of their prompt; how many episodes
    were.

    `group` (E,): index in `groups`, -1 for none. `prompt` (E,): equal where the prompt is equal, 0 unknown.
    Only where at least half of the episodes without a group share their prompt with another.

    >>> grouped = grouped_by_prompt(np.full(3, -1), [], np.array([7, 9, 7]), ["a", "b", "c"])
    >>> grouped[0].tolist(), *grouped[1:]
    ([0, -1, 0], ['prompt of episode a'], 2)
    """
    filled, names = group.astype(np.int64), list(groups)
    free = np.flatnonzero((group < 0) & (prompt != 0))
    if not free.size:
        return filled, names, 0
    _, first, inverse, sizes = np.unique(
        prompt[free], return_index=True, return_inverse=True, return_counts=True
    )
    shared = np.flatnonzero(sizes[inverse] >= 2)
    if shared.size < _HALF * free.size:
        return filled, names, 0
    heads = np.sort(first[sizes >= 2])
    new_group = np.zeros(sizes.size, np.int64)
    new_group[inverse[heads]] = len(names) + np.arange(heads.size)
    filled[free[shared]] = new_group[inverse[shared]]
    return filled, names + [f"prompt of episode {ids[free[i]]}" for i in heads.tolist()], int(shared.size)

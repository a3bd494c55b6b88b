"""The first step of an episode that went wrong: a failed call, a repeated call, or an empty turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from trimtab.traces.core.episode import Episode, Turn

WRONGS = ("failed call", "repeated call", "void turn")


class Wrong(NamedTuple):
    """`kind`: index in WRONGS, -1: nothing went wrong. `turn`: of the assistant's, from 1. `step`: the
    log's."""

    kind: int
    turn: int
    step: int


NOTHING = Wrong(-1, -1, -1)


def is_void(turn: Turn) -> bool:
    """An assistant turn with neither text nor call. Tokens without their text are no void."""
    return turn.role == "assistant" and not (turn.calls or turn.token_ids or (turn.content or "").strip())


def first_wrong(episode: Episode, keys: Sequence[Any]) -> Wrong:
    """Return the first wrong step; `keys` of its calls are equal where calls are identical, result included.

    >>> from trimtab.traces.core.episode import Call
    >>> turns = [Turn(role="user"), Turn(role="assistant", content="ok", step=1), Turn(role="assistant",
    ...     calls=[Call(error="no", step=4)])]
    >>> first_wrong(Episode(id="e", turns=turns), ["a"])
    Wrong(kind=0, turn=2, step=4)
    """
    seen: set[Any] = set()
    number = call_index = 0
    for turn in episode.turns:
        number += turn.role == "assistant"
        if is_void(turn):
            return Wrong(2, number, turn.step)
        for call in turn.calls:
            key = keys[call_index]
            if call.error or key in seen:
                return Wrong(0 if call.error else 1, number, call.step)
            seen.add(key)
            call_index += 1
    return NOTHING

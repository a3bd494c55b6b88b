"""The first visible symptom of an episode: a failed call, or a turn with neither text nor call.

It is where trouble first shows, not where the episode went wrong: on annotated failures the two are the same
step in about one of five (`benchmarks/first_symptom.py`). A repeated call is none: of those that stand in the
annotated failures, none is the mistake.
"""

from __future__ import annotations

from typing import NamedTuple

from trimtab.traces.core.episode import Episode, Turn

SYMPTOMS = ("failed call", "void turn")


class Symptom(NamedTuple):
    """`kind`: index in SYMPTOMS, -1: none. `turn`: of the assistant's, from 1. `step`: the log's."""

    kind: int
    turn: int
    step: int


NO_SYMPTOM = Symptom(-1, -1, -1)


def is_void(turn: Turn) -> bool:
    """An assistant turn with neither text nor call. Tokens without their text are no void."""
    return turn.role == "assistant" and not (turn.calls or turn.token_ids or (turn.content or "").strip())


def first_symptom(episode: Episode) -> Symptom:
    """Return the first visible symptom.

    >>> from trimtab.traces.core.episode import Call
    >>> turns = [Turn(role="user"), Turn(role="assistant", content="ok", step=1), Turn(role="assistant",
    ...     calls=[Call(error="no", step=4)])]
    >>> first_symptom(Episode(id="e", turns=turns))
    Symptom(kind=0, turn=2, step=4)
    """
    number = 0
    for turn in episode.turns:
        number += turn.role == "assistant"
        if is_void(turn):
            return Symptom(1, number, turn.step)
        for call in turn.calls:
            if call.error:
                return Symptom(0, number, call.step)
    return NO_SYMPTOM

"""Which message of SWE-agent's history belongs to which step of its trajectory?

A step whose answer could not be parsed, or was blocked, is in the trajectory alone: the model was asked again, and the history, which
goes back to the model, keeps only the answer that was run.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.traces.core.coerce import as_text
from trimtab.typing import Json


def messages_of_steps(steps: Sequence[Json], said: Sequence[Json]) -> list[Json | None]:
    """The agent's message of each step, None for a step that is not in the history.

    As many of both are taken in order. Else they are matched from the end, by the answer or the action, as of equal answers the last one was run.

    >>> messages_of_steps([{"response": "x"}, {"response": "y"}], [{"content": "y"}])
    [None, {'content': 'y'}]
    """
    if len(steps) == len(said):
        return list(said)
    found: list[Json | None] = [None] * len(steps)
    place = len(said) - 1
    for i in range(len(steps) - 1, -1, -1):
        while place > i and not _same(steps[i], said[place]):
            place -= 1  # a message without a step
        if place >= 0 and (_same(steps[i], said[place]) or i == place):  # as many are left of both
            found[i] = said[place]
            place -= 1
    return found


def not_run(step: Json, message: Json | None) -> bool:
    """Did the model have to be asked again? Such a step has no message, and nothing came of it."""
    return message is None and not (as_text(step.get("observation")) or "").strip()


def _same(step: Json, message: Json) -> bool:
    pairs = (("response", "content"), ("action", "action"))
    texts = [
        ((as_text(step.get(a)) or "").strip(), (as_text(message.get(b)) or "").strip()) for a, b in pairs
    ]
    return any(one and one == other for one, other in texts)

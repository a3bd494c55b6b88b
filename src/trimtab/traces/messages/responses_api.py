"""Answers in pieces: the Responses API writes reasoning, text and each call as an item of its own, which are
one message of the agent's.

An answer is the agent's items up to the first result, or to what somebody else says. Results stand after it,
in any order, by the call's id.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from trimtab.traces.core.coerce import as_text
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.messages.content_blocks import unpacked
from trimtab.traces.messages.gemini_bedrock import CALLS, RESULTS
from trimtab.traces.messages.hosted_tools import PROVIDER_CALLS, PROVIDER_RESULTS
from trimtab.traces.messages.langchain import speaker_of
from trimtab.typing import Json

_OWN = (*CALLS, *PROVIDER_CALLS, "reasoning")


def is_message(value: Any) -> bool:
    """Is it a message of any maker's, or an item that stands among messages?

    >>> [is_message(value) for value in ({"role": "user"}, {"type": "human", "content": "a"},
    ...     {"type": "reasoning"}, {"type": "object"})]
    [True, True, True, False]
    """
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    item = isinstance(kind, str) and (kind in _OWN or kind in RESULTS or kind in PROVIDER_RESULTS)
    return "role" in value or "from" in value or item or speaker_of(value) is not None


def in_openais_form(messages: Iterable[Any], report: ReadReport) -> Iterator[tuple[int, Json]]:
    """Messages as OpenAI's chats have them, each with the index of the message it was made of, or of the
    first of the items.

    A value that is not a message is counted and left out.
    """
    pieces: list[tuple[int, Json]] = []
    last = ""
    for index, value in enumerate(messages):
        if not isinstance(value, dict):
            report.num_messages += 1
            report.unread_message("messages that are no objects, left out")
            continue
        kind = _piece(value)
        if pieces and not (kind and "item" in (kind, last)):  # of two texts in a row each is an answer
            yield from _joined(pieces, report)
            pieces = []
        if kind:
            pieces.append((index, value))
        else:
            for one in unpacked(value, report):
                yield index, one
        last = kind
    yield from _joined(pieces, report)


def _joined(pieces: list[tuple[int, Json]], report: ReadReport) -> Iterable[tuple[int, Json]]:
    messages = [(index, one) for index, piece in pieces for one in unpacked(piece, report)]
    return _runs(messages) if len(pieces) > 1 else messages


def _runs(messages: Iterable[tuple[int, Json]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """What is said between results as one message, at the index of its first piece."""
    for result, some in itertools.groupby(messages, key=lambda one: one[1].get("role") == "tool"):
        pieces = list(some)
        if result:
            yield from ((index, dict(one)) for index, one in pieces)
        else:
            yield pieces[0][0], _merged([one for _, one in pieces])


def _piece(message: Json) -> str:
    """`item`, `text` (a message that may be a piece of an answer), or empty: not the agent's, or with calls
    of its own."""
    kind, role = message.get("type"), message.get("role")
    if role is None:
        return "item" if isinstance(kind, str) and kind in _OWN else ""
    return "text" if role == "assistant" and message.get("tool_calls") is None else ""


def joined_items(messages: list[Json]) -> list[Json]:
    """With the items of one answer together, of messages that are in OpenAI's form already."""
    joined: list[Json] = []
    for message in messages:
        pair = [*joined[-1:], message]
        same = len(pair) == 2 and all(one.get("role") == "assistant" for one in pair)
        if same and not all(one.get("content") for one in pair):
            joined[-1] = _merged(pair)
        else:
            joined.append(message)
    return joined


def answer_of(pieces: list[Json]) -> list[dict[str, Any]]:
    """An answer in pieces as one message; as more where the provider's own tools answered between them.

    >>> [m["role"] for m in answer_of([{"role": "assistant"}, {"role": "assistant"}, {"role": "tool"},
    ...     {"role": "assistant"}])]
    ['assistant', 'tool', 'assistant']
    """
    return [one for _, one in _runs(enumerate(pieces))]


def _merged(pieces: list[Json]) -> dict[str, Any]:
    """One message of an answer in pieces."""
    if len(pieces) == 1:
        return dict(pieces[0])
    calls = [c for m in pieces if isinstance(m.get("tool_calls"), list) for c in m["tool_calls"]]
    texts = {
        name: "\n".join(text for m in pieces if (text := as_text(m.get(name))))
        for name in ("content", "reasoning_content")
    }
    return {**pieces[0], **{name: text or None for name, text in texts.items()}, "tool_calls": calls}

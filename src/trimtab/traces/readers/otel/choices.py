"""The first of several answers (`n` > 1) to one request. An answer may be in pieces too, which are one."""

from __future__ import annotations

from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.messages.content_blocks import unpacked
from trimtab.traces.readers.otel.messages import answered, parsed
from trimtab.typing import Json


def first_answer(attributes: Json, report: ReadReport) -> list[Json]:
    """What the model answered, in OpenAI's messages: of several choices the first; the others are counted.

    A message is another choice where its index says so, after one with its reason to stop, or where both have a text. Items of the
    Responses API, and what the provider's own tools are among, are pieces.
    """
    pieces = [(message, unpacked(message, report)) for message in answered(attributes)]
    raw = parsed(attributes.get("output.value"))
    whole = isinstance(raw, dict) and isinstance(raw.get("output"), list)
    if whole or any(one.get("role") == "tool" for message, made in pieces for one in (message, *made)):
        return [one for _, made in pieces for one in made]
    choices: list[list[tuple[Json, list[Json]]]] = []
    for piece in pieces:
        if choices and not _is_other(choices[-1], piece):
            choices[-1].append(piece)
        else:
            choices.append([piece])
    if len(choices) > 1:
        report.note("further answers to one request (n > 1), left out", len(choices) - 1)
    return [one for _, made in (choices[0] if choices else ()) for one in made]


def _is_other(choice: list[tuple[Json, list[Json]]], piece: tuple[Json, list[Json]]) -> bool:
    last, index = choice[-1][0], piece[0].get("index")
    if index is not None and last.get("index") is not None:
        return bool(index != last["index"])
    return bool(last.get("finish_reason")) or (any(map(_has_text, choice)) and _has_text(piece))


def _has_text(piece: tuple[Json, list[Json]]) -> bool:
    return any(one.get("content") for one in piece[1])

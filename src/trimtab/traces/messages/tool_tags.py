"""Decoded text with tool tags to turns: what TRL and verl dump has no other structure.

Only Hermes' tags are read (`<tool_call>{"name": ..., "arguments": ...}</tool_call>`,
`<tool_response>...</tool_response>`), as Qwen's templates write them; other text stays text, of whom the
template says it is.
"""

from __future__ import annotations

import re

from trimtab.traces.core.coerce import as_label
from trimtab.traces.core.episode import Call, Turn
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.errors.detect import error_text
from trimtab.traces.messages.chat_template_text import parts_of_completion

_TAG = re.compile(r"<tool_(call|response)>(.*?)(?:</tool_\1>|\Z)", re.S)


def tagged_turns(text: str, report: ReadReport | None = None) -> list[Turn]:
    """Assistant turns with their calls; a response answers the oldest open call, and what follows it is a new
    turn.

    >>> turns = tagged_turns('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call><tool_response>2</tool_response>It is 2.')
    >>> [(turn.content, [(call.name, call.result) for call in turn.calls]) for turn in turns]
    [('', [('add', '2')]), ('It is 2.', [])]
    """  # noqa: E501
    turns = [Turn(role="assistant", content="", step=0)]
    open_calls: list[Call] = []
    for role, part in parts_of_completion(text, report or ReadReport()):
        if role == "tool" and part and not _TAG.search(part):
            _respond(turns, open_calls, part)
            continue
        at = 0
        for match in _TAG.finditer(part):
            _say(turns, part[at : match.start()], role)
            at = match.end()
            if match[1] == "call":
                _speaker(turns, "assistant")
                call = _call(match[2].strip(), turns[-1].step)
                turns[-1].calls.append(call)
                open_calls.append(call)
            else:
                _respond(turns, open_calls, match[2].strip())
        _say(turns, part[at:], role)
    return turns


def _respond(turns: list[Turn], open_calls: list[Call], text: str) -> None:
    if not open_calls:
        turns.append(Turn(role="tool", content=text, step=len(turns)))
        return
    call = open_calls.pop(0)
    call.result = text
    if not call.error and (error := error_text(text)):
        call.error, call.error_from = error, "text"


def _say(turns: list[Turn], text: str, role: str) -> None:
    words = text.strip()
    if not words:
        return
    _speaker(turns, role)
    turns[-1].content = f"{turns[-1].content}\n{words}".strip()


def _speaker(turns: list[Turn], role: str) -> None:
    """The last turn is this speaker's, and none of its calls is answered yet."""
    if turns[-1].role != role or any(call.result is not None for call in turns[-1].calls):
        turns.append(Turn(role=role, content="", step=len(turns)))


def _call(text: str, step: int) -> Call:
    try:
        value = parse_json(text)
        if isinstance(value, dict) and "name" in value:
            return Call(name=as_label(value["name"]) or "", arguments=value.get("arguments"), step=step)
        why = "no object with a name"
    except BadJson as error:
        why = str(error)
    return Call(bad_arguments=text, error=f"the call is {why}", error_from="parse", step=step)

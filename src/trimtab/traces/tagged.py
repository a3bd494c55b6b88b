"""Decoded text with tool tags to turns: what TRL and verl dump has no other structure.

Only Hermes' tags are read (`<tool_call>{"name": ..., "arguments": ...}</tool_call>`, `<tool_response>...</tool_response>`), as Qwen's
templates write them; other text stays text.
"""

from __future__ import annotations

import re

from trimtab.traces.episode import Call, Turn
from trimtab.traces.json_records import BadJson, parse_json
from trimtab.traces.tool_errors import error_text
from trimtab.traces.values import as_label

__all__ = ["tagged_turns"]

_TAG = re.compile(r"<tool_(call|response)>(.*?)(?:</tool_\1>|\Z)", re.S)
_CHAT = re.compile(r"<\|im_(?:start|end)\|>(?:assistant|user|tool)?\s?")


def tagged_turns(text: str) -> list[Turn]:
    """Assistant turns with their calls; a response answers the oldest open call, and what follows it is a new turn.

    >>> turns = tagged_turns('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call><tool_response>2</tool_response>It is 2.')
    >>> [(turn.content, [(call.name, call.result) for call in turn.calls]) for turn in turns]
    [('', [('add', '2')]), ('It is 2.', [])]
    """
    turns = [Turn(role="assistant", content="", step=0)]
    open_calls: list[Call] = []
    at = 0
    for match in _TAG.finditer(text):
        _say(turns, text[at : match.start()])
        at = match.end()
        if match[1] == "call":
            _speaker(turns)
            call = _call(match[2].strip(), turns[-1].step)
            turns[-1].calls.append(call)
            open_calls.append(call)
        elif open_calls:
            call = open_calls.pop(0)
            call.result = match[2].strip()
            if not call.error and (error := error_text(call.result)):
                call.error, call.error_from = error, "text"
        else:
            turns.append(Turn(role="tool", content=match[2].strip(), step=len(turns)))
    _say(turns, text[at:])
    return turns


def _say(turns: list[Turn], text: str) -> None:
    words = _CHAT.sub("", text).strip()
    if not words:
        return
    _speaker(turns)
    turns[-1].content = f"{turns[-1].content}\n{words}".strip()


def _speaker(turns: list[Turn]) -> None:
    """The last turn is the assistant's, and none of its calls is answered yet."""
    if turns[-1].role != "assistant" or any(call.result is not None for call in turns[-1].calls):
        turns.append(Turn(role="assistant", content="", step=len(turns)))


def _call(text: str, step: int) -> Call:
    try:
        value = parse_json(text)
        if isinstance(value, dict) and "name" in value:
            return Call(name=as_label(value["name"]) or "", arguments=value.get("arguments"), step=step)
        why = "no object with a name"
    except BadJson as error:
        why = str(error)
    return Call(bad_arguments=text, error=f"the call is {why}", error_from="parse", step=step)

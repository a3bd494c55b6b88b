"""Content in blocks to OpenAI's messages: Anthropic's blocks, Inspect's content, GenAI's parts, Responses' items.

Reasoning goes into its own field, calls and results to where OpenAI has them. What is left is text, or `[kind digest]`, counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.traces.reading import ReadReport
from trimtab.traces.values import as_label, as_text, first_of, placeholder, text_of

__all__ = ["reasoning_of", "unpacked"]

Json = Mapping[str, Any]
_CALLS = ("tool_use", "tool_call", "server_tool_use", "server_tool_call", "mcp_tool_use", "function_call")
_RESULTS = ("tool_result", "tool_call_response", "function_call_output", "server_tool_call_response")


def unpacked(message: Json, report: ReadReport) -> list[Json]:
    """The message as OpenAI writes it: the results in it first, as messages of their own, then the rest, if anything is.

    >>> block = {"type": "tool_result", "tool_use_id": "t", "content": "4"}
    >>> unpacked({"role": "user", "content": [block, {"type": "text", "text": "And 5?"}]}, ReadReport())
    [{'role': 'tool', 'tool_call_id': 't', 'content': '4'}, {'role': 'user', 'content': 'And 5?'}]
    """
    kind = message.get("type")
    if "role" not in message and kind in (*_CALLS, *_RESULTS, "reasoning"):  # an item of the Responses API
        message = {"role": "assistant", "content": [message]}
    given = message.get("content") if message.get("content") is not None else message.get("parts")
    if (
        not isinstance(given, list)
        or not given
        or not all(isinstance(b, dict) and "type" in b for b in given)
    ):
        return [message]
    texts: list[str] = []
    thought: list[str] = []
    calls: list[Json] = []
    results: list[Json] = []
    for block in given:
        kind = str(block["type"])
        if kind in _CALLS:
            calls.append(_call(block))
        elif kind in _RESULTS or kind.endswith("_tool_result"):
            results.append(_result(block, report))
        elif kind in ("reasoning", "thinking", "redacted_thinking"):
            thought += _thought(block, report)
        else:
            texts.append(_text(block, report))
    if results and not (texts or calls or thought):
        return results
    rest = {k: v for k, v in message.items() if k != "parts"}
    rest["content"] = "".join(texts) if texts else None
    if thought:
        rest["reasoning_content"] = "\n".join(filter(None, [reasoning_of(message), *thought]))
    if calls:
        known = message.get("tool_calls")
        rest["tool_calls"] = [*(known if isinstance(known, list) else ()), *calls]
    return [*results, rest]


def reasoning_of(message: Json) -> str | None:
    """The reasoning a message has in a field of its own."""
    return as_text(first_of(message, "reasoning_content", "reasoning", "thinking"))


def _call(block: Json) -> Json:
    arguments = first_of(block, "input", "arguments", "args")
    return {
        "id": as_label(first_of(block, "call_id", "id")),
        "function": {"name": as_label(block.get("name")), "arguments": arguments},
    }


def _text(block: Json, report: ReadReport) -> str:
    text = text_of(block)
    if text is None:
        report.note("parts of messages that are no text, written as [kind]")
    return placeholder(block) if text is None else text


def _result(block: Json, report: ReadReport) -> Json:
    content = first_of(block, "content", "response", "result", "output")
    if isinstance(content, list) and content and all(isinstance(b, dict) and "type" in b for b in content):
        content = "".join(_text(part, report) for part in content)
    made = {
        "role": "tool",
        "tool_call_id": as_label(first_of(block, "tool_use_id", "call_id", "tool_call_id", "id")),
        "content": content,
    }
    return {**made, **{name: block[name] for name in ("is_error", "error", "name") if name in block}}


def _thought(block: Json, report: ReadReport) -> list[str]:
    """Inspect's `reasoning`, Anthropic's `thinking`, GenAI's `content`, a Responses item's summary; what is encrypted is counted."""
    if block.get("redacted") is True or block["type"] == "redacted_thinking":
        report.note("reasoning that the provider encrypted, left out")
        texts = [block.get("summary")]
    else:
        texts = [first_of(block, "reasoning", "thinking", "text", "content", "summary")]
    return [text for text in map(as_text, texts) if text and text != "[]"]

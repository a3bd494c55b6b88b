"""Content in blocks to OpenAI's messages: Anthropic's blocks, Inspect's content, GenAI's parts, Responses'
items.

Reasoning goes into its own field, calls and results to where OpenAI has them. What is left is text, or `[kind
digest]`, counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

from trimtab.traces.core.coerce import as_label, as_list, as_text, first_of, objects_in, placeholder, text_of
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.messages.gemini_bedrock import CALLS, RESULTS, THOUGHTS, is_block, parts_of_result
from trimtab.traces.messages.hosted_tools import blocks_of_item
from trimtab.traces.messages.normalization import ROLES, translated
from trimtab.typing import Json

_PROVIDED = ("server_tool_use", "server_tool_call", "mcp_tool_use")
_ONCE = (
    "tool_calls", "invalid_tool_calls", "usage", "usage_metadata", "tokens", "reasoning_content", "reasoning",
    "thinking", "reasoning_details",
)  # fmt: skip
"""What is said of a message as a whole, and stays with the first of those it becomes."""
_MORE = frozenset(
    ("tool_calls", "parts", "toolInvocations", "additional_kwargs", "refusal", "audio", "reasoning_details")
)
"""Fields for which a message of text is looked at more closely."""
_TOLD = ("is_error", "isError", "error", "status", "name")
_ENCRYPTED = "reasoning that the provider encrypted, left out"
_SAID = (
    "content", "value", "parts", "tool_calls", "invalid_tool_calls", "function_call", "toolInvocations",
    "refusal", "audio",
    "reasoning_content", "reasoning", "thinking", "reasoning_details", "tool_call_id",
)  # fmt: skip
_ITEMS = "items of a kind that is none of ours, left out"
_KEYS = "messages with neither role nor content under a name we know, left out"
_NO_CONTENT = "messages without content under a name we know"
_NO_TEXT = "answers whose content is neither text nor parts of a kind we know, kept as JSON"


def unpacked(message: Json, report: ReadReport) -> list[Json]:
    """The message as OpenAI writes it: the results in it as messages of their own, then the rest, if anything
    is.

    What an agent says after the result of a provider's own tool is a message after it.

    >>> block = {"type": "tool_result", "tool_use_id": "t", "content": "4"}
    >>> unpacked({"role": "user", "content": [block, {"type": "text", "text": "And 5?"}]}, ReadReport())
    [{'role': 'tool', 'tool_call_id': 't', 'content': '4'}, {'role': 'user', 'content': 'And 5?'}]
    """
    report.num_messages += 1
    if message.get("role") in ROLES and isinstance(message.get("content"), str) and _MORE.isdisjoint(message):
        return [message]  # as most are, and nothing to do
    message = translated(_of_item(message, report))
    if says_nothing_known(message, report):
        return []
    note_encrypted(message, report)
    _note_unknown(message, report)
    content = message.get("content") if message.get("content") is not None else message.get("parts")
    if not (isinstance(content, list) and content and all(map(_is_typed, content))):
        return [message]
    if message.get("role") == "tool" and parts_of_result(content) is None:
        return [{**message, "content": _json(content)}]
    blocks = [_Block(_kind(block), block) for block in content]
    if message.get("role") != "assistant":  # results come before what is said with them
        blocks.sort(key=lambda block: block.kind != "result")
    messages: list[Json] = []
    for result, some in itertools.groupby(blocks, key=lambda block: block.kind == "result"):
        if result:
            messages += [_result(block.fields, report) for block in some]
        else:
            messages.append(_message_of_blocks(message, list(some), report))
            message = {k: v for k, v in message.items() if k not in _ONCE}
    return messages


def _of_item(message: Json, report: ReadReport) -> Json:
    """An item of the Responses API as a message of the agent's."""
    if message.get("role") is not None or message.get("from") is not None:
        return message
    if message.get("type") in (*CALLS, *RESULTS, "reasoning"):
        return {"role": "assistant", "content": [message]}
    blocks = blocks_of_item(message, report)
    return message if blocks is None else {"role": "assistant", "content": blocks}


def _is_typed(block: Any) -> bool:
    return isinstance(block, dict) and "type" in block


class _Block(NamedTuple):
    """`kind`: call, result, thought or text."""

    kind: str
    fields: Json


def _kind(block: Json) -> str:
    kind = str(block["type"])
    if kind in CALLS:
        return "call"
    if kind in RESULTS or kind.endswith("_tool_result"):
        return "result"
    return "thought" if kind in THOUGHTS else "text"


def _message_of_blocks(message: Json, blocks: list[_Block], report: ReadReport) -> Json:
    """A message of blocks none of which is a result."""
    texts = [_text(one, report) for kind, one in blocks if kind == "text"]
    thought = [text for kind, one in blocks if kind == "thought" for text in thoughts_of(one, report)]
    calls = [_call(one) for kind, one in blocks if kind == "call"]
    rest = {k: v for k, v in message.items() if k != "parts"}
    rest["content"] = "".join(texts) if texts else None
    if thought:
        rest["reasoning_content"] = "\n".join(filter(None, [reasoning_of(message), *thought]))
    if calls:
        known = as_list(message.get("tool_calls"))
        ids = [as_label(one.get("id")) for one in objects_in(known)]
        fresh = [call for call in calls if call["id"] is None or call["id"] not in ids]  # LangChain says both
        rest["tool_calls"] = [*known, *fresh]
    return rest


def provided(messages: Iterable[Any]) -> list[str]:
    """Names of the provider's own tools and of MCP's that messages call, each once: logs do not declare them
    as they are called.

    >>> provided([{"role": "assistant", "content": [{"type": "server_tool_use", "id": "s",
    ...     "name": "web_search", "input": {}}]}])
    ['web_search']
    """
    objects = [message for message in messages if isinstance(message, dict)]
    contents = [translated(_of_item(message, ReadReport())).get("content") for message in objects]
    blocks = (one for content in contents for one in objects_in(content))
    named = [one.get("name") for one in blocks if one.get("type") in _PROVIDED]
    return list(dict.fromkeys(name for name in named if isinstance(name, str)))


def _call(block: Json) -> Json:
    arguments = first_of(block, "input", "arguments", "args")
    if block["type"] == "custom_tool_call":  # free text
        arguments = {"input": as_text(arguments)}
    return {
        "id": as_label(first_of(block, "call_id", "id")),
        "function": {"name": as_label(block.get("name")), "arguments": arguments},
    }


def _text(block: Json, report: ReadReport) -> str:
    text = text_of(block)
    if text is None:
        report.note("parts of messages that are no text, written as [kind]")
    return placeholder(block) if text is None else text


def _json(items: list[Json]) -> str:
    """A tool's list of objects as JSON, where `as_text` takes what has a type for a part."""
    return f"[{', '.join(as_text(one) or '' for one in items)}]"


def _result(block: Json, report: ReadReport) -> Json:
    content = first_of(block, "content", "response", "result", "output")
    # of Anthropic's own tools
    failed = isinstance(content, dict) and str(content.get("type")).endswith("_error")
    parts = parts_of_result(content)
    if parts is not None:
        content = "".join(_text(part, report) for part in parts)
    elif isinstance(content, list) and all(map(_is_typed, content)):
        content = _json(content)
    call_id = as_label(first_of(block, "tool_use_id", "call_id", "tool_call_id", "id"))
    message = {"role": "tool", "tool_call_id": call_id, "content": content}
    if failed:
        message["error"] = first_of(content, "error_message", "error_code", "type")
    return {**message, **{name: block[name] for name in _TOLD if block.get(name) is not None}}


def reasoning_of(message: Json) -> str | None:
    """The reasoning a message has in a field of its own."""
    text = as_text(first_of(message, "reasoning_content", "reasoning", "thinking"))
    details = message.get("reasoning_details")  # OpenRouter's
    if text is not None or not isinstance(details, list):
        return text
    texts = [first_of(one, "text", "summary") for one in objects_in(details)]
    return "\n".join(text for text in texts if isinstance(text, str)) or None


def note_encrypted(message: Json, report: ReadReport) -> None:
    """Count OpenRouter's `reasoning_details` of which some are encrypted."""
    for one in objects_in(message.get("reasoning_details")):
        if one.get("type") == "reasoning.encrypted":
            report.note(_ENCRYPTED)


def thoughts_of(block: Json, report: ReadReport) -> list[str]:
    """Inspect's `reasoning`, Anthropic's `thinking`, GenAI's `content`, a Responses item's summary; what is
    encrypted is counted."""
    encrypted = block.get("encrypted_content") and not block.get("content")
    hidden = block.get("redacted") is True or block["type"] == "redacted_thinking"
    if hidden or encrypted:
        report.note(_ENCRYPTED)
    names = ("summary",) if hidden else ("reasoning", "thinking", "text", "content", "summary")
    text = as_text(next((block[name] for name in names if block.get(name)), None))
    return [text] if text else []


def says_nothing_known(message: Json, report: ReadReport) -> bool:
    """Has it no role, and nothing said under any name we know? Counted by its type, else by its keys.

    >>> report = ReadReport()
    >>> says_nothing_known({"who": "ann", "said": "q"}, report), says_nothing_known({"content": "q"}, report)
    (True, False)
    >>> list(report.notes)
    ['messages with neither role nor content under a name we know, left out; their keys: said, who']
    """
    if message.get("content") is not None:
        return False
    role = as_label(message.get("role"))
    if (role and role.strip()) or first_of(message, *_SAID) is not None:
        return False
    kind = message.get("type")
    if isinstance(kind, str) and kind:
        report.unread_messages[report.note_each(_ITEMS, kind)] += 1
    else:
        report.unread_message(_KEYS, message)
    return True


def _note_unknown(message: Json, report: ReadReport) -> None:
    """Count a message that has a speaker, and words that nobody can read."""
    content = first_of(message, "content", "parts")
    if content is None:
        if len(message) > 1 and not any(name in message for name in _SAID):
            report.unread_message(_NO_CONTENT, message)
    elif message.get("role") == "assistant" and is_unknown(content):
        keys = content if isinstance(content, dict) else {k for one in objects_in(content) for k in one}
        report.unread_message(_NO_TEXT, keys)


def is_unknown(content: Any) -> bool:
    """Is it an object, or a list with objects of which none is a part of a kind we know?

    >>> is_unknown({"weird": 1}), is_unknown([{"type": "text", "text": "a"}]), is_unknown("a")
    (True, False, False)
    """
    parts = [part for part in objects_in(content) if part]
    return (isinstance(content, dict) and bool(content)) or (
        bool(parts) and not any(is_block(part) or text_of(part) is not None for part in parts)
    )

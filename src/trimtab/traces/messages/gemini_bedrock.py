"""Parts of messages that have no `type`, known by their one field: Gemini's (`functionCall`, also in Python's
spelling) and Bedrock's (`toolUse`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimtab.traces.core.coerce import as_object, as_text, first_of, objects_in
from trimtab.typing import Json

CALLS = (
    "tool_use", "tool_call", "server_tool_use", "server_tool_call", "mcp_tool_use", "function_call",
    "custom_tool_call",
)  # fmt: skip
RESULTS = (
    "tool_result", "tool_call_response", "function_call_output", "server_tool_call_response",
    "custom_tool_call_output",
)  # fmt: skip
THOUGHTS = ("reasoning", "thinking", "redacted_thinking")
_OF_RESULTS = {
    *CALLS, *RESULTS, *THOUGHTS, "text", "input_text", "output_text", "refusal", "summary_text",
    "reasoning_text", "blob", "uri",
    *("image", "image_url", "input_image", "image_file", "audio_url", "input_audio", "video_url",
    "input_video", "searchResult"),
    *("file_url", "input_file", "computer_screenshot", "resource", "resource_link", "embedded_resource",
    "search_result", "web_search_result"),
    *("tool_reference", "container_upload", "code_execution_output", "bash_code_execution_output"),
}  # fmt: skip
"""Types of the blocks that a tool's result may have; another list of things with types is the tool's own
JSON."""
_AMBIGUOUS = ("file", "document", "audio", "video", "media")
_OF_FILES = ("file", "file_id", "file_data", "base64", "data", "source", "mime_type", "mimeType", "mediaType")
_EXTRA_FIELDS = (
    "thought", "thoughtSignature", "thought_signature", "videoMetadata", "video_metadata", "mediaResolution",
    "media_resolution", "partMetadata",
)  # fmt: skip


def typed_parts(message: Json) -> list[Json] | None:
    """Its content or parts as blocks with a type, of which `blocks` knows calls, results and thoughts; None
    where all have types, or are none.

    Beside a part of a known kind, text is a text block and what is not known a block of its field's name; in
    a tool's content, and where no part is known, a list of other objects is JSON.

    >>> typed_parts({"role": "model", "parts": [{"text": "I look."}, {"functionCall": {"name": "f",
    ...     "args": {"q": 1}}}]})
    [{'type': 'text', 'text': 'I look.'}, {'type': 'tool_use', 'id': None, 'name': 'f', 'input': {'q': 1}}]
    """
    content = message.get("content")
    parts = content if content is not None else message.get("parts")
    if content is None and isinstance(parts, (str, dict)):
        parts = [parts]
    if not isinstance(parts, list) or not parts or all(isinstance(p, dict) and "type" in p for p in parts):
        return None
    if content is None:
        return [one for part in parts if (one := _typed(part, True))]
    if not any(_known(part) is not None for part in parts if isinstance(part, dict)):
        return None
    if not all(part is None or isinstance(part, (str, dict)) for part in parts):
        return None
    tool = message.get("role") == "tool"
    if tool and any(isinstance(part, dict) and part.get("type") is not None for part in parts):
        return parts_of_result(parts)
    blocks = [_typed(part, not tool) for part in parts]
    return None if any(one is None for one in blocks) else [one for one in blocks if one]


def parts_of_result(content: Any) -> list[Json] | None:
    """What a tool gave as blocks; None for another list, which is JSON though its items may have
    types of the tool's own.

    >>> parts_of_result([{"type": "text", "text": "a"}, "b"])
    [{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}]
    >>> parts_of_result([{"type": "apple", "id": 1}]), parts_of_result("a")
    (None, None)
    """
    if not isinstance(content, list) or not all(
        isinstance(part, (str, dict, type(None))) for part in content
    ):
        return None
    if content and not any(map(is_block, objects_in(content))):
        return None
    blocks = [_typed(part, False) for part in content]
    return None if any(one is None for one in blocks) else [one for one in blocks if one]


def is_block(part: Json) -> bool:
    """Has it the type of a part of somebody's messages?"""
    kind = part.get("type")
    if kind in _AMBIGUOUS:  # also in a folder's listing, or in what a search found
        return any(part.get(name) is not None for name in (kind, *_OF_FILES))
    return isinstance(kind, str) and (kind in _OF_RESULTS or kind in _KINDS or kind.endswith("_tool_result"))


def _known(part: Json) -> Json | None:
    """The block of a part that has a type, or one field that tells its kind."""
    if part.get("type") is not None:
        return part
    fields = _fields(part)
    return _KINDS[fields[0]](part[fields[0]], part) if len(fields) == 1 and fields[0] in _KINDS else None


def _fields(part: Json) -> list[str]:
    return [name for name, value in part.items() if value is not None and name not in _EXTRA_FIELDS]


def _typed(part: Any, named: bool) -> Json | None:
    """The block; empty for what says nothing; None for what is none.

    `named`: what is not known has the name of its field.
    """
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        return {}
    block = _known(part)
    if block is not None or not named:
        return block
    fields = _fields(part)
    return {"type": fields[0], **{name: part[name] for name in fields}} if fields else {}


def _text(value: Any, part: Json) -> Json | None:
    if not isinstance(value, str):
        return None
    kind, field = ("thinking", "thinking") if part.get("thought") is True else ("text", "text")
    return {"type": kind, field: value}


def _call(value: Any, _: Json) -> Json | None:
    if not isinstance(value, dict):
        return None
    call = {"type": "tool_use", "id": first_of(value, "toolUseId", "id"), "name": value.get("name")}
    return {**call, "input": first_of(value, "input", "args")}


def _response(value: Any, _: Json) -> Json | None:
    """Gemini's result: an object, in which `output` or `result` alone is the result, and `error` alone says
    what went wrong."""
    if not isinstance(value, dict):
        return None
    result = {"type": "tool_result", "tool_use_id": value.get("id"), "name": value.get("name")}
    content = value.get("response")
    fields = {k: v for k, v in as_object(content).items() if v is not None}
    if len(fields) == 1 and fields.keys() <= {"output", "result", "error"}:
        (content,) = fields.values()
    return {**result, "content": content, **(fields if fields.keys() == {"error"} else {})}


def _result(value: Any, _: Json) -> Json | None:
    """Bedrock's result, of texts and JSON values."""
    if not isinstance(value, dict):
        return None
    content = value.get("content")
    if isinstance(content, list):
        content = [_inside(part) for part in content]
    result = {"type": "tool_result", "tool_use_id": value.get("toolUseId"), "content": content}
    return {**result, "status": value["status"]} if value.get("status") is not None else result


def _inside(part: Any) -> Json:
    if isinstance(part, dict) and part.get("json") is not None:
        return {"type": "text", "text": as_text(part["json"])}
    return _typed(part, True) or {"type": "text", "text": ""}


def _thought(value: Any, _: Json) -> Json | None:
    reasoning = as_object(value).get("reasoningText")
    text = reasoning.get("text") if isinstance(reasoning, dict) else reasoning
    return {"type": "thinking", "thinking": text} if text is not None else {"type": "redacted_thinking"}


def _cited(value: Any, _: Json) -> Json | None:
    """Bedrock's text with its sources, of which the text is kept."""
    texts = [one.get("text") for one in objects_in(as_object(value).get("content"))]
    pieces = [text for text in texts if isinstance(text, str)]
    return {"type": "text", "text": "".join(pieces)} if pieces else None


def _code(value: Any, _: Json) -> Json:
    return {"type": "server_tool_use", "name": "code_execution", "input": value}


def _output(value: Any, _: Json) -> Json | None:
    if not isinstance(value, dict):
        return None
    ended = value.get("outcome")
    result = {"type": "tool_result", "name": "code_execution", "content": value.get("output")}
    return result if ended is None else {**result, "is_error": ended != "OUTCOME_OK"}


def _media(name: str) -> Callable[[Any, Json], Json | None]:
    return lambda value, _: {"type": name, name: value} if isinstance(value, dict) else None


_KINDS: dict[str, Callable[[Any, Json], Json | None]] = {
    "text": _text,
    **dict.fromkeys(("toolUse", "functionCall", "function_call"), _call),
    **dict.fromkeys(("functionResponse", "function_response"), _response),
    "toolResult": _result,
    "reasoningContent": _thought,
    "citationsContent": _cited,
    **dict.fromkeys(("executableCode", "executable_code"), _code),
    **dict.fromkeys(("codeExecutionResult", "code_execution_result"), _output),
    **{n: _media(n) for n in ("inlineData", "inline_data", "fileData", "file_data", "image", "document",
    "video")},
    "cachePoint": lambda *_: {},
}  # fmt: skip

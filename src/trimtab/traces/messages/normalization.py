"""Messages as other makers write them, in OpenAI's roles and typed blocks: ShareGPT, Gemini's parts,
Bedrock's Converse, custom tools, LangChain, Vercel.

What is not known stays as it is: `messages` counts the roles that are none of ours.
"""

from __future__ import annotations

import re
from typing import Any

from trimtab.traces.core.coerce import as_label, as_text, first_of
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.messages.gemini_bedrock import typed_parts
from trimtab.traces.messages.langchain import from_langchain, plain_role
from trimtab.traces.messages.vercel_ai import from_vercel
from trimtab.typing import Json

ROLES = ("system", "developer", "user", "assistant", "tool")
"""The roles of our turns; `prompt` is a template's that could not be split."""

_SAME = {
    "human": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant", "bard": "assistant",
    "model": "assistant", "ai": "assistant",
    "function": "tool", "observation": "tool", "function_response": "tool", "tool_response": "tool",
    "ipython": "tool", "function_call": "assistant", "tool_call": "assistant",
}  # fmt: skip
_CALLS = ("function_call", "tool_call")  # roles whose text is JSON of name and arguments
_THINK = re.compile(r"\s*<think>(.*?)</think>", re.S)


def translated(message: Json) -> Json:
    """The message with a role of ours, typed blocks, its refusal or what it spoke for its text where it has
    none, and calls of custom tools as of others.

    >>> translated({"from": "human", "value": "Where?"})
    {'role': 'user', 'content': 'Where?'}
    >>> translated({"role": "assistant", "content": None, "refusal": "No."})["content"]
    'No.'
    """
    message = from_vercel(_role(from_langchain(message)))
    calls = message.get("tool_calls")
    if isinstance(calls, list) and any(isinstance(c, dict) and isinstance(c.get("custom"),
        dict) for c in calls):  # fmt: skip
        message = {**message, "tool_calls": [_custom(call) for call in calls]}
    if not message.get("content") and isinstance(refusal := message.get("refusal"), str) and refusal:
        return {**message, "content": refusal}
    audio = message.get("audio")
    if not message.get("content") and isinstance(audio, dict) and isinstance(audio.get("transcript"), str):
        return {**message, "content": audio["transcript"]}
    blocks = typed_parts(message)
    if blocks is None:
        return message
    return {**{k: v for k, v in message.items() if k != "parts"}, "content": blocks or None}


def _role(message: Json) -> Json:
    if message.get("role") in ROLES:
        return message
    original = as_label(first_of(message, "role", "from"))
    low = plain_role(original or "")
    role = low if low in ROLES else _SAME.get(low, original)
    if original is None or ("role" in message and role == original):
        return message
    renamed: dict[str, Any] = {"role": role}
    if message.get("role") is None:  # ShareGPT
        renamed["content"] = first_of(message, "content", "value")
    renamed |= {k: v for k, v in message.items() if k not in ("role", "from", "value", *renamed)}
    called = low in _CALLS and not isinstance(renamed.get("tool_calls"), list)
    return _calls_of_text(renamed) if called and renamed.get("content") is not None else renamed


def _calls_of_text(message: dict[str, Any]) -> Json:
    """LLaMA-Factory's `function_call`: one call or a list of them, after the thoughts that led to it."""
    content = message["content"]
    if isinstance(content, str):
        if thought := _THINK.match(content):
            message["reasoning_content"], content = thought[1].strip(), content[thought.end() :]
        try:
            content = parse_json(content)
        except BadJson:
            content = content.strip()  # a call that nobody can read
    return {**message, "content": None, "tool_calls": content if isinstance(content, list) else [content]}


def _custom(call: Any) -> Any:
    """OpenAI's custom tools take free text: it is the argument `input`."""
    custom = call.get("custom") if isinstance(call, dict) else None
    if not isinstance(custom, dict):
        return call
    text = as_text(custom.get("input"))
    return {"id": call.get("id"), "function": {"name": custom.get("name"), "arguments": {"input": text}}}

"""LangChain's messages, also as LangGraph, LangSmith and `dumpd` write them, to a role and what is said."""

from __future__ import annotations

from trimtab.typing import Json

_SPEAKERS = ("human", "ai", "system", "tool", "function", "developer", "user", "assistant")


def plain_role(name: str) -> str:
    """A role in lower case, and of LangChain's classes the one they stand for.

    >>> plain_role("AIMessageChunk"), plain_role(" User "), plain_role("message")
    ('ai', 'user', 'message')
    """
    low = name.strip().lower()
    short = low.removesuffix("chunk").removesuffix("message")
    return short if short in _SPEAKERS else low


def speaker_of(message: Json) -> str | None:
    """Who speaks in a message that says so by its `type`, or by the class it is a dump of; None where neither
    does.

    >>> (speaker_of({"type": "ai", "content": ""}), speaker_of({"lc": 1, "id": ["langchain", "HumanMessage"],
    ...     "kwargs": {}}))
    ('ai', 'human')
    """
    path = message.get("id")
    if isinstance(message.get("kwargs"), dict) and isinstance(path, list) and path:
        kind = path[-1]
    elif any(message.get(name) is not None for name in ("content", "data", "tool_calls", "tool_call_id")):
        kind = message.get("type")
    else:
        return None
    role = plain_role(kind) if isinstance(kind, str) else ""
    return role if role in _SPEAKERS else None


def from_langchain(message: Json) -> Json:
    """The message with a `role`, out of its wrapper; others as they are.

    Calls that stand only in what the provider said are its calls.
    """
    role = None if message.get("role") is not None else speaker_of(message)
    if role is not None:
        inner = next((v for n in ("kwargs", "data") if isinstance(v := message.get(n), dict)), message)
        message = {"role": role, **{k: v for k, v in inner.items() if k not in ("role", "type")}}
    more = message.get("additional_kwargs")
    if not isinstance(more, dict) or message.get("tool_calls") or message.get("invalid_tool_calls"):
        return message
    calls = {name: more[name] for name in ("tool_calls", "function_call") if more.get(name)}
    return {**message, **calls} if calls else message

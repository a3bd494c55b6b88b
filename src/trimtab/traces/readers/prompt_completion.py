"""A prompt and its completion as turns, whichever of the two are messages and whichever text."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from trimtab.traces.core.coerce import as_text
from trimtab.traces.core.episode import Turn
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.messages.chat_template_text import prompt_turns
from trimtab.traces.messages.content_blocks import is_unknown
from trimtab.traces.messages.responses_api import is_message
from trimtab.traces.messages.tool_tags import tagged_turns
from trimtab.traces.readers.chat import episode_of
from trimtab.traces.readers.preferences import is_chat
from trimtab.typing import Json


def dialogue(
    value: Json, prompt: Any, completion: Any, report: ReadReport, record: Record
) -> tuple[list[Turn], list[dict[str, Any]] | None]:
    """Turns of a prompt and a completion, each messages or text, and the tools that the text declares."""
    before, after = _messages(prompt, "user"), _messages(completion, "assistant")
    if before is not None and after is not None:
        return episode_of(record, value, [*before, *after], report).turns, None
    if before is None and after is None:
        return template_turns(as_text(prompt) or "", as_text(completion) or "", report)
    if before is not None:
        head = episode_of(record, value, before, report).turns
        return [*head, *tagged_turns(as_text(completion) or "", report)], None
    turns, tools, _ = prompt_turns(as_text(prompt) or "", report)
    return [*turns, *episode_of(record, value, after or [], report).turns], tools


def template_turns(
    prompt: str, completion: str, report: ReadReport
) -> tuple[list[Turn], list[dict[str, Any]] | None]:
    """Both as a chat template wrote them; what the prompt put into the agent's mouth is the head of its first
    turn."""
    turns, tools, opened = prompt_turns(prompt, report)
    report.num_messages += 2
    return [*turns, *tagged_turns(f"{opened}\n{completion}" if opened else completion, report)], tools


def _messages(value: Any, role: str) -> list[Any] | None:
    """A list of messages, also one written as JSON text; None for text. What is neither is a message that
    cannot be read."""
    if value is None:
        return []  # what the log lacks is not an empty message
    if isinstance(value, dict):
        return [value if is_message(value) else {"role": role, "content": value}]
    if isinstance(value, list):
        parts = all(isinstance(one, dict) and "type" in one and not is_message(one) for one in value)
        return value if is_unknown(value) or not (value and parts) else None
    if isinstance(value, str) and value.lstrip().startswith("[{"):
        try:
            value = parse_json(value)
        except BadJson:
            return None
    return value if is_chat(value) else None


def digest(text: str | None) -> str:
    """Stands for a text as the name of a task."""
    return blake2b((text or "").encode("utf-8", "replace"), digest_size=8).hexdigest()

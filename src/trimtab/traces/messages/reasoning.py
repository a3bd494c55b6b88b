"""What a model thought, wherever a maker writes it: in a field of the message, or in blocks of their own. What the provider encrypted is counted."""

from __future__ import annotations

from trimtab.traces.core.coerce import as_text, first_of
from trimtab.traces.core.read_report import ReadReport
from trimtab.typing import Json

_ENCRYPTED = "reasoning that the provider encrypted, left out"


def reasoning_of(message: Json) -> str | None:
    """The reasoning a message has in a field of its own."""
    said = as_text(first_of(message, "reasoning_content", "reasoning", "thinking"))
    details = message.get("reasoning_details")  # OpenRouter's
    if said is not None or not isinstance(details, list):
        return said
    texts = [first_of(one, "text", "summary") for one in details if isinstance(one, dict)]
    return "\n".join(text for text in texts if isinstance(text, str)) or None


def note_encrypted(message: Json, report: ReadReport) -> None:
    """Count OpenRouter's `reasoning_details` of which some are encrypted."""
    details = message.get("reasoning_details")
    for one in details if isinstance(details, list) else ():
        if isinstance(one, dict) and one.get("type") == "reasoning.encrypted":
            report.note(_ENCRYPTED)


def thoughts_of(block: Json, report: ReadReport) -> list[str]:
    """Inspect's `reasoning`, Anthropic's `thinking`, GenAI's `content`, a Responses item's summary; what is encrypted is counted."""
    encrypted = block.get("encrypted_content") and not block.get("content")
    hidden = block.get("redacted") is True or block["type"] == "redacted_thinking"
    if hidden or encrypted:
        report.note(_ENCRYPTED)
    names = ("summary",) if hidden else ("reasoning", "thinking", "text", "content", "summary")
    said = as_text(next((block[name] for name in names if block.get(name)), None))
    return [said] if said else []

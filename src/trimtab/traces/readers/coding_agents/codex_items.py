"""Codex' response items to messages: the items of one answer are one message, with its tokens."""

from __future__ import annotations

from typing import Any

from trimtab.traces.core.coerce import as_int, as_label, as_text, first_of, objects_in
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.messages.content_blocks import is_unknown
from trimtab.traces.messages.hosted_tools import PROVIDER_CALLS, PROVIDER_RESULTS, blocks_of_item
from trimtab.typing import Json

_OF_ANSWER = ("reasoning", "function_call", "custom_tool_call", "tool_search_call")
_RESULTS = ("function_call_output", "custom_tool_call_output", "tool_search_output")
_SILENT = ("additional_tools", "ghost_snapshot", "compaction", "context_compaction", "compaction_trigger")
_UNKNOWN = "items of a rollout of a kind we do not read, left out"


class Messages:
    """The messages of a rollout, in the order of its lines."""

    def __init__(self, report: ReadReport) -> None:
        self.report = report
        self.rows: list[dict[str, Any]] = []
        self.turn_starts: list[int] = []
        self.tokens: int | None = None
        self._answer: dict[str, Any] | None = None  # whose items still come
        self._billed: dict[str, Any] | None = None  # the answer of which the tokens are known

    def add(self, item: Json, timestamp: Any) -> None:
        """Add an item."""
        kind = as_label(item.get("type")) or ""
        if kind == "message" and item.get("role") != "assistant":
            self.add_message(
                {"role": item.get("role"), "content": item.get("content"), "timestamp": timestamp}
            )
        elif kind == "message" and is_unknown(item.get("content")):
            self.add_message({"role": "assistant", "content": item["content"]})  # counted as unreadable
        elif kind == "message":
            self._part([{"type": "text", "text": text} for text in _texts(item)], timestamp)
        elif kind in _OF_ANSWER:
            self._part([_call(item) if kind != "reasoning" else item], timestamp)
        elif kind in PROVIDER_CALLS:
            self._part(blocks_of_item(item, self.report) or [], timestamp)
        elif kind in _RESULTS or kind in PROVIDER_RESULTS:
            blocks = blocks_of_item(item, self.report) or [_result(item)]
            self.add_message({"role": "user", "content": blocks, "timestamp": timestamp})
        elif kind == "agent_message":  # of another agent
            content = [
                one for one in objects_in(item.get("content")) if one.get("type") != "encrypted_content"
            ]
            sender = as_label(item.get("author"))
            self.add_message({"role": "user", "name": sender, "content": content, "timestamp": timestamp})
        elif kind not in _SILENT:
            self.report.note_each(_UNKNOWN, kind)

    def add_message(self, message: dict[str, Any]) -> None:
        """Add a message that ends the answer before it."""
        self._answer = None
        self.rows.append(message)

    def _part(self, blocks: list[Any], timestamp: Any) -> None:
        if self._answer is None:
            self._answer = {"role": "assistant", "content": [], "timestamp": timestamp}
            self.rows.append(self._answer)
        self._answer["content"].extend(blocks)

    def add_usage(self, usage: Json) -> None:
        """Give the latest answer its tokens; of several lines that say them one counts."""
        answer = next((row for row in reversed(self.rows) if row["role"] == "assistant"), None)
        tokens = as_int(usage.get("output_tokens"))
        self._answer = None
        if tokens is not None and answer is not None and answer is not self._billed:
            answer["tokens"] = tokens
            self._billed = answer
            self.tokens = (self.tokens or 0) + tokens

    def drop_summary(self, summary: str) -> None:
        """Take back the answer in which the model summed up the context: the agent said it to nobody."""
        if not self.rows or self.rows[-1]["role"] != "assistant":
            return
        text = "".join(one.get("text") or "" for one in self.rows[-1]["content"] if one.get("type") == "text")
        if text.strip() and summary.rstrip().endswith(text.strip()):
            self.rows.pop()
        self._answer = None

    def roll_back(self, count: int) -> int:
        """Take back the last turns; how many there were."""
        count = min(count, len(self.turn_starts))
        if count:
            del self.rows[self.turn_starts[-count] :]
            del self.turn_starts[-count:]
        self._answer = None
        return count


def _texts(item: Json) -> list[str]:
    content = item.get("content")
    if isinstance(content, str):
        return [content]
    return [text for part in objects_in(content) if (text := as_text([part]))]


def _call(item: Json) -> Json:
    name = as_label(item.get("name")) or ("tool_search" if item.get("type") == "tool_search_call" else None)
    kind = "custom_tool_call" if item.get("type") == "custom_tool_call" else "function_call"
    return {
        "type": kind,
        "call_id": first_of(item, "call_id", "id"),
        "name": name,
        "arguments": first_of(item, "arguments", "input"),
    }


def _result(item: Json) -> Json:
    """A result as a block; older versions wrote an object with its content and whether it is one."""
    output = first_of(item, "output", "tools")
    flag = None
    if isinstance(output, dict):
        flag = output.get("success")
        output = first_of(output, "content", "output")
    block = {"type": "tool_result", "tool_use_id": item.get("call_id"), "content": output}
    return {**block, "is_error": not flag} if isinstance(flag, bool) else block

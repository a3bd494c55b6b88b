"""What `codex exec --json` prints: items of a thread, as they start and as they end.

A call is an item: a command, a change of files, a call over MCP, a search. It is seen only if Codex ran it:
calls that it refuses (an unknown tool, a patch that does not fit, bad arguments) stand in the rollout alone.
Held against codex-cli 0.169.0, and the kinds of `exec/src/exec_events.rs` (08a1f30c).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from trimtab.traces.core.coerce import as_int, as_label, as_object, as_text
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.messages.turns import turns_of
from trimtab.traces.readers.coding_agents.codex_calls import Ended, settle
from trimtab.typing import Json

_ITEMS = ("item.started", "item.updated", "item.completed")
_NEEDS = {
    "thread.started": "thread_id", "turn.completed": "usage", "turn.failed": "error",
    **dict.fromkeys(_ITEMS, "item"),
}  # fmt: skip
_SILENT = ("turn.started", "item.plan.delta", "request_user_input", "error")
_FAILED = ("failed", "declined")
_UNKNOWN = "items of codex exec of a kind we do not read, left out"
_WARNINGS = "warnings of codex exec, left out"
_NO_RESULT = "calls of which codex exec prints no result, answered by their status"
_NOTHING = "threads of codex exec without an item, left out"
_LISTS = "to-do lists of codex exec, left out"
_TEXTS = ("agent_message", "plan", "reasoning")
_NO_TEXT = "messages of codex exec without a text"


def is_codex_exec(value: Json) -> bool:
    """Is it an event of `codex exec --json`?"""
    kind = as_label(value.get("type")) or ""
    return (kind in _NEEDS and _NEEDS[kind] in value) or (kind in _SILENT and "payload" not in value)


def begins_codex_exec(value: Json) -> bool:
    """Is it an event that no other program writes?"""
    kind = as_label(value.get("type")) or ""
    return kind in _NEEDS and isinstance(value.get(_NEEDS[kind]), (dict, str)) and "payload" not in value


def read_codex_exec(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """An episode a thread; one that was resumed in the same file goes on."""
    threads: dict[str, _Thread] = {}
    thread: _Thread | None = None
    for record, value in iter_objects(records, report, is_codex_exec, "no event of codex exec"):
        name = as_label(value.get("thread_id")) if value["type"] == "thread.started" else None
        if thread is None or name is not None:
            name = name or record.source
            thread = threads.setdefault(name, _Thread(name, record, report))
            thread.num_runs += 1
        thread.add(value)
    for one in threads.values():
        episode = one.episode()
        if episode.turns:
            yield episode
        else:
            report.note(_NOTHING)


@dataclass
class _Thread:
    """The events of a thread, one after the other."""

    name: str
    record: Record
    report: ReadReport
    num_runs: int = 0
    tokens: int | None = None
    stop: str | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    ended: dict[str, Ended] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)

    def add(self, event: Json) -> None:
        """Take one event."""
        kind = event["type"]
        if kind == "turn.started":
            self.stop = None
        elif kind == "turn.completed":
            self.stop = "completed"
            tokens = as_int(as_object(event["usage"]).get("output_tokens"))  # of the thread so far
            self.tokens = self.tokens if tokens is None else tokens
        elif kind == "turn.failed":
            self.stop = "error"
        elif kind in _ITEMS:
            self._item(as_object(event["item"]), ended=kind == "item.completed")

    def _item(self, item: Json, ended: bool) -> None:
        kind, text = as_label(item.get("type")) or "", as_text(item.get("text")) or ""
        call = _call_of(kind, item)
        if call is not None:
            self._call(item, call, ended)
        elif not ended:
            return
        elif kind in _TEXTS and not isinstance(item.get("text"), str):
            self.report.unread_message(_NO_TEXT, item)
            self._part({"type": "text", "text": text})
        elif kind in ("agent_message", "plan"):
            self._part({"type": "text", "text": text})
        elif kind == "reasoning":
            self._part({"type": "thinking", "thinking": text})
        elif kind in ("error", "todo_list"):
            self.report.note(_WARNINGS if kind == "error" else _LISTS)
        else:
            self.report.note_each(_UNKNOWN, kind)

    def _part(self, block: dict[str, Any]) -> None:
        """Add to the answer, which the first result ends."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": []})
        self.messages[-1]["content"].append(block)

    def _call(self, item: Json, call: tuple[str, Any], ended: bool) -> None:
        name = f"{self.num_runs}/{as_label(item.get('id')) or len(self.messages)}"
        if name not in self.started:
            self.started.add(name)
            self._part({"type": "tool_use", "id": name, "name": call[0], "input": call[1]})
        if not ended:
            return
        status, code = item.get("status"), as_int(item.get("exit_code"))
        result = _result_of(item)
        if result is None:
            self.report.note(_NO_RESULT)
            result = as_label(status) or "completed"
        failed = status in _FAILED or code not in (None, 0)
        words = result.strip() or ("" if code is not None else as_label(status) or "")
        self.ended[name] = Ended(name, failed, code, words, None, True)
        block = {"type": "tool_result", "tool_use_id": name, "content": result, "is_error": failed}
        self.messages.append({"role": "user", "content": [block]})

    def episode(self) -> Episode:
        """Return the thread as an episode."""
        turns = turns_of(self.messages, self.report)
        for call in (call for turn in turns for call in turn.calls):
            settle(call, self.ended.get(call.id))
        return Episode(
            id=self.name, turns=turns, stop_reason=self.stop, tokens=self.tokens, source=self.record.source
        )


def _call_of(kind: str, item: Json) -> tuple[str, Any] | None:
    """The name and the arguments of an item that is a call."""
    if kind == "mcp_tool_call":
        return f"mcp__{item.get('server')}__{item.get('tool')}", item.get("arguments")
    if kind == "collab_tool_call":
        return as_label(item.get("tool")) or kind, {"prompt": item.get("prompt")}
    fields = {"command_execution": "command", "file_change": "changes", "web_search": "query"}.get(kind)
    return None if fields is None else (kind, {fields: item.get(fields)})


def _result_of(item: Json) -> str | None:
    """What was printed, or what the server of MCP said; None where the item keeps neither."""
    error, result = as_object(item.get("error")), as_object(item.get("result"))
    for value in (item.get("aggregated_output"), error.get("message"), result.get("content")):
        if value is not None:
            return as_text(value) or ""
    return None

"""Codex CLI's rollouts (`~/.codex/sessions/**/rollout-*.jsonl`).

Of a line's kinds the `response_item` is what the model read or wrote; `event_msg` says most of it again for
the screen, and is read for what no item has: exit codes, times, tokens, how a turn ended. Held against
rollouts that codex-cli 0.169.0 wrote, and the kinds that `rollout/src/policy.rs` (0136a731) keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from trimtab.traces.core.coerce import as_int, as_label, as_object, as_time
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.messages.turns import turns_of
from trimtab.traces.readers.coding_agents.claude_code import SUB_AGENTS, SUMMARIES
from trimtab.traces.readers.coding_agents.codex_calls import Ended, ended_of, settle
from trimtab.traces.readers.coding_agents.codex_items import Messages
from trimtab.typing import Json

_KINDS = frozenset({
    "session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state",
    "token_usage_record", "inter_agent_communication", "inter_agent_communication_metadata",
})  # fmt: skip
_OLD_META = frozenset(("id", "timestamp", "instructions", "git", "cwd", "originator", "cli_version"))
_OLD_ITEMS = (
    "message", "reasoning", "function_call", "function_call_output", "local_shell_call", "custom_tool_call",
    "custom_tool_call_output", "web_search_call",
)  # fmt: skip
_COPIES = "lines that a rollout of Codex repeats of the session it was forked from, left out"
_ROLLED_BACK = "turns that the user rolled back (Codex), left out"
_NESTED = "commands that a script of the agent's ran (Codex' code mode), counted as no calls"
_NO_META = "rollouts of Codex without session_meta, named after their file's line"


def is_codex(value: Json) -> bool:
    """Is it a line of a rollout, or the first one of a rollout before September 2025?"""
    return _is_line(value) or _is_old_meta(value)


def _is_line(value: Json) -> bool:
    return (
        as_label(value.get("type")) in _KINDS
        and isinstance(value.get("payload"), dict)
        and "timestamp" in value
    )


def _is_old_meta(value: Json) -> bool:
    return value.keys() <= _OLD_META and {"id", "timestamp", "instructions"} <= value.keys()


def _with_payload(value: Json) -> Json | None:
    """The line as versions since September 2025 write it; None of one that is of no rollout.

    Older ones begin with the session's fields, and have bare items and marks of states after them.
    """
    if _is_line(value):
        return value
    if _is_old_meta(value):
        return {"type": "session_meta", "payload": value}
    if value.get("record_type") == "state":
        return {"type": "world_state", "payload": {}}
    return {"type": "response_item", "payload": value} if value.get("type") in _OLD_ITEMS else None


def read_codex(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """An episode a rollout; sub-agents write their own.

    What a fork repeats and what was rolled back are left out, and counted.
    """
    lines: list[_Line] = []
    for record, value in iter_objects(records, report):
        modern = _with_payload(value)
        if modern is None:
            report.malformed(record.file, record.line, "no line of a rollout: type and payload")
        else:
            lines.append(_Line(record, modern["type"], modern["payload"], modern.get("timestamp")))
    if not lines:
        return
    own = _own(lines, report)
    rollout = _Rollout(Messages(report), report)
    for line in own:
        rollout.add(line)
    episode = rollout.episode(own[0].record if own else lines[0].record)
    if episode.turns:
        yield episode


@dataclass(frozen=True)
class _Line:
    record: Record
    kind: str
    payload: Json
    timestamp: Any

    @property
    def turn(self) -> str | None:
        """The id of the turn that it is of, where it names one."""
        passed = as_object(self.payload.get("internal_chat_message_metadata_passthrough"))
        return as_label(self.payload.get("turn_id") or passed.get("turn_id"))


def _own(lines: list[_Line], report: ReadReport) -> list[_Line]:
    """Return the lines without those of the session that this one was forked from.

    They stand after the first `session_meta`, in turns that are older than the session. Ids of sessions and
    turns are UUIDs of version 7, which sort by time.
    """
    metas = [i for i, line in enumerate(lines) if line.kind == "session_meta"]
    if len(metas) < 2 or metas[0] != 0:
        return lines
    name = as_label(lines[0].payload.get("id")) or ""
    older = [
        i for i, line in enumerate(lines) if (turn := line.turn) and len(turn) == len(name) and turn < name
    ]
    last = max([metas[-1], *older])
    report.note(_COPIES, last)
    return [lines[0], *lines[last + 1 :]]


@dataclass
class _Rollout:
    """What the lines say, one after the other."""

    messages: Messages
    report: ReadReport
    meta: Json = field(default_factory=dict)
    model: str | None = None
    stop: str | None = None
    ended: dict[str, Ended] = field(default_factory=dict)  # how calls ended, by id
    start: float | None = None

    def add(self, line: _Line) -> None:
        """Take one line."""
        if line.kind == "session_meta":
            self.meta = self.meta or line.payload
            text = as_object(line.payload.get("base_instructions")).get("text")
            if isinstance(text, str) and not self.messages.rows:
                self.messages.add_message({"role": "system", "content": text})
        elif line.kind == "response_item":
            self.messages.add(line.payload, line.timestamp)
        elif line.kind == "turn_context":
            self.model = as_label(line.payload.get("model")) or self.model
        elif line.kind == "compacted":
            self.report.note(SUMMARIES)
            self.messages.drop_summary(as_label(line.payload.get("message")) or "")
        elif line.kind == "token_usage_record":
            self.messages.add_usage(as_object(line.payload.get("usage")))
        elif line.kind == "event_msg":
            self._event(line)

    def _event(self, line: _Line) -> None:
        payload, kind = line.payload, line.payload.get("type")
        if kind in ("task_started", "turn_started"):
            self.messages.turn_starts.append(len(self.messages.rows))
            self.stop = None
        elif kind in ("task_complete", "turn_complete"):
            self.stop = "error" if payload.get("error") else "completed"
        elif kind == "turn_aborted":
            self.stop = as_label(payload.get("reason")) or "aborted"
        elif kind == "thread_rolled_back":
            count = as_int(payload.get("num_turns")) or 0
            self.report.note(_ROLLED_BACK, self.messages.roll_back(count))
        elif kind == "token_count":
            usage = as_object(as_object(payload.get("info")).get("last_token_usage"))
            self.messages.add_usage(usage)
        elif (ended := ended_of(payload)) is not None:
            self.ended[ended.call_id] = ended

    def episode(self, record: Record) -> Episode:
        """Return the rollout as an episode."""
        if not self.meta:
            self.report.note(_NO_META)
        turns = turns_of(self.messages.rows, self.report)
        for call in (call for turn in turns for call in turn.calls):
            settle(call, self.ended.pop(call.id, None))
        nested = sum(ended.command for ended in self.ended.values())
        if nested:
            self.report.note(_NESTED, nested)
        spawned = as_object(as_object(self.meta.get("source")).get("subagent"))
        if spawned or self.meta.get("thread_source") == "subagent":
            self.report.note(SUB_AGENTS)
        names = ("cwd", "cli_version", "parent_thread_id", "forked_from_id", "agent_path")
        extra = {name: self.meta[name] for name in names if self.meta.get(name) is not None}
        commit = as_object(self.meta.get("git")).get("commit_hash")
        return Episode(
            id=as_label(self.meta.get("id")) or record.source,
            turns=turns,
            stop_reason=self.stop,
            model=self.model,
            time=as_time(self.meta.get("timestamp")),
            tokens=self.messages.tokens,
            source=record.source,
            extra={**extra, **({"commit": commit} if commit else {})},
        )

"""AG2 1.x: the event log that an agent with a knowledge store keeps (`log/STREAM.jsonl`), and evaluations.

An answer comes whole (`ModelResponse`), its calls once more one by one, and results one by one and together;
of an evaluation, which AG2 makes of spans, the calls come one by one alone. What a compaction dropped stands
in `STREAM.dropped-N.jsonl`. Held against files that ag2 1.2.1 wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.traces.core.coerce import (
    as_int,
    as_label,
    as_number,
    as_object,
    as_text,
    as_time,
    objects_in,
    sum_known,
)
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.find import STDIN
from trimtab.traces.files.json_records import iter_objects, iter_records
from trimtab.traces.messages.turns import turns_of
from trimtab.traces.readers.coding_agents.claude_code import SUMMARIES
from trimtab.typing import Json

_OURS = re.compile(r"(?:ag2|autogen\.beta)\.[\w.]+")
_DROPPED = re.compile(r"(.+)\.dropped-(\d+)")
_SILENT = frozenset((
    "UsageEvent", "ToolCallsEvent", "ToolResultsEvent", "ModelMessage", "ModelMessageChunk",
    "MessageEnqueued", "HumanInputRequest", "ToolApprovalRequest", "ObserverStarted", "ObserverCompleted",
    "CompactionStarted", "CompactionCompleted", "AggregationStarted", "AggregationCompleted", "TaskStarted",
    "TaskProgress", "TaskCompleted",
))  # fmt: skip
_RESULTS = ("ToolResultEvent", "ToolErrorEvent", "ToolNotFoundEvent")
_NO_CONTENT = "answers of AG2 without a content"
_UNKNOWN = "events of AG2 of a kind we do not read, left out"


def is_ag2_event(value: Json) -> bool:
    """Is it an event of a log, or an evaluation?"""
    kind = value.get("type")
    if isinstance(kind, str) and isinstance(value.get("data"), dict):
        return _OURS.fullmatch(kind) is not None
    return _is_evaluation(value)


def _is_evaluation(value: Json) -> bool:
    tasks = objects_in(value.get("tasks"))
    return "schema_version" in value and bool(tasks) and {"task_id", "events", "feedback"} <= tasks[0].keys()


def read_ag2_events(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """The episode of a log of events; of an evaluation one a task."""
    stream: _Stream | None = None
    for record, value in iter_objects(records, report, _is_readable, "no event of AG2: type and data"):
        if _is_evaluation(value):
            for task in objects_in(value["tasks"]):
                yield _task(task, value, record, report)
            continue
        if stream is None:
            if _is_of_another(record.file):
                return  # the stream's own log reads it
            stream = _Stream(report)
            for event in _dropped(record.file, report):
                stream.add(event)
        stream.add(value)
    if stream is not None and stream.rows:
        name = record.source if record.file == STDIN else Path(record.file).name.partition(".")[0]
        yield stream.episode(name, record)


def _is_readable(value: Json) -> bool:
    """Users derive events of their own."""
    return (isinstance(value.get("type"), str) and isinstance(value.get("data"), dict)) or _is_evaluation(
        value
    )


def _is_of_another(file: str) -> bool:
    match = _DROPPED.fullmatch(Path(file).stem)
    return match is not None and (Path(file).parent / f"{match[1]}.jsonl").is_file()


def _dropped(file: str, report: ReadReport) -> Iterator[Json]:
    """The events that compactions took out of a stream, in order."""
    if file == STDIN:
        return
    path = Path(file)
    segments = {
        int(match[2]): segment
        for segment in path.parent.glob("*.dropped-*.jsonl")
        if (match := _DROPPED.fullmatch(segment.stem)) and match[1] == path.stem
    }
    for _, segment in sorted(segments.items()):
        for _, value in iter_objects(
            iter_records(str(segment), report), report, _is_readable, "no event of AG2"
        ):
            yield value


@dataclass
class _Stream:
    """The events of a conversation as messages."""

    report: ReadReport
    rows: list[dict[str, Any]] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)
    model: str | None = None
    stop: str | None = None
    _answer: dict[str, Any] | None = None  # whose calls come one by one
    _repeated: list[str] = field(default_factory=list)  # ids of its calls
    _thought: str = ""

    def add(self, event: Json) -> None:
        """Take one event: `type` and `data`."""
        kind, data = event["type"].rpartition(".")[2], as_object(event["data"])
        time = data.get("created_at")
        if kind in ("ModelRequest", "DrainedModelRequest"):
            self.rows.append({"role": "user", "content": _text(data.get("parts")), "timestamp": time})
        elif kind == "HumanMessage":
            self.rows.append({"role": "user", "content": as_text(data.get("content")), "timestamp": time})
        elif kind == "ModelResponse":
            self._response(data, time)
        elif kind.endswith(_RESULTS):
            self._result(kind, data, time)
        elif kind.endswith("ToolCallEvent"):
            self._single_call(data, time)
        elif kind.endswith(("Reasoning", "ReasoningEvent")):
            self._thought += as_text(data.get("content")) or ""
        elif kind == "CompactionSummary":
            self.report.note(SUMMARIES)
        elif kind == "HaltEvent":
            self.stop = "halted"
        elif kind not in _SILENT:
            self.report.note_each(_UNKNOWN, kind)

    def _response(self, data: Json, time: Any) -> None:
        calls = objects_in(as_object(data.get("tool_calls")).get("calls"))
        message = data.get("message", data)  # None, with a key, where it answers by calls alone
        if message is not None and "content" not in as_object(message):
            self.report.unread_message(_NO_CONTENT, as_object(message))
        self._answer = {
            "role": "assistant",
            "content": as_object(data.get("message")).get("content"),
            "tool_calls": [_call(one) for one in calls],
            "tokens": as_int(as_object(as_object(data.get("usage")).get("data")).get("completion_tokens")),
            "timestamp": time,
        }
        if self._thought:
            self._answer["reasoning_content"], self._thought = self._thought, ""
        self._repeated = [as_label(one.get("id")) or "" for one in calls]
        self.rows.append(self._answer)
        self.model = as_label(data.get("model")) or self.model
        self.stop = as_label(data.get("finish_reason"))

    def _single_call(self, data: Json, time: Any) -> None:
        name = as_label(data.get("id")) or ""
        if name in self._repeated:
            self._repeated.remove(name)
            return
        if self._answer is None:
            self._answer = {"role": "assistant", "content": None, "tool_calls": [], "timestamp": time}
            self.rows.append(self._answer)
        self._answer["tool_calls"].append(_call(data))

    def _result(self, kind: str, data: Json, time: Any) -> None:
        failed = not kind.endswith("ToolResultEvent")
        error = as_object(data.get("error"))
        parts = as_object(as_object(data.get("result")).get("data")).get("parts")
        row = {
            "role": "tool",
            "tool_call_id": data.get("parent_id"),
            "name": data.get("name"),
            "timestamp": time,
        }
        row |= {"content": _text(parts), "is_error": failed}
        if failed and error:
            row["error"] = f"{error.get('__exception__')}: {error.get('message')}"
        self.rows.append(row)

    def episode(self, name: str, record: Record) -> Episode:
        """Return the conversation as an episode."""
        turns = turns_of(self.rows, self.report)
        times = [turn.time for turn in turns if turn.time is not None]
        return Episode(
            id=name,
            turns=turns,
            stop_reason=self.stop,
            model=self.model,
            time=times[0] if times else None,
            tokens=sum_known(turn.tokens for turn in turns),
            source=record.source,
        )


def _call(call: Json) -> Json:
    return {"id": call.get("id"), "function": {"name": call.get("name"), "arguments": call.get("arguments")}}


def _text(parts: Any) -> str:
    """The text of a request's or a result's parts; what is neither text nor data as its kind."""
    texts = []
    for part in objects_in(parts):
        value = part["content"] if "content" in part else part.get("data")
        if isinstance(value, dict) and "__bytes__" in value:
            value = None
        kind = str(part.get("__event__", "part")).rpartition(".")[2]
        texts.append(f"[{kind}]" if value is None else as_text(value) or "")
    return "\n".join(texts)


def _task(task: Json, run: Json, record: Record, report: ReadReport) -> Episode:
    """A task of an evaluation. Its prompt stands beside the events; a feedback is a part of the reward."""
    stream, name = _Stream(report), as_label(task.get("task_id")) or record.source
    prompt = as_object(task.get("inputs"))
    stream.rows.append({"role": "user", "content": as_text(prompt.get("input", prompt or None))})
    for event in objects_in(task.get("events")):
        stream.add({"type": as_label(event.get("type")) or "", "data": event})
    scores = {as_label(one.get("key")) or "": one.get("score") for one in objects_in(task.get("feedback"))}
    parts = {key: number for key, score in scores.items() if (number := as_number(score)) is not None}
    only = next(iter(scores.values())) if len(scores) == 1 else None
    episode = stream.episode(name, record)
    episode.task, episode.group = name, None
    episode.time = as_time(run.get("created_at"))  # those of the events are when it was written
    for turn in episode.turns:
        turn.time = None
    episode.duration_s = None if (took := as_number(task.get("duration_ms"))) is None else took / 1000
    episode.tokens = as_int(as_object(task.get("tokens")).get("output"))
    episode.reward_parts, episode.success = parts, only if isinstance(only, bool) else None
    episode.reward = (
        next(iter(parts.values())) if len(parts) == 1 else parts.get("reward", parts.get("score"))
    )
    if task.get("exception") is not None:
        episode.stop_reason = "error"
    return episode

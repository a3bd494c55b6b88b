"""The post-training-toolkit's step JSONL: one event a line, episodes interleaved, calls and results not
linked.

A result answers the oldest open call of its tool in its episode. Latency is the time between their
timestamps, where both have one. Steps out of order are sorted; a line that repeats another of its episode is
dropped. Both are counted.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from trimtab.traces.core.coerce import (
    as_flag,
    as_int,
    as_label,
    as_number,
    as_object,
    as_text,
    as_time,
    first_of,
)
from trimtab.traces.core.episode import Call, Episode, Turn
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import UNREAD_REWARD, UNREAD_SUCCESS, ReadReport, Record
from trimtab.traces.errors.detect import error_words, says_fine, says_no_error
from trimtab.traces.errors.patterns import starts_as_error
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.messages.content_blocks import is_unknown
from trimtab.traces.readers.ptt_steps.buffer import COPIES, EpisodeLines, in_order
from trimtab.traces.readers.ptt_steps.field_names import KINDS, StepNames
from trimtab.typing import Json

NO_END, ORPHANS = "episodes without an episode_end", "tool results that answer no call, kept as turns"

_TASK, _GROUP = ("task_id", "task", "prompt_id"), ("group_id", "group")
_SAID = {
    "user_message": ("content",), "assistant_message": ("content",), "tool_call": ("tool",),
    "tool_result": ("result", "content", "error"),
}  # fmt: skip
"""Kind -> what it says, under one of these names."""
_ASSISTANT = ("assistant_message", "tool_call", "tool_parse_error")


def is_step(value: Json) -> bool:
    """Has it an episode, and is it of a kind of step?"""
    return "episode_id" in value and isinstance(value.get("type"), str)


def read_steps(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """Episodes in the order of their first line; one that begins anew after its end is another
    (`traces.restarts`).

    All lines are buffered until the file ends: a late line may belong anywhere.
    """
    episodes: dict[str, EpisodeLines] = {}
    names: StepNames = report.state.setdefault("steps", StepNames())
    for record, value in iter_objects(records, report):
        name = as_label(value.get("episode_id"))
        if name is None or not isinstance(value.get("type"), str):
            missing = "episode_id" if name is None else "type"
            report.malformed(record.file, record.line, f"no {missing}")
            continue
        names.add(value, record.line)
        if (lines := episodes.get(name)) is None:
            lines = episodes[name] = EpisodeLines(name, record.file)
        lines.add(record)
    names.write_notes(report.notes)
    for lines in in_order(episodes, report):
        yield _episode(lines.name, lines.source, _ordered(lines.events, report), report)


def _ordered(events: Sequence[Json], report: ReadReport) -> list[Json]:
    """Sorted by step, where every event has one; the same event twice in one step is one."""
    numbers: list[Any] = [event.get("step") for event in events]
    if all(type(n) is int for n in numbers) and all(a < b for a, b in itertools.pairwise(numbers)):
        return list(events)
    fresh: list[Json] = []
    seen: dict[int | None, list[Json]] = {}
    for event in events:
        step = as_int(event.get("step"))
        same = seen.setdefault(step, [])
        if step is not None and event in same:
            report.note(COPIES)
            continue
        same.append(event)
        fresh.append(event)
    steps = [as_int(event.get("step")) for event in fresh]
    known = [step for step in steps if step is not None]
    if len(known) < len(steps):
        return fresh
    order = sorted(range(len(fresh)), key=known.__getitem__)
    moved = sum(a > b for a, b in itertools.pairwise(known))
    if moved:
        report.note("steps out of order, sorted", moved)
    return [fresh[i] for i in order]


def _episode(name: str, source: str, events: list[Json], report: ReadReport) -> Episode:
    episode = Episode(id=name, source=source)
    pending: list[tuple[Call, float | None]] = []
    tokens: list[int] = []
    before, ended = "", False
    report.num_messages += len(events)
    for event in events:
        type_name: str = event["type"]
        kind, when = KINDS.get(type_name, type_name), as_time(event.get("timestamp"))
        names = _SAID.get(kind)
        if names is not None and type(event.get(names[0])) is not str and _says_nothing(event, names):
            report.unread_message(f"steps of kind {kind} that say nothing under a name we know", event)
        episode.time = when if episode.time is None else episode.time
        if when is not None and episode.time is not None:
            episode.duration_s = when - episode.time
        if (count := as_int(event.get("tokens"))) is not None and kind != "episode_end":
            tokens.append(count)
        if kind == "episode_end":
            _end(episode, event, report)
        elif kind in ("tool_call", "tool_parse_error"):
            call = _call(event, when)
            _assistant(episode, event, before, when).calls.append(call)
            if kind == "tool_call":
                pending.append((call, when))
        elif kind == "tool_result":
            _result(episode, event, when, pending, report)
        else:
            role = kind.removesuffix("_message") if kind in KINDS.values() else kind
            turn = Turn(
                role=role, content=as_text(event.get("content")), step=_step(event), time=when, tokens=count
            )
            episode.turns.append(turn)
        if kind == "episode_end":
            ended = True
        else:
            before = kind
    if not ended:
        report.note(NO_END)
    _fill_task(episode, events)
    episode.tokens = sum(tokens) if episode.tokens is None and tokens else episode.tokens
    return episode


def _says_nothing(event: Json, names: tuple[str, ...]) -> bool:
    unknown = event["type"] in ("assistant_message", "assistant") and is_unknown(event.get("content"))
    return unknown or not any(name in event for name in names)


def _assistant(episode: Episode, event: Json, before: str, when: float | None) -> Turn:
    """The turn a call belongs to: the assistant's latest, if its message or another call came just before;
    else one of its own."""
    if before in _ASSISTANT and episode.turns and episode.turns[-1].role == "assistant":
        return episode.turns[-1]
    episode.turns.append(Turn(role="assistant", step=_step(event), time=when))
    return episode.turns[-1]


def _call(event: Json, when: float | None) -> Call:
    call = Call(
        name=as_label(event.get("tool")) or "", arguments=_arguments(event.get("args")), step=_step(event),
        time=when,
    )  # fmt: skip
    if event["type"] == "tool_parse_error":
        call.bad_arguments = as_text(first_of(event, "content", "args")) or ""
        call.error, call.error_from = as_text(event.get("error")) or "the call could not be parsed", "parse"
    return call


def _arguments(raw: Any) -> Any:
    """As they are; of text that is a JSON object, as OpenAI sends it, the object."""
    if isinstance(raw, str) and raw.lstrip()[:1] == "{":
        with contextlib.suppress(BadJson):
            value = parse_json(raw)
            return value if isinstance(value, dict) else raw
    return raw


def _result(
    episode: Episode,
    event: Json,
    when: float | None,
    pending: list[tuple[Call, float | None]],
    report: ReadReport,
) -> None:
    tool = as_label(event.get("tool"))
    index = next((i for i, (call, _) in enumerate(pending) if call.name == tool or not tool), None)
    text = as_text(first_of(event, "result", "content"))
    if index is None:
        report.note(ORPHANS)
        episode.turns.append(Turn(role="tool", content=text, name=tool, step=_step(event)))
        return
    call, called = pending.pop(index)
    call.result = text or ""
    error = event.get("error")
    if error is not None and not says_no_error(error):
        call.error, call.error_from = error_words(error) or call.result or "error", "log"
    elif error is not None and says_fine(error):  # the log's word is before what the text looks like
        call.error_from = "log"
    elif starts_as_error(call.result):
        call.error, call.error_from = call.result, "text"
    latency = as_number(event.get("latency_s"))
    if latency is None:
        latency = as_number(event.get("duration_s"))
    if (
        (latency is None or not math.isfinite(latency))
        and when is not None
        and called is not None
        and when >= called
    ):
        latency = when - called
    call.latency_s = latency


def _end(episode: Episode, event: Json, report: ReadReport) -> None:
    episode.reward = as_number(event.get("reward"))
    episode.success = as_flag(event.get("success"))
    report.unread(UNREAD_SUCCESS, event.get("success"), episode.success)
    report.unread(UNREAD_REWARD, event.get("reward"), episode.reward)
    episode.tokens = as_int(event.get("total_tokens"))
    episode.cost = as_number(event.get("total_cost"))
    fields = _fields_of(event)
    episode.task = as_label(first_of(fields, *_TASK))
    episode.group = as_label(first_of(fields, *_GROUP))
    episode.stop_reason = as_label(first_of(fields, "stop_reason", "termination_reason"))


def _fields_of(event: Json) -> Json:
    """Return the fields of the event, those in its metadata included."""
    known = {name: value for name, value in event.items() if value is not None}
    return {**as_object(event.get("metadata")), **known}


def _fill_task(episode: Episode, events: list[Json]) -> None:
    """Where the end names no task or no group: the last row of step 0, or of no step, that does."""
    if episode.task is not None and episode.group is not None:
        return
    for event in reversed(events):
        step = event.get("step")
        late = type(step) is int and step != 0  # most are
        if not late and event["type"] != "episode_end" and as_number(step) in (None, 0):
            fields = _fields_of(event)
            if episode.task is None:
                episode.task = as_label(first_of(fields, *_TASK))
            if episode.group is None:
                episode.group = as_label(first_of(fields, *_GROUP))


def _step(event: Json) -> int:
    step = as_int(event.get("step"))
    return -1 if step is None else step

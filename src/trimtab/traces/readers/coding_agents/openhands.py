"""OpenHands: rows of its evaluation (`output.jsonl`), and conversations of events, in one file or many.

Held against a conversation that openhands-sdk 1.58.2 wrote, a trajectory of openhands-ai 0.62.0, and the
source of OpenHands/benchmarks (`benchmarks/utils/models.py`, 0756724f) for rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trimtab.traces.core.coerce import (
    as_int,
    as_label,
    as_number,
    as_object,
    as_time,
    first_of,
    objects_in,
    sum_known,
)
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.json_text import json_of_file
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.find import STDIN
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.messages.turns import turns_of
from trimtab.traces.readers.coding_agents.log_folders import event_number, is_event_file
from trimtab.traces.readers.coding_agents.openhands_actions import (
    conversation_of_actions,
    flat_history,
    is_action,
)
from trimtab.traces.readers.coding_agents.openhands_events import conversation_of, is_event, stop_of
from trimtab.traces.readers.swe_agent import is_resolved
from trimtab.typing import Json

_RESOLVED = ("resolved", "success", "result", "score")


def is_openhands_row(value: Json) -> bool:
    """Is it a row of an evaluation's output?"""
    history = flat_history(value.get("history"))[:20]
    return "instance_id" in value and any(is_event(one) or is_action(one) for one in history)


def is_openhands_event(value: Json) -> bool:
    """Is it an event of a conversation?"""
    return is_event(value) or is_action(value)


def read_openhands_rows(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """An episode a row."""
    for record, value in iter_objects(
        records, report, is_openhands_row, "no instance_id and history of events"
    ):
        metadata = as_object(value.get("metadata"))
        llm = as_object(first_of(metadata, "llm", "llm_config"))
        episode = _episode(flat_history(value["history"]), {"metrics": value.get("metrics")}, record, report)
        task = as_label(value.get("instance_id")) or record.source
        episode.id, episode.task = task, task
        episode.model = as_label(llm.get("model")) or episode.model
        episode.success = _success(value, task, record.file, report)
        if value.get("error"):
            episode.stop_reason = stop_of(str(value["error"]))
        attempt = as_int(value.get("attempt"))
        episode.extra = {"attempt": attempt} if attempt is not None else {}
        yield episode


def read_openhands_events(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """The episode of a file of events, or of a folder with a file for each, of which one stands for all."""
    objects = list(iter_objects(records, report, is_openhands_event, "no event of OpenHands"))
    if not objects:
        return
    record = objects[0][0]
    events: list[Json] = [value for _, value in objects]
    state: Json = {}
    if record.file != STDIN and is_event_file(record.file):
        events = list(_events_of(Path(record.file).parent, report))
        state = _state_of(Path(record.file).parent.parent, report)
    episode = _episode(events, state, record, report)
    episode.id = as_label(state.get("id")) or _folder_name(record.file) or record.source
    status = as_label(state.get("execution_status"))
    if status in ("error", "stuck", "paused") and episode.stop_reason in (None, "finished"):
        episode.stop_reason = status
    yield episode


def _folder_name(file: str) -> str | None:
    return Path(file).absolute().parent.parent.name if file != STDIN and is_event_file(file) else None


def _events_of(folder: Path, report: ReadReport) -> Iterator[Json]:
    files = sorted((str(path) for path in folder.iterdir() if is_event_file(str(path))), key=event_number)
    for file in files:
        value = json_of_file(Path(file))
        if isinstance(value, dict) and is_openhands_event(value):
            yield value
        else:
            report.malformed(file, 1, "no event of OpenHands, or cut off")


def _state_of(folder: Path, report: ReadReport) -> dict[str, Any]:
    """What a conversation's `base_state.json` says."""
    path = folder / "base_state.json"
    state = as_object(json_of_file(path))
    if state:
        report.used.add(str(path.resolve()))
    return state


def _episode(events: list[Json], state: Json, record: Record, report: ReadReport) -> Episode:
    newer = [event for event in events if is_event(event)]
    leaf = as_label(state.get("leaf_event_id"))
    talk = conversation_of(newer, leaf, report) if newer else conversation_of_actions(events, report)
    metrics = [as_object(state.get("metrics")), *_usages(state)]
    by_response = {
        as_label(one.get("response_id")): as_int(one.get("completion_tokens"))
        for metric in metrics
        for one in objects_in(metric.get("token_usages"))
    }
    for message in talk.messages:
        tokens = by_response.get(message.pop("response", None))
        if tokens is not None:
            message["tokens"] = tokens
    usages = [as_object(metric.get("accumulated_token_usage")) for metric in metrics]
    times = [as_time(event.get("timestamp")) for event in events[:1] + events[-1:]]
    known = [time for time in times if time is not None]
    turns = turns_of(talk.messages, report)
    total = sum_known(as_int(one.get("completion_tokens")) for one in usages)
    return Episode(
        id=record.source,
        turns=turns,
        stop_reason=talk.stop,
        model=as_label(as_object(as_object(state.get("agent")).get("llm")).get("model")) or talk.model,
        time=known[0] if known else None,
        duration_s=known[1] - known[0] if len(known) == 2 else None,
        tokens=sum_known(turn.tokens for turn in turns) if total is None else total,
        cost=sum_known(as_number(metric.get("accumulated_cost")) for metric in metrics),
        source=record.source,
    )


def _usages(state: Json) -> list[Json]:
    return [
        as_object(one) for one in as_object(as_object(state.get("stats")).get("usage_to_metrics")).values()
    ]


def _success(value: Json, task: str, file: str, report: ReadReport) -> bool | None:
    """What the row says of its test, or else the report next to it."""
    result = as_object(value.get("test_result"))
    for holder in (as_object(value.get("report")), as_object(result.get("report")), result):
        flag = next((holder[name] for name in _RESOLVED if isinstance(holder.get(name), bool)), None)
        if flag is not None:
            return bool(flag)
    return is_resolved(task, file, report.used)

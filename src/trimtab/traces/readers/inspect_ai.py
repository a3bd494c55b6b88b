"""Inspect logs as JSON: one file an eval, one sample an attempt, with its events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
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
from trimtab.traces.core.episode import Call, Episode
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.core.task_keys import task_key
from trimtab.traces.core.tool_schemas import tools_of
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.messages.turns import as_messages, turns_of
from trimtab.typing import Json

_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
"""As Inspect's `value_to_float` reads words; the last four in any case."""


def is_inspect(value: Json) -> bool:
    """An Inspect log as JSON; without `log_samples` it has no samples."""
    return isinstance(value.get("eval"), dict) and (
        isinstance(value.get("samples"), list) or ("status" in value and "plan" in value)
    )


def read_inspect(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """Inspect's logs, JSON or .eval.

    The reward is the first score: C 1, P 0.5, I and N 0, or its number; all scores are parts, those of a
    scorer with several each by its key. NaN is Inspect's sign of a sample that was not scored. A limit is the
    stop reason. The id of a sample counts within its eval's task.
    """
    for record, value in iter_objects(records, report, is_inspect, "no eval with samples"):
        samples = value.get("samples") or []
        if not samples:
            report.note("Inspect logs without samples (log_samples was off, or none had ended)")
        for sample in samples:
            if isinstance(sample, dict):
                yield _sample(sample, value["eval"], record, report)
            else:
                report.malformed(record.file, record.line, "a sample that is not an object")


def _sample(sample: Json, run: Json, record: Record, report: ReadReport) -> Episode:
    messages = sample.get("messages")
    limit, error, output = sample.get("limit"), sample.get("error"), sample.get("output")
    parts = _scores(sample.get("scores"), report)
    task = task_key(as_label(run.get("task")), as_label(sample.get("id")))
    epoch, model = as_label(sample.get("epoch")), as_label(run.get("model"))
    stop = _limit(limit) if isinstance(limit, dict) else _stop_reason(output)
    if error:
        stop = "error"
    if isinstance(retries := sample.get("error_retries"), list) and retries:
        report.note(
            "attempts of a sample that ended in an error and were made again, not in the log", len(retries)
        )
    if sample.get("invalidation"):
        report.note("samples that were declared invalid, read all the same")
    events = objects_in(sample.get("events"))
    episode = Episode(
        id=f"{task}/{epoch}" if epoch is not None else task or record.source,
        turns=turns_of(as_messages(messages), report),
        task=task, tokens=_tokens(sample), tools=_tools(events), reward=next(iter(parts.values()), None),
        reward_parts=parts, stop_reason=stop, model=model, source=record.source,
        time=as_time(sample.get("started_at")), duration_s=as_number(sample.get("total_time")),
        extra={"target": sample.get("target"), "error": error},
    )  # fmt: skip
    _time_calls(episode.calls, events, error)
    return episode


def _tokens(sample: Json) -> int | None:
    """Written by all models of the sample; else by its last answer."""
    used = list(as_object(sample.get("model_usage")).values())
    used = used or [as_object(sample.get("output")).get("usage")]
    return sum_known(as_int(one.get("output_tokens")) for one in objects_in(used))


def _tools(events: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """What the models were offered, each name once; None where no event says so."""
    by_name: dict[str, dict[str, Any]] = {}
    offered = [event.get("tools") for event in events if event.get("event") == "model"]
    for tool in (tool for tools in offered for tool in tools_of(tools) or []):
        function = tool.get("function")
        if isinstance(function, dict):
            by_name.setdefault(as_label(function.get("name")) or "", tool)
    return list(by_name.values()) or None


def _time_calls(calls: list[Call], events: list[dict[str, Any]], error: Any) -> None:
    """A tool's event says when its call began, how long it took, waiting included, and whether it raised,
    which ends the sample with `error`; ids may come again, and are used up in order."""
    ran: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if event.get("event") == "tool" and (called := as_label(event.get("id"))):
            ran.setdefault(called, []).append(event)
    for call in calls:
        if ran.get(call.id):
            event = ran[call.id].pop(0)
            began, ended = as_time(event.get("timestamp")), as_time(event.get("completed"))
            took = None if began is None or ended is None else ended - began
            call.time = began if call.time is None else call.time
            call.latency_s = as_number(event.get("working_time")) if took is None else took
            if event.get("failed") is True and not call.error:
                call.error, call.error_from = _failure(event, error), "log"


def _failure(event: Json, error: Any) -> str:
    """Of a tool that raised: its event's error, else the one that ended the sample."""
    raised = next((one for one in (event.get("error"), error) if isinstance(one, dict)), {})
    return as_label(first_of(raised, "message", "type")) or "the tool raised an exception"


def _limit(limit: Json) -> str | None:
    kind = as_label(limit.get("type"))
    # an operator's stop is not a limit
    named = {"message": "max_turns", "turn": "max_turns", "working": "time_limit", "operator": "operator"}
    return named.get(kind, f"{kind}_limit") if kind else None


def _stop_reason(output: Any) -> str | None:
    """Of the last answer of the model; `output.stop_reason` is a property, and is not in the file."""
    choices = output.get("choices") if isinstance(output, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return as_label(first.get("stop_reason")) if isinstance(first, dict) else None


def _scores(scores: Any, report: ReadReport) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name, score in as_object(scores).items():
        for part, value in _values(str(name), score.get("value") if isinstance(score, dict) else None):
            number = _graded(value)
            if number is None:
                report.note("scores that are no number, left out")
            elif math.isnan(number):
                report.note("scores that are NaN, Inspect's sign of a sample that was not scored, left out")
            else:
                numbers[part] = number
    return numbers


def _values(name: str, value: Any) -> list[tuple[str, Any]]:
    """A scorer gives one value, a list or an object of them."""
    if isinstance(value, dict):
        return [(f"{name}/{key}", inner) for key, inner in value.items()]
    return (
        [(f"{name}/{i}", inner) for i, inner in enumerate(value)]
        if isinstance(value, list)
        else [(name, value)]
    )


def _graded(value: Any) -> float | None:
    if not isinstance(value, str):
        return as_number(value)
    grade = _GRADES.get(value, _GRADES.get(value.lower()) if len(value) > 1 else None)
    return as_number(value) if grade is None else grade

"""What agent frameworks write: SWE-agent trajectories, Inspect logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trimtab.traces.episode import Call, Episode, Turn
from trimtab.traces.json_records import require_object
from trimtab.traces.messages import turns_of
from trimtab.traces.reading import ReadReport, Record
from trimtab.traces.tool_errors import error_text
from trimtab.traces.values import as_int, as_label, as_number, as_text, as_time, first_of

__all__ = ["is_inspect", "is_swe", "read_inspect", "read_swe"]

Json = Mapping[str, Any]
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}


def is_swe(value: Json) -> bool:
    """SWE-agent's .traj."""
    return isinstance(value.get("trajectory"), list) and ("info" in value or "history" in value)


def read_swe(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """SWE-agent's .traj: an action is a call of its first word, with the whole command as its argument; no reward is in it."""
    for record in records:
        value = require_object(record, report)
        if value is None:
            continue
        if not is_swe(value):
            report.malformed(record.file, record.line, "no trajectory with info or history")
            continue
        info: Json = value["info"] if isinstance(value.get("info"), dict) else {}
        stats: Json = info["model_stats"] if isinstance(info.get("model_stats"), dict) else {}
        history = value.get("history")
        turns = turns_of(_before(history if isinstance(history, list) else []), report)
        turns += [_action(step, i) for i, step in enumerate(value["trajectory"]) if isinstance(step, dict)]
        name = Path(record.file).name.removesuffix(".traj")
        yield Episode(
            id=name, turns=turns, task=as_label(value.get("instance_id")) or name, stop_reason=as_label(info.get("exit_status")),
            tokens=as_int(stats.get("tokens_received")), cost=as_number(stats.get("instance_cost")), source=record.source,
            extra={"submission": info.get("submission"), "environment": value.get("environment")},
        )  # fmt: skip


def _before(history: list[Any]) -> list[Any]:
    """Messages before the agent's first, demonstrations left out."""
    found: list[Any] = []
    for message in history:
        if not isinstance(message, dict) or message.get("role") == "assistant":
            break
        if not message.get("is_demo"):
            found.append(message)
    return found


def _action(step: Json, number: int) -> Turn:
    turn = Turn(role="assistant", content=as_text(first_of(step, "thought", "response")), step=number)
    action = (as_text(step.get("action")) or "").strip()
    if action:
        call = Call(
            name=action.split()[0][:80],
            arguments={"command": action},
            result=as_text(step.get("observation")),
            step=number,
        )
        call.latency_s = as_number(step.get("execution_time"))
        if error := error_text(call.result):
            call.error, call.error_from = error, "text"
        turn.calls.append(call)
    return turn


def is_inspect(value: Json) -> bool:
    """An Inspect log as JSON."""
    return isinstance(value.get("samples"), list) and isinstance(value.get("eval"), dict)


def read_inspect(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """Inspect's logs, JSON or .eval. The reward is the first score: C 1, P 0.5, I and N 0, or
    its number; all scores are parts. A limit is the stop reason."""
    for record in records:
        value = require_object(record, report)
        if value is None:
            continue
        if not is_inspect(value):
            report.malformed(record.file, record.line, "no eval with samples")
            continue
        model = as_label(value["eval"].get("model"))
        for sample in value["samples"]:
            if isinstance(sample, dict):
                yield _sample(sample, model, record, report)
            else:
                report.malformed(record.file, record.line, "a sample that is no object")


def _sample(sample: Json, model: str | None, record: Record, report: ReadReport) -> Episode:
    messages = sample.get("messages")
    limit, error, output = sample.get("limit"), sample.get("error"), sample.get("output")
    parts = _scores(sample.get("scores"))
    task, epoch = as_label(sample.get("id")), as_label(sample.get("epoch"))
    stop = as_label(output.get("stop_reason")) if isinstance(output, dict) else None
    if isinstance(limit, dict):
        stop = {
            "message": "max_turns",
            "token": "token_limit",
            "time": "time_limit",
            "working": "time_limit",
        }.get(str(limit.get("type")), as_label(limit.get("type")))
    if error:
        stop = "error"
    return Episode(
        id=f"{task}/{epoch}" if epoch is not None else task or record.source, turns=turns_of(messages if isinstance(messages, list) else [], report),
        task=task, reward=next(iter(parts.values()), None), reward_parts=parts, stop_reason=stop, model=model, source=record.source,
        time=as_time(sample.get("started_at")), duration_s=as_number(sample.get("total_time")),
        extra={"target": sample.get("target"), "error": error},
    )  # fmt: skip


def _scores(scores: Any) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, score in scores.items() if isinstance(scores, dict) else ():
        value = score.get("value") if isinstance(score, dict) else None
        number = _GRADES.get(value) if isinstance(value, str) and value in _GRADES else as_number(value)
        if number is not None:
            found[str(name)] = number
    return found

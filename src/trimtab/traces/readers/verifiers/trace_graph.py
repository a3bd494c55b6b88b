"""verifiers' `traces.jsonl` (0.4, and prime-rl's rollouts): an episode a line, a trace for each of its
agents, a trace a graph of messages.

A node names the one before it, so a conversation is the way from a leaf back to its root. Compaction and
sub-agents make more leaves; the last one's conversation is read, as verifiers' own `Trace.messages`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from trimtab.traces.core.coerce import (
    as_int,
    as_label,
    as_list,
    as_number,
    as_object,
    as_time,
    first_of,
    numbers_in,
    objects_in,
    sum_known,
)
from trimtab.traces.core.episode import Episode, Turn
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.core.task_keys import task_key
from trimtab.traces.core.tool_schemas import tools_of
from trimtab.traces.messages.turns import turns_of
from trimtab.traces.readers.verifiers.token_ids import RATIO, give_ids
from trimtab.typing import Json


def is_traces(value: Json) -> bool:
    """A line of verifiers' traces.jsonl, or a trace alone."""
    traces = value.get("traces")
    return "task" in value and ((isinstance(traces, list) and "env" in value) or _is_trace(value))


def episodes_of_traces(record: Record, value: Json, report: ReadReport) -> Iterator[Episode]:
    """An episode a trace.

    Traces of agents that are not trained (judges, users) are left out where another is, and counted.
    """
    traces = objects_in([value] if _is_trace(value) else value.get("traces"))
    if not traces:
        report.note("episodes of verifiers that failed before an agent ran, left out")
    trained = [one for one in traces if as_object(one.get("agent")).get("trainable") is not False]
    if trained and len(trained) < len(traces):
        report.note("traces of agents that are not trained, left out", len(traces) - len(trained))
    for trace in trained or traces:
        yield _episode(record, value, trace, report)


def _episode(record: Record, value: Json, trace: Json, report: ReadReport) -> Episode:
    env, agent, timing = map(as_object, (value.get("env"), trace.get("agent"), trace.get("timing")))
    calls = objects_in(trace.get("calls"))
    usages = [as_object(call.get("usage")) for call in calls]
    work = as_object(as_object(value.get("run")).get("work"))
    parts, reward = _rewards(trace)
    start = as_time(timing.get("start"))
    turns = _turns(trace, calls, report)
    return Episode(
        id=as_label(first_of(trace, "id")) or record.source,
        turns=turns,
        log_ratio_of=RATIO if any(turn.log_ratios for turn in turns) else None,
        task=task_key(as_label(first_of(env, "name", "id")),
        _task(as_object(trace.get("task") or value.get("task")))),
        group=as_label(as_object(value.get("group")).get("id")),
        reward=reward,
        reward_parts=parts,
        stop_reason=_stop(trace, calls, report),
        tools=tools_of(trace.get("tools")) or None,
        model=as_label(first_of(calls[-1], "model") if calls else None)
        or as_label(as_object(agent.get("config")).get("model")),
        policy_version=as_int(as_object(work.get("policy")).get("start")),
        step=as_int(work.get("step")),
        time=start,
        duration_s=_duration(timing, start),
        tokens=sum_known(as_int(usage.get("completion_tokens")) for usage in usages),
        cost=sum_known(as_number(usage.get("cost")) for usage in usages),
        source=record.source,
        extra={"agent": agent.get("name"), "environment": env.get("id"),
        "errors": trace.get("errors") or None},
    )  # fmt: skip


def _turns(trace: Json, calls: list[dict[str, Any]], report: ReadReport) -> list[Turn]:
    """The messages' turns, each with the time and, if a model call made it, the tokens; see `give_ids` for
    theirs."""
    nodes = _way(trace, report)
    used = {as_int(call.get("node")): as_object(call.get("usage")) for call in calls}
    turns = turns_of(
        [
            {"timestamp": node.get("timestamp"), "usage": used.get(i), **as_object(node.get("message"))}
            for i, node in nodes
        ],
        report,
    )
    if any(node.get("token_ids") for _, node in nodes) and not give_ids(turns, [node for _, node in nodes]):
        report.note(
            "traces whose token ids, masks and log-probabilities do not fit their messages: ids left out"
        )
    return turns


def _way(trace: Json, report: ReadReport) -> list[tuple[int, Json]]:
    """Number and node on the way from the root to the last leaf."""
    nodes = [as_object(node) for node in as_list(trace.get("nodes"))]
    parents = [as_int(node.get("parent")) for node in nodes]
    at: int | None = max(set(range(len(nodes))) - set(parents), default=None)
    way: list[int] = []
    while at is not None and 0 <= at < len(nodes) and len(way) < len(nodes):
        way.append(at)
        at = parents[at]
    if len(way) < len(nodes):
        report.note(
            "messages of other branches of a trace (compaction, sub-agents), left out", len(nodes) - len(way)
        )
    return [(i, nodes[i]) for i in reversed(way)]


def _rewards(trace: Json) -> tuple[dict[str, float], float | None]:
    """Scores and metrics by name, and the sum of the scores by their weights; those that were never given
    (null) count for nothing."""
    parts: dict[str, float] = {}
    total: float | None = None
    for name, entry in as_object(trace.get("rewards")).items():
        one = as_object(entry) if not isinstance(entry, (int, float)) else {"score": entry}
        score, weight = as_number(one.get("score")), as_number(one.get("weight", 1.0))
        if score is not None:
            parts[str(name)] = score
            total = (total or 0.0) + score * (math.nan if weight is None else weight)
    return parts | numbers_in(trace.get("metrics")), total


def _stop(trace: Json, calls: list[dict[str, Any]], report: ReadReport) -> str | None:
    if trace.get("ok") is not True and trace.get("errors"):
        report.note("episodes that ended in an error of their environment")
        return "error"
    finish = next((call.get("finish_reason") for call in reversed(calls) if not call.get("error")), None)
    return "length" if finish == "length" else as_label(trace.get("stop_condition"))


def _task(task: Json) -> str | None:
    """Its key where that is a name; else its row's id; else the digest of its row, which verifiers takes for
    the key."""
    key, digest, row = as_label(task.get("key")), as_label(task.get("hash")), as_object(task.get("data"))
    named = key if key != digest else as_label(first_of(row, "id"))
    return named or (digest[:16] if digest else as_label(first_of(row, "name", "idx")))


def _duration(timing: Json, start: float | None) -> float | None:
    """From the start to the end of the last stage."""
    ends = [as_number(as_object(stage).get("end")) for stage in timing.values()]
    last = max((end for end in ends if end), default=None)
    return None if start is None or last is None else last - start


def _is_trace(value: Json) -> bool:
    return isinstance(value.get("nodes"), list) and "rewards" in value


def _sum(values: Iterator[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _total(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None

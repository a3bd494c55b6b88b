"""verifiers' results, one attempt a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trimtab.traces.core.coerce import as_int, as_label, as_number, as_object, as_time, first_of, numbers_in
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.core.task_keys import env_of_path, space_of, task_key
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.readers.chat import episode_of
from trimtab.traces.readers.prompt_completion import dialogue
from trimtab.traces.readers.verifiers.trace_graph import episodes_of_traces, is_traces
from trimtab.typing import Json


def is_verifiers(value: Json) -> bool:
    """verifiers' results.jsonl, or since 0.4 its traces.jsonl."""
    return (
        "completion" in value and "reward" in value and ("example_id" in value or _is_old(value))
    ) or is_traces(value)


def _is_old(value: Json) -> bool:
    """verifiers before `example_id`: the example's number is the `id`."""
    return isinstance(value.get("id"), int) and value.keys() >= {"prompt", "answer", "task"}


def read_verifiers(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """`results.jsonl` of verifiers: an example of an environment is a task, each line an attempt; see
    `traces.verifiers_traces` for the other."""
    missing = "no example_id, completion and reward, nor traces"
    for record, value in iter_objects(records, report, is_verifiers, missing):
        if is_traces(value):
            yield from episodes_of_traces(record, value, report)
            continue
        example = value["example_id"] if "example_id" in value else value["id"]
        fields = {k: v for k, v in value.items() if k not in ("example_id", "id", "task")}
        fields |= {"task_id": example, "tools": first_of(value, "tools", "tool_defs")}
        episode = episode_of(record, fields, [], report)
        prompt, completion = value.get("prompt"), value.get("completion")
        episode.turns, tools = dialogue(value, prompt, completion, report, record)
        episode.tools = episode.tools if episode.tools is not None else tools
        episode.id = record.source
        space = as_label(value.get("task")) or space_of(value) or env_of_path(record.file)
        episode.task = task_key(space, as_label(example))
        episode.reward_parts = numbers_in(value.get("metrics"))
        _usage(episode, value)
        if value.get("is_truncated") is True:
            episode.stop_reason = "truncated"
        if value.get("error"):  # the environment failed, and wrote a reward of 0
            episode.stop_reason = "error"
            report.note("episodes that ended in an error of their environment")
        episode.extra = {"environment": value.get("task"), "error": value.get("error")}
        yield episode


def _usage(episode: Episode, value: Json) -> None:
    """verifiers' milliseconds and tokens."""
    timing = as_object(value.get("timing"))
    total = as_number(first_of(timing, "total_ms") or value.get("total_ms"))  # once a column of its own
    episode.duration_s = episode.duration_s if total is None else total / 1000
    episode.time = as_time(timing.get("start_time")) if episode.time is None else episode.time
    used = as_int(as_object(value.get("token_usage")).get("output_tokens"))
    episode.tokens = episode.tokens if used is None else used

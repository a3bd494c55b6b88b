"""What trainers dump: TRL's completions, verl's rollouts, verifiers' results, prime-rl's token exports."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

from trimtab.traces.episode import Episode, Turn
from trimtab.traces.json_records import BadJson, parse_json, require_object
from trimtab.traces.messages import episode_of
from trimtab.traces.preferences import is_chat
from trimtab.traces.reading import ReadReport, Record
from trimtab.traces.roles import prompt_turns
from trimtab.traces.tagged import tagged_turns
from trimtab.traces.task_keys import env_of_path, space_of, task_key
from trimtab.traces.trl_rewards import MAX_ROWS, numbers_of, reward_columns
from trimtab.traces.values import as_flag, as_int, as_label, as_number, as_text, as_time, first_of
from trimtab.traces.verifiers_traces import episodes_of_traces, is_traces

__all__ = [
    "is_prime", "is_trl", "is_verifiers", "is_verl", "read_prime", "read_trl", "read_verifiers", "read_verl",
]  # fmt: skip

Json = Mapping[str, Any]


def is_trl(value: Json) -> bool:
    """TRL's log_completions: text, and an advantage."""
    return "prompt" in value and "completion" in value and "advantage" in value


def read_trl(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """`completions_*.parquet` of TRL: the reward is the sum of the reward functions' columns (TRL's default weights); which these are, the
    advantages say (`traces.trl_rewards`). TRL writes NaN for a function that returned None, and leaves it out of the sum; the sum is NaN where all are.
    Attempts at one prompt in one step are a group."""
    rest, columns = iter(records), report.trl
    first: list[Record] = []
    if columns is None:  # not read from files
        first = list(itertools.islice(rest, MAX_ROWS))
        columns = reward_columns([r.value for r in first if isinstance(r.value, dict) and is_trl(r.value)])
    columns.tell(report)
    for record in itertools.chain(first, rest):
        value = require_object(record, report)
        if value is None:
            continue
        prompt, step = value.get("prompt"), as_int(value.get("step"))
        if not is_trl(value):
            report.malformed(record.file, record.line, "no prompt, completion and advantage")
            continue
        numbers = numbers_of(value)
        parts = {name: number for name, number in numbers.items() if name not in columns.others}
        others = {name: number for name, number in numbers.items() if name in columns.others}
        given = {k: v for k, v in parts.items() if not math.isnan(v)}
        if given and len(given) < len(parts):
            report.note(
                "reward functions that gave none to their episode (NaN), left out of the sum",
                len(parts) - len(given),
            )
            parts = given
        task = _digest(as_text(prompt))
        turns, tools = _dialogue(value, prompt, value.get("completion"), report, record)
        yield Episode(
            id=record.source, turns=turns, tools=tools, task=task, group=f"{step}/{task}",
            reward=sum(parts.values()) if parts else None, reward_parts=parts, step=step,
            source=record.source, extra={"advantage": as_number(value.get("advantage")), **others},
        )  # fmt: skip


def is_verl(value: Json) -> bool:
    """verl's rollout_data_dir."""
    return isinstance(value.get("input"), str) and isinstance(value.get("output"), str) and "score" in value


def read_verl(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """`<step>.jsonl` of verl: text without special tokens. Equal inputs of one step are a group; other numbers are parts of the reward."""
    for record in records:
        value = require_object(record, report)
        if value is None:
            continue
        if not is_verl(value):
            report.malformed(record.file, record.line, "no input, output and score")
            continue
        known = ("score", "step")
        parts = {
            k: float(v)
            for k, v in value.items()
            if k not in known and isinstance(v, (int, float)) and not isinstance(v, bool)
        }
        step, task = as_int(value.get("step")), _digest(value["input"])
        turns, tools = _template_turns(value["input"], value["output"], report)
        yield Episode(
            id=as_label(value.get("request_id")) or record.source, task=task, group=f"{step}/{task}", step=step, source=record.source,
            turns=turns, tools=tools, reward=as_number(value["score"]),
            reward_parts=parts, success=as_flag(value.get("acc")), extra={"gts": value.get("gts")},
        )  # fmt: skip


def is_verifiers(value: Json) -> bool:
    """verifiers' results.jsonl, or since 0.4 its traces.jsonl."""
    return (
        "completion" in value and "reward" in value and ("example_id" in value or _is_old(value))
    ) or is_traces(value)


def _is_old(value: Json) -> bool:
    """verifiers before `example_id`: the example's number is the `id`."""
    return isinstance(value.get("id"), int) and value.keys() >= {"prompt", "answer", "task"}


def read_verifiers(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """`results.jsonl` of verifiers: an example of an environment is a task, each line an attempt; see `traces.verifiers_traces` for the other."""
    for record in records:
        value = require_object(record, report)
        if value is None:
            continue
        if not is_verifiers(value):
            report.malformed(record.file, record.line, "no example_id, completion and reward, nor traces")
            continue
        if is_traces(value):
            yield from episodes_of_traces(record, value, report)
            continue
        example = value["example_id"] if "example_id" in value else value["id"]
        fields = {k: v for k, v in value.items() if k not in ("example_id", "id", "task")}
        fields |= {"task_id": example, "tools": first_of(value, "tools", "tool_defs")}
        episode = episode_of(record, fields, [], report)
        prompt, completion = value.get("prompt"), value.get("completion")
        episode.turns, tools = _dialogue(value, prompt, completion, report, record)
        episode.tools = episode.tools if episode.tools is not None else tools
        episode.id = record.source
        space = as_label(value.get("task")) or space_of(value) or env_of_path(record.file)
        episode.task = task_key(space, as_label(example))
        metrics = value.get("metrics")
        named = metrics.items() if isinstance(metrics, dict) else ()
        episode.reward_parts = {str(k): v for k, raw in named if (v := as_number(raw)) is not None}
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
    raw = value.get("timing")
    timing: Json = raw if isinstance(raw, dict) else {}
    total = as_number(first_of(timing, "total_ms") or value.get("total_ms"))  # once a column of its own
    episode.duration_s = episode.duration_s if total is None else total / 1000
    episode.time = as_time(timing.get("start_time")) if episode.time is None else episode.time
    usage = value.get("token_usage")
    used = as_int(usage.get("output_tokens")) if isinstance(usage, dict) else None
    episode.tokens = episode.tokens if used is None else used


def is_prime(value: Json) -> bool:
    """prime-rl's token export."""
    return "token_ids" in value and ("inference_logprobs" in value or "trainer_logprobs" in value)


def read_prime(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """`token_exports/step_N/rank_R.jsonl` of prime-rl: tokens without text, one sequence a line."""
    for record in records:
        value = require_object(record, report)
        if value is None:
            continue
        ids, logprobs, mask = (value.get(name) for name in ("token_ids", "inference_logprobs", "loss_mask"))
        if not isinstance(ids, list) or not all(isinstance(i, int) for i in ids):
            report.malformed(record.file, record.line, "token_ids are no list of whole numbers")
            continue
        turn = Turn(role="assistant", content=None, token_ids=ids, tokens=len(ids), step=0)
        turn.logprobs = _numbers(logprobs, len(ids))
        turn.mask = [int(bool(m)) for m in mask] if isinstance(mask, list) and len(mask) == len(ids) else None
        turn.log_ratios = _log_ratios(value, turn)
        advantages = _numbers(value.get("advantages"), len(ids))
        yield Episode(
            id=record.source, turns=[turn], step=as_int(value.get("step")), tokens=len(ids), source=record.source,
            log_ratio_of="trainer / sampler" if turn.log_ratios else None,
            extra={"env_name": value.get("env_name"), "advantage": next((a for a in advantages or [] if a), None)},
        )  # fmt: skip


def _log_ratios(value: Json, turn: Turn) -> list[float] | None:
    """Of the tokens that are trained on: the log's own, else the difference of its log-probabilities; NaN elsewhere."""
    size = len(turn.token_ids or ())
    found = _numbers(value.get("log_importance_ratio"), size)
    trainer = _numbers(value.get("trainer_logprobs"), size)
    if found is None and trainer is not None and turn.logprobs is not None:
        found = [a - b for a, b in zip(trainer, turn.logprobs, strict=True)]
    if found is None or turn.mask is None:
        return found
    return [ratio if mine else math.nan for ratio, mine in zip(found, turn.mask, strict=True)]


def _numbers(values: Any, size: int) -> list[float] | None:
    """As many numbers as there are tokens; what is none is NaN. None for another list."""
    if not isinstance(values, list) or len(values) != size:
        return None
    return [float("nan") if (number := as_number(v)) is None else number for v in values]


def _dialogue(
    value: Json, prompt: Any, completion: Any, report: ReadReport, record: Record
) -> tuple[list[Turn], list[dict[str, Any]] | None]:
    """Turns of a prompt and a completion, each messages or text, and the tools that the text declares."""
    before, after = _messages(prompt), _messages(completion)
    if before is not None and after is not None:
        return episode_of(record, value, [*before, *after], report).turns, None
    if before is None and after is None:
        return _template_turns(as_text(prompt) or "", as_text(completion) or "", report)
    if before is not None:
        head = episode_of(record, value, before, report).turns
        return [*head, *tagged_turns(as_text(completion) or "", report)], None
    turns, tools, _ = prompt_turns(as_text(prompt) or "", report)
    return [*turns, *episode_of(record, value, after or [], report).turns], tools


def _template_turns(
    prompt: str, completion: str, report: ReadReport
) -> tuple[list[Turn], list[dict[str, Any]] | None]:
    """Both as a chat template wrote them; what the prompt put into the agent's mouth is the head of its first turn."""
    turns, tools, opened = prompt_turns(prompt, report)
    return [*turns, *tagged_turns(f"{opened}\n{completion}" if opened else completion, report)], tools


def _messages(value: Any) -> list[Any] | None:
    """A list of messages, also one written as JSON text."""
    if isinstance(value, str) and value.lstrip().startswith("[{"):
        try:
            value = parse_json(value)
        except BadJson:
            return None
    return value if is_chat(value) else None


def _digest(text: str | None) -> str:
    return blake2b((text or "").encode("utf-8", "replace"), digest_size=8).hexdigest()

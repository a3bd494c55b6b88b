"""tau2-bench: results of text runs in one file, of voice runs a file a simulation beside a `results.json`.

In it the simulated user calls tools too. Those calls are no doing of the agent's: they are left out, and
counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from trimtab.traces.core.coerce import (
    as_int,
    as_label,
    as_list,
    as_number,
    as_object,
    as_text,
    as_time,
    numbers_in,
    objects_in,
    sum_known,
)
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.json_text import json_of_file
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.core.task_keys import task_key, tau_space
from trimtab.traces.files.find import STDIN
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.messages.turns import turns_of
from trimtab.traces.readers.chat import episode_of
from trimtab.typing import Json


def is_any_tau(value: Json) -> bool:
    """tau-bench's trajectory with a reward, or tau2-bench's results or simulation."""
    return _is_trajectory(value) or _is_results(value) or _is_simulation(value)


def read_any_tau(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """tau-bench as `read_tau`. tau2-bench: a simulation is an episode, the reward its `reward_info`'s, the
    task counts within its domain."""
    for record, value in iter_objects(records, report):
        if _is_results(value):
            info = as_object(value.get("info"))
            runs = objects_in(value.get("simulations"))
            if not runs:
                report.note("results.json of tau2-bench whose simulations are files of their own")
            for run in runs:
                yield _episode(run, info, record, report)
        elif _is_simulation(value):
            yield _episode(value, _info_of_run(record.file), record, report)
        else:
            yield from read_tau([record], report)


def _is_results(value: Json) -> bool:
    return isinstance(value.get("info"), dict) and isinstance(value.get("tasks"), list) and (
        isinstance(value.get("simulations"), list) or "simulation_index" in value or "timestamp" in value
    )  # fmt: skip


def _is_simulation(value: Json) -> bool:
    named = all(name in value for name in ("task_id", "termination_reason", "trial"))
    return named and any(isinstance(value.get(name), list) for name in ("messages", "ticks"))


def _episode(run: Json, info: Json, record: Record, report: ReadReport) -> Episode:
    graded = as_object(run.get("reward_info"))
    task, trial = as_label(run.get("task_id")), as_label(run.get("trial"))
    turns = turns_of(_messages(run, report), report)
    domain = as_label(as_object(info.get("environment_info")).get("domain_name"))
    return Episode(
        id=as_label(run.get("id")) or (record.source if None in (task, trial) else f"{task}/{trial}"),
        turns=turns,
        task=task_key(domain, task),
        reward=as_number(graded.get("reward")),
        reward_parts=numbers_in(graded.get("reward_breakdown")),
        stop_reason=as_label(run.get("termination_reason")),
        model=as_label(as_object(info.get("agent_info")).get("llm")),
        time=as_time(run.get("start_time")),
        duration_s=as_number(run.get("duration")),
        tokens=sum_known(turn.tokens for turn in turns if turn.role == "assistant"),
        cost=as_number(run.get("agent_cost")),
        source=record.source,
        extra={"trial": run.get("trial"), "seed": as_int(run.get("seed"))},
    )


def _messages(run: Json, report: ReadReport) -> Iterator[Any]:
    """OpenAI's messages: a tool's names its call in `id`, and several may stand in one."""
    messages = run.get("messages")
    for message in messages if isinstance(messages, list) else _of_ticks(as_list(run.get("ticks"))):
        inner = message.get("tool_messages") if isinstance(message, dict) else None
        for one in inner if isinstance(inner, list) else [message]:
            if not isinstance(one, dict):
                yield one
            elif one.get("role") == "tool":
                if one.get("requestor") != "user":
                    yield {**one, "tool_call_id": one.get("id")}
            elif one.get("role") == "user" and one.get("tool_calls"):
                report.note("calls of tools by the simulated user, left out", len(as_list(one["tool_calls"])))
                if one.get("content"):
                    yield {**one, "tool_calls": None}
            else:
                yield one


def _of_ticks(ticks: list[Any]) -> Iterator[Json]:
    """A voice run's: pieces of speech of one speaker are one message, calls and results one each."""
    role, words = "", ""
    for tick in objects_in(ticks):
        pieces: list[Json] = []
        for who, name in (("user", "user_chunk"), ("assistant", "agent_chunk")):
            if isinstance(text := as_object(tick.get(name)).get("content"), str) and text:
                pieces.append({"role": who, "content": text})
        if calls := as_list(tick.get("agent_tool_calls")):
            call = {"role": "assistant", "content": None, "tool_calls": calls}
            pieces.append({**call, "timestamp": tick.get("timestamp")})
        if calls := as_list(tick.get("user_tool_calls")):
            pieces.append({"role": "user", "content": None, "tool_calls": calls})
        pieces += objects_in(tick.get("agent_tool_results"))
        for message in pieces:
            if message.get("content") and message.get("role") == role and role != "tool":
                words += message["content"]
                continue
            if words:
                yield {"role": role, "content": words}
            role = str(message.get("role") or "")
            words = "" if role == "tool" else message.get("content") or ""
            if not words:
                yield message
    if words:
        yield {"role": role, "content": words}


def _info_of_run(file: str) -> Json:
    """What the run's `results.json`, one folder up from a simulation's file, says of the run."""
    if file == STDIN or Path(file).parent.name != "simulations":
        return {}
    return _info_of(str(Path(file).parent.parent / "results.json"))


@lru_cache(maxsize=64)
def _info_of(path: str) -> Json:
    return as_object(as_object(json_of_file(Path(path))).get("info"))


def _is_trajectory(value: Json) -> bool:
    """tau-bench: a trajectory of messages with a reward."""
    return isinstance(value.get("traj"), list) and "reward" in value


def read_tau(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """tau-bench's results: the id is task and trial, the task also its customer.

    A run that was never scored (no `reward_info`) hit the step limit.
    """
    for record, value in iter_objects(records, report, _is_trajectory, "no traj and reward"):
        episode = episode_of(record, {k: v for k, v in value.items() if k != "id"}, value["traj"], report)
        trial = as_label(value.get("trial"))
        episode.id = episode.source if None in (episode.task, trial) else f"{episode.task}/{trial}"
        info = as_object(value.get("info"))
        episode.task = task_key(tau_space(info, value["traj"]), episode.task)
        episode.stop_reason = _tau_stop(value["traj"], info)
        episode.extra = {"trial": value.get("trial")}
        yield episode


def _tau_stop(messages: list[Any], info: Json) -> str | None:
    last = as_object(messages[-1] if messages else None)
    if "###STOP###" in (as_text(last.get("content")) or ""):
        return "user_stop"
    if last.get("name") == "transfer_to_human_agents":
        return "transfer_to_human_agents"
    return "max_steps" if "reward_info" in info and not info["reward_info"] else None

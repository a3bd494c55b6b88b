"""tau2-bench: results of text runs in one file, of voice runs a file a simulation beside a `results.json`.

In it the simulated user calls tools too. Those calls are no doing of the agent's: they are left out, and
counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from trimtab.traces.core.coerce import as_int, as_label, as_list, as_number, as_object, as_text, as_time
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
            runs = [run for run in as_list(value.get("simulations")) if isinstance(run, dict)]
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
    parts = as_object(graded.get("reward_breakdown")).items()
    task, trial = as_label(run.get("task_id")), as_label(run.get("trial"))
    turns = turns_of(_messages(run, report), report)
    used = [turn.tokens for turn in turns if turn.role == "assistant" and turn.tokens is not None]
    domain = as_label(as_object(info.get("environment_info")).get("domain_name"))
    return Episode(
        id=as_label(run.get("id")) or (record.source if None in (task, trial) else f"{task}/{trial}"),
        turns=turns,
        task=task_key(domain, task),
        reward=as_number(graded.get("reward")),
        reward_parts={str(name): number for name, raw in parts if (number := as_number(raw)) is not None},
        stop_reason=as_label(run.get("termination_reason")),
        model=as_label(as_object(info.get("agent_info")).get("llm")),
        time=as_time(run.get("start_time")),
        duration_s=as_number(run.get("duration")),
        tokens=sum(used) if used else None,
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
    for tick in (tick for tick in ticks if isinstance(tick, dict)):
        pieces: list[Json] = []
        for who, chunk in (
            ("user", as_object(tick.get("user_chunk"))),
            ("assistant", as_object(tick.get("agent_chunk"))),
        ):
            if isinstance(text := chunk.get("content"), str) and text:
                pieces.append({"role": who, "content": text})
        if calls := as_list(tick.get("agent_tool_calls")):
            pieces.append(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": calls,
                    "timestamp": tick.get("timestamp"),
                }
            )
        if calls := as_list(tick.get("user_tool_calls")):
            pieces.append({"role": "user", "content": None, "tool_calls": calls})
        pieces += [one for one in as_list(tick.get("agent_tool_results")) if isinstance(one, dict)]
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
        info: Json = raw if isinstance(raw := value.get("info"), dict) else {}
        episode.task = task_key(tau_space(info, value["traj"]), episode.task)
        episode.stop_reason = _tau_stop(value["traj"], info)
        episode.extra = {"trial": value.get("trial")}
        yield episode


def _tau_stop(messages: list[Any], info: Json) -> str | None:
    last = messages[-1] if messages and isinstance(messages[-1], dict) else {}
    if "###STOP###" in (as_text(last.get("content")) or ""):
        return "user_stop"
    if last.get("name") == "transfer_to_human_agents":
        return "transfer_to_human_agents"
    return "max_steps" if "reward_info" in info and not info["reward_info"] else None

"""ATIF, Harbor's Agent Trajectory Interchange Format (`trajectory.json`), of terminal-bench and others.

A step is a message with its calls, and what they gave. Held against harbor 0.25.0: its models (ATIF 1.0 to
1.8), and the trajectories that it made of logs of Claude Code and Codex.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from trimtab.traces.core.coerce import (
    as_flag,
    as_int,
    as_label,
    as_list,
    as_number,
    as_object,
    as_text,
    as_time,
    first_of,
    objects_in,
    sum_known,
)
from trimtab.traces.core.episode import Episode, Turn
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.core.tool_schemas import tools_of
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.messages.turns import turns_of
from trimtab.traces.readers.coding_agents.claude_code import SUB_AGENTS, SYNTHETIC, words_of
from trimtab.traces.readers.coding_agents.codex_calls import settle
from trimtab.traces.readers.coding_agents.harbor_trials import Trial, trial_of
from trimtab.traces.readers.swe_agent import shell_error
from trimtab.typing import Json

_ROLES = {"agent": "assistant", "user": "user", "system": "system"}
_COPIED = "steps that a trajectory repeats of an earlier one (ATIF), left out"
_SHARED = "calls of a step that share one observation (ATIF): it stands with the last"
_UNLINKED = "observations of steps without calls (ATIF), kept as what the agent was shown"
_NO_MESSAGE = "steps of ATIF without a message"
_TERMINAL = "bash_command"  # of Terminus: keystrokes, answered by what the terminal shows
_DONE = "mark_task_complete"
_FLAGS = ("tool_result_is_error", "is_error", "isError")
_FLAGGING = "claude-code"  # of which a result without a flag did not fail
_REPORTED = "\n\n[error] tool reported failure"


def is_atif(value: Json) -> bool:
    """Is it a trajectory?"""
    version = value.get("schema_version")
    return isinstance(version, str) and version.startswith("ATIF") and isinstance(value.get("steps"), list)


def read_atif(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """An episode a trajectory, and one for each of a sub-agent, embedded or as steps between the others.

    Its trial's `result.json`, where there is one, gives the task, the rewards and what stopped it.
    """
    for record, value in iter_objects(
        records, report, is_atif, "no ATIF trajectory: schema_version and steps"
    ):
        trial = trial_of(record.file, value, report)
        name = as_label(first_of(value, "trajectory_id", "session_id")) or record.source
        yield from _episodes(value, name, record, report, trial)


def _episodes(value: Json, name: str, record: Record, report: ReadReport, trial: Trial) -> Iterator[Episode]:
    steps: dict[str, list[Json]] = {"": []}
    for step in objects_in(value.get("steps")):
        if step.get("is_copied_context") is True:
            report.note(_COPIED)
            continue
        extra = as_object(step.get("extra"))
        agent = as_label(extra.get("agent_id")) if extra.get("is_sidechain") is True else None
        steps.setdefault(agent or "", []).append(step)
    for agent, some in steps.items():
        if agent:
            report.note(SUB_AGENTS)
        if some:
            yield _episode(value, f"{name}/{agent}" if agent else name, some, record, report, trial)
        trial = trial if not some else Trial()  # the first is the agent that was scored
    for number, inner in enumerate(objects_in(value.get("subagent_trajectories")), 1):
        report.note(SUB_AGENTS)
        inner_name = as_label(first_of(inner, "trajectory_id", "session_id")) or str(number)
        yield from _episodes(inner, f"{name}/{inner_name}", record, report, Trial())


def _episode(
    value: Json, name: str, steps: list[Json], record: Record, report: ReadReport, trial: Trial
) -> Episode:
    agent, final = as_object(value.get("agent")), as_object(value.get("final_metrics"))
    turns = _turns(steps, as_label(agent.get("name")) or "", report)
    alone = len(steps) == len(as_list(value.get("steps")))  # else the sums are of other agents, too
    usages = [as_object(step.get("metrics")) for step in steps]
    costs = [as_number(one.get("cost_usd")) for one in usages]
    own = sum_known(as_int(one.get("completion_tokens")) for one in usages)
    stops = (as_label(as_object(step.get("extra")).get("stop_reason")) for step in reversed(steps))
    return Episode(
        id=name,
        turns=turns,
        task=trial.task,
        reward=trial.reward,
        reward_parts=trial.parts,
        stop_reason=trial.stop or next((stop for stop in stops if stop), None),
        tools=tools_of(agent.get("tool_definitions")) or None,
        model=as_label(agent.get("model_name"))
        or next((as_label(step["model_name"]) for step in steps if step.get("model_name")), None),
        time=as_time(steps[0].get("timestamp")),
        duration_s=trial.seconds,
        tokens=as_int(final.get("total_completion_tokens")) if alone and final else own,
        cost=as_number(final.get("total_cost_usd")) if alone and final else sum_known(costs),
        source=record.source,
        extra={"agent": agent.get("name"), "agent_version": agent.get("version"), "trial": trial.name},
    )


def _turns(steps: list[Json], agent: str, report: ReadReport) -> list[Turn]:
    messages: list[Json] = []
    spoken: list[tuple[int, Json]] = []  # where the agent's messages stand, and its steps' metrics
    for step in steps:
        if step.get("model_name") == SYNTHETIC:
            continue
        if step.get("source") == "agent":
            spoken.append((len(messages), as_object(step.get("metrics"))))
        messages.append(_message(step))
        if step.get("message") is None and not step.get("tool_calls"):
            report.unread_message(_NO_MESSAGE, step)
        for result in _results(step, report):
            known = "is_error" in result or agent != _FLAGGING
            messages.append(result if known else {**result, "is_error": False})
    turns = turns_of(messages, report)
    for call in (call for turn in turns for call in turn.calls):
        if agent == "codex":
            settle(call, None)
        elif call.name == _TERMINAL and call.error_from != "log":
            call.error, call.error_from = shell_error(call.result)
        elif call.error:
            call.error = words_of(call.error.partition(_REPORTED)[0])
    at = {turn.step: turn for turn in turns if turn.role == "assistant"}
    for index, metrics in spoken:
        if (turn := at.get(index)) is not None:
            _give_ids(turn, metrics)
    return turns


def _message(step: Json) -> Json:
    calls = [
        {
            "id": call.get("tool_call_id"),
            "function": {"name": call.get("function_name"), "arguments": call.get("arguments")},
        }
        for call in objects_in(step.get("tool_calls"))
    ]  # fmt: skip
    source = as_label(step.get("source")) or ""
    message = {
        "role": _ROLES.get(source, source),
        "content": step.get("message"),
        "reasoning_content": step.get("reasoning_content"),
        "timestamp": step.get("timestamp"),
        "tokens": as_object(step.get("metrics")).get("completion_tokens"),
    }
    message = {name: field for name, field in message.items() if field is not None}
    return {**message, "tool_calls": calls} if calls else message


def _results(step: Json, report: ReadReport) -> Iterator[Json]:
    """What came back, as messages. An observation without a call's id is that of the step's open call."""
    calls = [as_label(call.get("tool_call_id")) for call in objects_in(step.get("tool_calls"))]
    done = {
        as_label(c.get("tool_call_id"))
        for c in objects_in(step.get("tool_calls"))
        if c.get("function_name") == _DONE
    }
    results = objects_in(as_object(step.get("observation")).get("results"))
    linked = {as_label(one.get("source_call_id")) for one in results}
    still_open = [call for call in calls if call not in linked and call not in done] or [
        call for call in calls if call not in linked
    ]
    for result in results:
        content = as_text(result.get("content"))
        name = as_label(result.get("source_call_id"))
        if name is None and content is None:
            continue  # it names the trajectory of a sub-agent
        if name is None and not still_open:
            report.note(_UNLINKED)
            yield {"role": "user", "content": content, "timestamp": step.get("timestamp")}
            continue
        if name is None:
            *before, name = still_open
            if before:
                report.note(_SHARED, len(before))
            still_open = []
            yield from ({"role": "tool", "tool_call_id": one, "content": ""} for one in before)
        flag = _flag(as_object(result.get("extra")))
        message = {"role": "tool", "tool_call_id": name, "content": content or ""}
        yield message if flag is None else {**message, "is_error": flag}


def _flag(extra: Json) -> bool | None:
    """Did the call fail, by a field of its result? None where none says."""
    flags = [as_flag(extra.get(name)) for name in _FLAGS]
    flags.append(as_flag(as_object(extra.get("tool_result_metadata")).get("is_error")))
    code = as_int(first_of(extra, "exit_code", "exitCode"))
    if True in flags or code not in (None, 0):
        return True
    return False if False in flags or code == 0 else None


def _give_ids(turn: Turn, metrics: Json) -> None:
    """Give a turn the ids of what the model sampled, and their log-probabilities."""
    ids = as_list(metrics.get("completion_token_ids"))
    if not ids or not all(type(one) is int for one in ids):
        return
    numbers = [as_number(one) for one in as_list(metrics.get("logprobs"))]
    turn.token_ids, turn.mask = ids, [1] * len(ids)
    if len(numbers) == len(ids):
        turn.logprobs = [math.nan if number is None else number for number in numbers]

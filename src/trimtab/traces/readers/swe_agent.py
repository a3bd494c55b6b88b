"""SWE-agent's trajectories and mini-swe-agent's: what was run in a shell, and what came of it.

A program that shows a bug is what the agent wanted to see: of a shell only a time-out, or a line it could not
run, is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trimtab.traces.core.coerce import (
    as_int,
    as_label,
    as_list,
    as_number,
    as_object,
    as_text,
    first_of,
    objects_in,
)
from trimtab.traces.core.episode import Call, Episode, Turn
from trimtab.traces.core.json_text import json_of_file
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.errors.detect import error_text
from trimtab.traces.files.find import STDIN
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.messages.content_blocks import is_unknown
from trimtab.traces.messages.turns import turns_of
from trimtab.traces.readers.preferences import is_chat
from trimtab.typing import Json

_REPORTS = ("report.json", "results.json")
"""Files that SWE-bench's harness and sb-cli write; in the trajectory's folder or in the one above."""

_FAILED = ("unresolved_ids", "unresolved", "empty_patch_ids", "error_ids", "completed_ids")
SHELL = "bash"
_COMMANDS = frozenset({
    "open", "goto", "scroll_up", "scroll_down", "create", "edit", "insert", "append", "search_file",
    "search_dir", "find_file", "submit",
    "str_replace_editor", "str_replace_based_edit_tool", "filemap", "exit_forfeit", "view_image", "undo_edit",
})  # fmt: skip
_REFUSED = re.compile(
    r"\ANo replacement was performed|\AYour proposed edit has introduced new syntax error|\AInvalid `\w+` "
    r"parameter|"
    r"\AThe path \S.* does not exist|\ATool '\S+' (?:failed|not found)"
)
_SHELL_FAILED = re.compile(
    r"EXECUTION TIMED OUT|was cancelled because it took more than|(?:\A|\n)(?:/bin/)?(?:ba)?sh: [^\n]*"
    r"(?:command not found|syntax error|No such file or directory)|timed out and has been killed"
)
_FENCE = re.compile(r"```(?:bash|sh|mswea_bash_command)\s*\n(.*?)\n?```", re.S)
_OUTPUT = re.compile(r"\s*<(?:returncode|output|exception)>|.{0,200}timed out and has been killed", re.S)
_DONE = ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT_FINAL_OUTPUT")
_UNCHOSEN = "attempts of a run of SWE-agent that had not chosen one, each an episode"


def is_swe(value: Json) -> bool:
    """SWE-agent's .traj: steps, or of a demonstration the history alone, or attempts of which none is chosen
    yet."""
    if isinstance(value.get("trajectory"), list):
        return "info" in value or "history" in value
    if is_chat(history := value.get("history")):
        return "message_type" in as_list(history)[0]
    return any(map(is_swe, objects_in(value.get("attempts"))))


def is_mini(value: Json) -> bool:
    """mini-swe-agent's .traj.json."""
    return (as_label(value.get("trajectory_format")) or "").startswith("mini-swe-agent")


def read_swe(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """A step's call is the tool call of its message in the history; else its action, a command of SWE-agent's
    or a line of bash.

    Of a run of several attempts the chosen one is read; while none is chosen, and of a demonstration without
    steps, what there is.
    """
    for record, value in iter_objects(records, report):
        attempts = [one for one in objects_in(value.get("attempts")) if is_swe(one)]
        if attempts and not isinstance(value.get("trajectory"), list):
            report.note(_UNCHOSEN, len(attempts))
            for number, attempt in enumerate(attempts):
                episode = _swe_episode({**attempt, "environment": value.get("environment")}, record, report)
                episode.id = f"{episode.id}/{number}"
                yield episode
            continue
        if not is_swe(value):
            report.malformed(record.file, record.line, "no trajectory with info or history")
            continue
        if len(attempts) > 1:
            report.note("attempts of SWE-agent that it did not choose, left out", len(attempts) - 1)
        yield _swe_episode(value, record, report)


def _swe_episode(value: Json, record: Record, report: ReadReport) -> Episode:
    history = [m for m in map(as_object, as_list(value.get("history"))) if not m.get("is_demo")]
    if not isinstance(value.get("trajectory"), list):
        turns = turns_of(history, report)
    else:
        first = next((i for i, m in enumerate(history) if m.get("role") == "assistant"), len(history))
        steps = [as_object(step) for step in value["trajectory"]]
        messages = messages_of_steps(steps, [m for m in history if m.get("role") == "assistant"])
        turns = turns_of(history[:first], report)
        report.num_messages += len(steps)
        last = len(steps) - 1
        for i, (step, message) in enumerate(zip(steps, messages, strict=True)):
            turns.append(_step(step, message or {}, i, report))
            if i < last and not_run(step, message):
                report.note("steps of SWE-agent that were not run, after which the model was asked again")
                for call in turns[-1].calls:
                    call.result, call.error_from = None, "log"
                    call.error = "not run: the model was asked again"
    episode = _episode(value, record, turns, ".traj", report)
    episode.extra["environment"] = value.get("environment")
    return episode


def read_mini(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """The block of bash in a message is its call, the message after it the result."""
    for record, value in iter_objects(records, report, _has_messages, "no messages"):
        turns = turns_of(_mini_messages(value["messages"], report), report)
        for call in (call for turn in turns for call in turn.calls):
            call.error, call.error_from = shell_error(call.result)
        yield _episode(value, record, turns, ".traj.json", report)


def _has_messages(value: Json) -> bool:
    return isinstance(value.get("messages"), list)


def _episode(value: Json, record: Record, turns: list[Turn], suffix: str, report: ReadReport) -> Episode:
    info = as_object(value.get("info"))
    stats = as_object(info.get("model_stats"))
    name = Path(record.file).name.removesuffix(suffix)
    task = as_label(value.get("instance_id")) or name
    times = [turn.time for turn in turns if turn.time is not None]
    return Episode(
        id=name, turns=turns, task=task, stop_reason=as_label(info.get("exit_status")),
        success=is_resolved(task, record.file, report.used),
        tokens=as_int(stats.get("tokens_received")), cost=as_number(stats.get("instance_cost")),
        source=record.source,
        time=times[0] if times else None, extra={"submission": info.get("submission")},
    )  # fmt: skip


def _step(step: Json, message: Json, number: int, report: ReadReport) -> Turn:
    if first_of(step, "thought", "response", "action") is None or is_unknown(step.get("thought")):
        report.unread_message("steps of SWE-agent without a thought, a response or an action", step)
    thought, response = (as_text(step.get(name)) for name in ("thought", "response"))
    turn = Turn(role="assistant", content=response if thought is None else thought, step=number)
    if as_list(message.get("tool_calls")):
        turn.calls = turns_of([{"role": "assistant", "tool_calls": message["tool_calls"]}], report)[0].calls
    action = (as_text(step.get("action")) or "").strip()
    if not turn.calls and action:
        word = action.split()[0]
        turn.calls.append(Call(name=word if word in _COMMANDS else SHELL, arguments={"command": action}))
    if not turn.calls and not turn.content:
        turn.content = response  # an answer that could not be parsed has no thought
    for call in turn.calls:
        call.step, call.result = number, as_text(step.get("observation"))
        call.latency_s = as_number(step.get("execution_time"))
        if call.error:
            continue
        if call.name == SHELL:
            call.error, call.error_from = shell_error(call.result)
        elif error := error_text(call.result) or _text_from(_REFUSED, call.result):
            call.error, call.error_from = error, "text"
    return turn


def shell_error(result: str | None) -> tuple[str, str]:
    """What went wrong by a shell's output, and how that is known; empty where it ran all lines in time."""
    error = _text_from(_SHELL_FAILED, result)
    return (error, "text") if error else ("", "")


def _text_from(pattern: re.Pattern[str], text: str | None) -> str:
    """The text, from where the pattern finds it."""
    match = pattern.search(text or "")
    return (text or "")[match.start() :].strip() if match else ""


def _mini_messages(messages: list[Any], report: ReadReport) -> Iterator[Any]:
    """OpenAI's messages. What the agent's end adds (role `exit`) is in `info` too."""
    command = ""
    for message in messages:
        if not isinstance(message, dict):
            yield message
            continue
        role, text = message.get("role"), as_text(message.get("content")) or ""
        if role == "exit":
            report.note("exit messages of mini-swe-agent, whose status and submission are kept")
            continue
        if role == "user" and command and (_OUTPUT.match(text) or any(word in command for word in _DONE)):
            yield {"role": "tool", "name": SHELL, "content": text, "timestamp": message.get("timestamp")}
            command = ""
            continue
        fence = _FENCE.search(text) if role == "assistant" and not message.get("tool_calls") else None
        if fence is None:
            command = ""
            yield message
            continue
        command = fence[1]
        call = {"function": {"name": SHELL, "arguments": {"command": command}}}
        rest = (text[: fence.start()] + text[fence.end() :]).strip()
        yield {**message, "content": rest, "tool_calls": [call]}
    if any(word in command for word in _DONE):
        yield {"role": "tool", "name": SHELL, "content": ""}


def messages_of_steps(steps: Sequence[Json], messages: Sequence[Json]) -> list[Json | None]:
    """The agent's message of each step, None for a step that is not in the history.

    As many of both are taken in order. Else they are matched from the end, by the answer or the action, as of
    equal answers the last one was run.

    >>> messages_of_steps([{"response": "x"}, {"response": "y"}], [{"content": "y"}])
    [None, {'content': 'y'}]
    """
    if len(steps) == len(messages):
        return list(messages)
    matched: list[Json | None] = [None] * len(steps)
    index = len(messages) - 1
    for i in range(len(steps) - 1, -1, -1):
        while index > i and not _same(steps[i], messages[index]):
            index -= 1  # a message without a step
        if index >= 0 and (_same(steps[i], messages[index]) or i == index):  # as many are left of both
            matched[i] = messages[index]
            index -= 1
    return matched


def not_run(step: Json, message: Json | None) -> bool:
    """Did the model have to be asked again? Such a step has no message, and nothing came of it."""
    return message is None and not (as_text(step.get("observation")) or "").strip()


def _same(step: Json, message: Json) -> bool:
    pairs = ((step.get("response"), message.get("content")), (step.get("action"), message.get("action")))
    texts = ([(as_text(value) or "").strip() for value in pair] for pair in pairs)
    return any(one and one == other for one, other in texts)


def is_resolved(task: str, file: str, used: set[str]) -> bool | None:
    """True where a report next to the file lists the task as resolved, False where it lists it otherwise,
    None where it says nothing.

    What said it goes to `used`, resolved.
    """
    if file == STDIN:
        return None
    here = Path(file).parent
    for folder in (here, here.parent):
        for name in (*_REPORTS, f"{Path(file).stem}.report.json"):
            verdict = _of_report(json_of_file(folder / name), task)
            if verdict is not None:
                used.add(str((folder / name).resolve()))
                return verdict
    return None


def _of_report(report: Any, task: str) -> bool | None:
    """A run's report has lists of ids; an instance's is keyed by its id."""
    if not isinstance(report, dict):
        return None
    one = report.get(task)
    if isinstance(one, dict) and isinstance(one.get("resolved"), bool):
        return bool(one["resolved"])
    resolved = report.get("resolved_ids", report.get("resolved"))
    if not isinstance(resolved, list):
        return None
    if task in resolved:
        return True
    others = [report[name] for name in _FAILED if isinstance(report.get(name), list)]
    return False if not others or any(task in ids for ids in others) else None

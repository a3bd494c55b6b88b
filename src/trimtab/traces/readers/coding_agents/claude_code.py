"""Claude Code's session logs (`~/.claude/projects/*/*.jsonl`), and what `claude -p --output-format
stream-json` prints.

A line is a block of a message: an answer with a text and two calls is three lines of one `message.id`, each
with the usage of the whole answer. Held against logs that Claude Code 2.1.197 wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
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
from trimtab.traces.core.episode import Call, Episode
from trimtab.traces.core.json_text import json_of_file
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.find import STDIN
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.messages.turns import turns_of
from trimtab.traces.readers.coding_agents.claude_branches import abandoned, is_copied
from trimtab.traces.readers.coding_agents.claude_forks import copied_lines
from trimtab.traces.readers.coding_agents.claude_results import outcome_of
from trimtab.typing import Json

_SPOKEN = ("user", "assistant")
_BOOKS = (
    "queue-operation",
    "mode",
    "permission-mode",
    "last-prompt",
    "file-history-snapshot",
    "summary",
    "attachment",
)
_INTERRUPTED = "[Request interrupted by user"
_EXIT = "Exit code "

SYNTHETIC = "<synthetic>"
"""The model of what Claude Code wrote in the agent's name."""
SUMMARIES = "compactions of a context, whose summary is left out: what it sums up is read"
SUB_AGENTS = "runs of sub-agents, each an episode of its own"
_BRANCHES = "messages of branches that the user rewound (Claude Code), left out"
_COPIES = "messages that a fork of a session repeats (Claude Code), left out"
_RESULT_ALONE = (
    "results alone (Claude Code's --output-format json); stream-json --verbose prints what was done"
)
_NOT_SAID = "messages that Claude Code wrote in the agent's name (errors of the API), left out"


def is_claude(value: Json) -> bool:
    """Is it a line of a session's log, or of the stream that `--output-format stream-json` prints?"""
    kind = value.get("type")
    if "sessionId" in value or kind in ("summary", "file-history-snapshot"):
        known = kind in _SPOKEN and isinstance(value.get("message"), dict)
        return known or (kind == "system" and "uuid" in value) or (kind in _BOOKS and "messages" not in value)
    if "session_id" not in value:
        return False
    spoken = kind in _SPOKEN and isinstance(value.get("message"), dict)
    return spoken or (kind in ("system", "result") and "subtype" in value)


def read_claude(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """An episode a session, and one for each run of a sub-agent.

    What the user rewound is left out, and counted.
    """
    runs: dict[str, _Run] = {}
    parents: dict[str, str] = {}
    started = None  # when a session that was forked began; what it copied is older
    copied: dict[str, set[str]] = {}  # lines of each file that are another session's
    for record, value in iter_objects(records, report):
        if not runs and started is None and value.get("type") == "queue-operation":
            started = as_time(value.get("timestamp"))
        name = _run_of(value, parents)
        if name is None:
            continue
        run = runs.setdefault(name, _Run(name, record))
        if record.file not in copied:
            copied[record.file] = set() if record.file == STDIN else copied_lines(record.file)
        if is_copied(value, started) or as_label(value.get("uuid")) in copied[record.file]:
            report.note(_COPIES, value.get("type") in _SPOKEN)
        else:
            run.values.append(value)
    for run in runs.values():
        episode = run.episode(report)
        if episode.turns:
            yield episode
        elif any(value.get("type") == "result" for value in run.values):
            report.note(_RESULT_ALONE)


def _run_of(value: Json, parents: dict[str, str]) -> str | None:
    """The session, or the session and its sub-agent, that a line is of; None for one that is of no
    conversation."""
    session = as_label(first_of(value, "sessionId", "session_id"))
    if session is None or value.get("type") not in (*_SPOKEN, "system", "attachment", "progress", "result"):
        return None
    uuid, parent = as_label(value.get("uuid")) or "", as_label(value.get("parentUuid"))
    if value.get("isSidechain") is not True:
        agent = as_label(value.get("parent_tool_use_id"))
        return f"{session}/{agent}" if agent else session
    # versions that named no agent wrote its lines into the session's file: its first message stands for it
    agent = as_label(value.get("agentId")) or parents.get(parent or "", uuid[:8])
    parents[uuid] = agent
    return f"{session}/{agent}"


@dataclass
class _Run:
    """The lines of one conversation."""

    name: str
    record: Record
    values: list[Json] = field(default_factory=list)

    def episode(self, report: ReadReport) -> Episode:
        """Return the conversation as an episode; one without turns where nobody spoke."""
        if "/" in self.name:
            report.note(SUB_AGENTS)
        left = abandoned(self.values)
        spoken = [one for one in self.values if one.get("type") in _SPOKEN]
        if left:
            report.note(_BRANCHES, sum(as_label(one.get("uuid")) in left for one in spoken))
        collected = _Messages()
        for value in spoken:
            if as_label(value.get("uuid")) not in left:
                collected.add(value, report)
        turns = turns_of(collected.messages, report)
        calls = [call for turn in turns for call in turn.calls]
        for call in calls:
            _settle(call, collected.seconds)
        ended = outcome_of(one for one in self.values if one.get("type") == "result")
        about = _about(self.record.file, report) if "/" in self.name else {}
        first = next((one for one in spoken if one.get("cwd") or one.get("timestamp")), {})
        return Episode(
            id=self.name,
            turns=turns,
            stop_reason=ended.stop or collected.stop,
            model=collected.model,
            time=as_time(first.get("timestamp")),
            duration_s=ended.seconds,
            tokens=ended.tokens or collected.num_tokens,
            cost=ended.cost,
            source=self.record.source,
            extra={
                **{name: first[name] for name in ("cwd", "version", "gitBranch") if first.get(name)},
                **about,
            },
        )


def _about(file: str, report: ReadReport) -> dict[str, Any]:
    """What the file beside a sub-agent's log says of it: its kind, and the call that started it."""
    about_file = Path(file).with_suffix(".meta.json")
    about = as_object(json_of_file(about_file)) if file != STDIN else {}
    if about:
        report.used.add(str(about_file.resolve()))
    return {name: about[name] for name in ("agentType", "toolUseId") if about.get(name)}


class _Messages:
    """Anthropic's messages, put together of their lines."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.tokens: dict[str, int] = {}  # of each answer, by its id
        self.seconds: dict[str, float] = {}  # of each call, by its id
        self.model: str | None = None
        self.stop: str | None = None
        self._answers: dict[str, dict[str, Any]] = {}

    @property
    def num_tokens(self) -> int | None:
        """Of all answers; None where the log says it of none."""
        return sum_known(self.tokens.values())

    def add(self, value: Json, report: ReadReport) -> None:
        """Add a line's blocks."""
        message = as_object(value.get("message"))
        if not isinstance(message.get("content"), (str, list)):
            self.messages.append(dict(message))  # is counted where messages are read
        elif value.get("type") == "user":
            self._add_user(value, message, report)
        elif message.get("model") == SYNTHETIC or value.get("isApiErrorMessage") is True:
            report.note(_NOT_SAID)
            self.stop = "error" if value.get("isApiErrorMessage") is True or value.get("error") else self.stop
        else:
            self._add_answer(value, message)

    def _add_user(self, value: Json, message: Json, report: ReadReport) -> None:
        if value.get("isCompactSummary") is True:
            report.note(SUMMARIES)
            return
        content = message.get("content")
        if isinstance(content, list):
            content = [_with_flag(block) for block in content]
        result, took = value.get("toolUseResult"), None
        if isinstance(result, dict):
            took = _seconds(first_of(result, "durationMs", "totalDurationMs"))
        for block in objects_in(content):
            if block.get("type") == "tool_result" and took is not None:
                self.seconds[as_label(block.get("tool_use_id")) or ""] = took
        self.messages.append({"role": "user", "content": content, "timestamp": value.get("timestamp")})
        texts = [content] if isinstance(content, str) else [one.get("text") for one in objects_in(content)]
        interrupted = any(isinstance(text, str) and text.startswith(_INTERRUPTED) for text in texts)
        self.stop = "interrupted" if interrupted else None

    def _add_answer(self, value: Json, message: Json) -> None:
        name = as_label(message.get("id")) or as_label(value.get("uuid")) or str(len(self.messages))
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else objects_in(content)
        answer = self._answers.get(name)
        if answer is None:
            answer = {"role": "assistant", "content": [], "timestamp": value.get("timestamp")}
            self._answers[name] = answer
            self.messages.append(answer)
        answer["content"].extend(blocks)
        tokens = as_int(as_object(message.get("usage")).get("output_tokens"))
        if tokens is not None and message.get("stop_reason") is not None:  # else it counts what came so far
            answer["tokens"] = self.tokens[name] = tokens
        self.model = as_label(message.get("model")) or self.model
        self.stop = as_label(message.get("stop_reason"))


def _with_flag(block: Any) -> Any:
    """A result whose failure is not flagged did not fail, whatever its text looks like."""
    if isinstance(block, dict) and block.get("type") == "tool_result" and block.get("is_error") is None:
        return {**block, "is_error": False}
    return block


def _settle(call: Call, seconds: dict[str, float]) -> None:
    """Give a call its time, and an error that a shell's exit code heads the words after it."""
    call.latency_s = seconds.get(call.id, call.latency_s)
    call.error = words_of(call.error)


def words_of(error: str) -> str:
    """What a shell printed, of an error that its exit code heads.

    >>> words_of("Exit code 2\\nno such file"), words_of("Exit code 2")
    ('no such file', 'Exit code 2')
    """
    head, _, rest = error.partition("\n")
    return rest.strip() if head.startswith(_EXIT) and rest.strip() else error


def _seconds(milliseconds: Any) -> float | None:
    number = as_number(milliseconds)
    return None if number is None else number / 1000

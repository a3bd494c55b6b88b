"""Chats of several agents, in which a role says little: it may be the speaker's name, or, as in AG2, whose
side the chat was kept on. Who spoke decides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trimtab.traces.core.coerce import as_label, as_list, objects_in
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.messages.normalization import ROLES, translated
from trimtab.typing import Json

_HUMANS = re.compile(r"(?:user|human|admin)(?:[_ -]?(?:proxy|agent|input))*", re.I)
_ASIDE = re.compile(r"\s*\([^()]*\)\s*\Z")
_FENCE = re.compile(r"```[\w+-]*[ \t]*\n(.*?)\n?```", re.S)
_RAN = re.compile(
    r"\Aexitcode: (-?\d+) \(execution (?:succeeded|failed)\)\s*(?:Code output:\s*)?|"
    r"\AThe script ran(?:,| but)[^\n]{0,80}(?:POSIX|Unix) exit code(?: was)?:? (-?\d+)\)?[^\n]*\n?"
    r"(?:Its output was:\n)?"
)
_EXECUTOR = re.compile(
    r"(?:\w*[_ -])?(?:code[_ -]?)?exec(?:utor)?(?:[_ -]\w*)?|computer[_ -]?terminal|\w*codeexecutor\w*", re.I
)
_BY_NAME = "chats whose roles are the speakers' names: all but the first message and humans' are the agent's"
_NOT_AGENTS = frozenset(("tool", "function", "system", "developer"))
CODE = "code"


def roles_of_speakers(messages: list[Any], report: ReadReport) -> list[Any]:
    """The messages with roles of ours, where theirs are names of speakers. A chat with an agent's role stays.

    >>> chat = [{"role": "human", "content": "a"}, {"role": "Planner (-> Coder)", "content": "b"}]
    >>> roles_of_speakers(chat, ReadReport())[1]
    {'role': 'assistant', 'content': 'b', 'name': 'Planner'}
    """
    objects = objects_in(messages)
    roles = [as_label(translated(one).get("role")) or "" for one in objects]
    foreign = {role for role in roles if role and role not in ROLES}
    if not foreign or "assistant" in roles or len(objects) < 2:
        return messages
    report.note(_BY_NAME)
    named = []
    for i, (message, role) in enumerate(zip(objects, roles, strict=True)):
        if role not in foreign:
            named.append(message)
            continue
        name = speaker_name(role)
        ours = "user" if i == 0 or is_human(name) else "assistant"
        named.append({**message, "role": ours, "name": as_label(message.get("name")) or name})
    return with_code_results(named)


def speaker_name(role: str) -> str:
    """A speaker's name without what is said of it aside, as `Orchestrator (thought)`."""
    return _ASIDE.sub("", role) or role


def is_human(name: str) -> bool:
    """Does the name stand for a person? A rule of thumb.

    >>> is_human("user_proxy"), is_human("Human"), is_human("UserSurfer")
    (True, True, False)
    """
    return _HUMANS.fullmatch(name) is not None


def with_code_results(messages: Sequence[Json]) -> list[dict[str, Any]]:
    """The messages, in which a report that code was run is the result of a call: of the last code written.

    >>> chat = [{"role": "assistant", "content": "```python\\n1/0\\n```"},
    ...     {"role": "user", "content": "exitcode: 1 (execution failed)\\nCode output: ZeroDivisionError"}]
    >>> [one["role"] for one in with_code_results(chat)]
    ['assistant', 'tool']
    """
    changed: list[dict[str, Any]] = []
    author: dict[str, Any] | None = None  # of code that was not run yet
    executors = _executors(messages)
    for message in messages:
        content = message.get("content")
        text = content if isinstance(content, str) else ""
        ran = _RAN.match(text)
        by_executor = isinstance(content, str) and as_label(message.get("name")) in executors
        if (ran is not None or by_executor) and author is not None:
            call_id = f"code{len(changed)}"
            code = "\n".join(_FENCE.findall(author["content"]))
            call = {"id": call_id, "function": {"name": CODE, "arguments": {"code": code}}}
            author["tool_calls"] = [*as_list(author.get("tool_calls")), call]
            failed = ran is not None and int(ran[1] or ran[2]) != 0
            result = {"role": "tool", "tool_call_id": call_id, "content": text, "is_error": failed}
            words = text[ran.end() :].strip() or text if ran is not None else text
            changed.append({**result, "error": words} if failed else result)
            author = None
            continue
        copy = dict(message)
        if message.get("role") == "assistant" and _FENCE.search(text):
            author = copy
        changed.append(copy)
    return changed


def _executors(messages: Sequence[Json]) -> set[str]:
    """Who runs the others' code, by a report of his or by his name.

    AgentChat's prints the output alone where the code ran well. AG2's always reports, so what else it says is
    no report.
    """
    names: set[str] = set()
    for message in messages:
        name, content = as_label(message.get("name")) or "", message.get("content")
        ran = _RAN.match(content) if isinstance(content, str) else None
        if ran is not None and ran[1] is not None:
            return set()
        if name and not is_human(name) and (ran is not None or _EXECUTOR.fullmatch(name)):
            names.add(name)
    return names


def by_name(message: Json, first: bool) -> str:
    """Our role of a message that names its speaker: the first one's is the task, whoever put it."""
    role = as_label(message.get("role")) or ""
    if role in _NOT_AGENTS:
        return "tool" if role == "function" else role
    if message.get("tool_calls"):
        return "assistant"
    name = as_label(message.get("name")) or speaker_name(role)
    return "user" if first or is_human(name) else "assistant"

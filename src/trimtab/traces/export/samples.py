"""One episode as chat templates take it: a prompt, up to the first words of the agent, and what came
after."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from trimtab.traces.core.episode import Call, Episode
from trimtab.traces.errors.attribution import fault_of

Message = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """An attempt at a task."""

    episode: str
    task: str | None
    prompt: list[Message]
    completion: list[Message]
    tools: list[dict[str, Any]] | None
    score: float | None
    """1 solved, 0 not, or the reward where there is nothing else."""
    size: int
    """Characters that the agent wrote, calls included."""
    calls: int
    num_others: int
    """Messages in the completion that the agent did not write."""
    trailing: int
    """Messages after the agent's last, which are not in the completion."""
    tool_fault: bool
    """A call failed by the fault of its tool, or the environment failed."""
    row: str | None = None
    """Row of a preference set, where `score` only says which of its two sides is better."""

    @property
    def system(self) -> list[Message]:
        """Messages above the conversation. Attempts under other ones are attempts at another task."""
        return [m for m in self.prompt if m["role"] in ("system", "developer")]

    @property
    def attempt_at(self) -> tuple[str, str]:
        """What it is an attempt at: its task, else its prompt and what users said later, word for word.

        After a greeting or examples the question comes behind the agent's first words. Where users say
        nothing, it shares its task with no other episode. A side of a preference competes with the other side
        only.
        """
        if self.row is not None:
            return "row", self.row
        if self.task is not None:
            return "task", self.task
        if not any(m["role"] == "user" and m["content"].strip() for m in self.prompt + self.completion):
            return "episode", self.episode
        return "prompt", json.dumps([self.prompt, [m for m in self.completion if m["role"] == "user"]])

    @property
    def key(self) -> tuple[tuple[str, str], str]:
        """What it is an attempt at, and the system prompt."""
        return self.attempt_at, json.dumps(self.system)


def messages_of(episode: Episode) -> list[Message]:
    """Return the episode in OpenAI's form, with arguments as objects, as TRL and chat templates want them.

    >>> from trimtab.traces.core.episode import Turn
    >>> turn = Turn(role="assistant", calls=[Call(name="add", arguments={"a": 1}, result="2")])
    >>> [m["role"] for m in messages_of(Episode(id="e", turns=[turn]))]
    ['assistant', 'tool']
    """
    messages: list[Message] = []
    for turn in episode.turns:
        message: Message = {"role": turn.role, "content": turn.content or ""}
        if turn.reasoning:
            message["reasoning_content"] = turn.reasoning
        if turn.name and turn.role == "tool":
            message["name"] = turn.name
        if turn.calls:
            calls = [(call.name, {} if call.arguments is None else call.arguments) for call in turn.calls]
            functions = [{"name": name, "arguments": arguments} for name, arguments in calls]
            message["tool_calls"] = [{"type": "function", "function": function} for function in functions]
        messages.append(message)
        results = [(call.name, call.result) for call in turn.calls if call.result is not None]
        messages += [{"role": "tool", "name": name, "content": result} for name, result in results]
    return messages


def sample_of(
    episode: Episode, score: float | None, prompts: bool = False, row: str | None = None
) -> Sample | str:
    """Return the sample of an episode, or why it makes none.

    With `prompts` only the prompt is exported, and calls need not be writable. What the agent says before any
    user, without a call (a greeting), belongs to the prompt. `row`: see `Sample`.
    """
    if any(turn.role not in ("system", "developer", "user", "assistant", "tool") for turn in episode.turns):
        return "a turn of a role that chat templates do not know"
    if not prompts and any(not _usable(call) for call in episode.calls):
        return "a call whose arguments are not an object: templates cannot write it"
    messages = messages_of(episode)
    if not any(m["role"] == "assistant" for m in messages):
        return "nothing written by the agent"
    first_user = next((i for i, m in enumerate(messages) if m["role"] == "user"), len(messages))
    called = any(m["role"] == "tool" or "tool_calls" in m for m in messages[:first_user])
    if called or first_user == len(messages):
        return "no user message before the agent's first"
    start = next((i for i, m in enumerate(messages) if m["role"] == "assistant" and i > first_user), None)
    if start is None:
        return "no word of the agent after the user's first"
    end = max(i for i, m in enumerate(messages) if m["role"] == "assistant") + 1
    own = [m for m in messages[start:end] if m["role"] == "assistant"]
    size = sum(len(m["content"]) + len(json.dumps(m.get("tool_calls", ""), ensure_ascii=False)) for m in own)
    failed = [call for call in episode.calls if call.error and call.error_from != "parse"]
    return Sample(
        episode=episode.id,
        task=episode.task if episode.task is not None else episode.group,
        prompt=messages[:start],
        completion=messages[start:end],
        tools=episode.tools,
        score=score,
        size=size,
        calls=len(episode.calls),
        num_others=end - start - len(own),
        trailing=len(messages) - end,
        # in the logs of verifiers and Inspect an `error` of the episode is a failed environment
        tool_fault=bool(episode.extra.get("error")) or any(fault_of(call.error) == "tool" for call in failed),
        row=row,
    )


def _usable(call: Call) -> bool:
    return call.bad_arguments is None and (call.arguments is None or isinstance(call.arguments, dict))

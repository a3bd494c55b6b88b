"""One episode as TRL's chat templates take it: a prompt, up to the first words of the agent, and what came after."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from trimtab.traces.core.episode import Call, Episode
from trimtab.traces.errors.attribution import fault_of

Message = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """`score`: 1 solved, 0 not, or the reward where that is all there is. `size`: characters of what the agent itself wrote,
    calls included; `given`: messages in the completion that the agent did not write;
    `trailing`: messages after the agent's last, which no completion has. `tool_fault`: a call failed by the tool's, or the environment did.
    `row`: that of a preference set, where `score` says only which of its two sides is the better."""

    episode: str
    task: str | None
    prompt: list[Message]
    completion: list[Message]
    tools: list[dict[str, Any]] | None
    score: float | None
    size: int
    calls: int
    given: int
    trailing: int
    tool_fault: bool
    row: str | None = None

    @property
    def system(self) -> list[Message]:
        """What stands above the conversation: attempts under another one are attempts at another task, whatever its name."""
        return [m for m in self.prompt if m["role"] in ("system", "developer")]

    @property
    def attempt_at(self) -> tuple[str, str]:
        """What it is an attempt at: its task; where the log names none, its prompt and what users said later, word for word: after
        a greeting or examples the question comes behind the agent's first words. Where users say nothing at all, it is an attempt
        at nothing that another shares. A side of a preference stands against the other one alone."""
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
    """The episode in OpenAI's form, with arguments as objects, as TRL and chat templates want them; nothing is cut.

    >>> from trimtab.traces.core.episode import Turn
    >>> turn = Turn(role="assistant", calls=[Call(name="add", arguments={"a": 1}, result="2")])
    >>> [m["role"] for m in messages_of(Episode(id="e", turns=[turn]))]
    ['assistant', 'tool']
    """
    found: list[Message] = []
    for turn in episode.turns:
        message: Message = {"role": turn.role, "content": turn.content or ""}
        if turn.reasoning:
            message["reasoning_content"] = turn.reasoning
        if turn.name and turn.role == "tool":
            message["name"] = turn.name
        if turn.calls:
            message["tool_calls"] = [
                {
                    "type": "function",
                    "function": {
                        "name": call.name,
                        "arguments": {} if call.arguments is None else call.arguments,
                    },
                }
                for call in turn.calls
            ]
        found.append(message)
        found += [
            {"role": "tool", "name": call.name, "content": call.result}
            for call in turn.calls
            if call.result is not None
        ]
    return found


def sample_of(
    episode: Episode, score: float | None, prompts: bool = False, row: str | None = None
) -> Sample | str:
    """The sample, or why the episode makes none; with `prompts` only its prompt is written, and calls need not be. What the agent says, without
    a call, before any user does (a greeting) belongs to the prompt. `row`: see `Sample`."""
    if any(turn.role not in ("system", "developer", "user", "assistant", "tool") for turn in episode.turns):
        return "a turn of a role that chat templates do not know"
    if not prompts and any(not _usable(call) for call in episode.calls):
        return "a call whose arguments are no object: templates cannot write it"
    messages = messages_of(episode)
    if not any(m["role"] == "assistant" for m in messages):
        return "nothing written by the agent"
    asked = next((i for i, m in enumerate(messages) if m["role"] == "user"), len(messages))
    if any(m["role"] == "tool" or "tool_calls" in m for m in messages[:asked]) or asked == len(messages):
        return "no user message before the agent's first"
    start = next((i for i, m in enumerate(messages) if m["role"] == "assistant" and i > asked), None)
    if start is None:
        return "no word of the agent after the user's first"
    end = max(i for i, m in enumerate(messages) if m["role"] == "assistant") + 1
    own = [m for m in messages[start:end] if m["role"] == "assistant"]
    size = sum(len(m["content"]) + len(json.dumps(m.get("tool_calls", ""), ensure_ascii=False)) for m in own)
    return Sample(
        episode.id, episode.task if episode.task is not None else episode.group, messages[:start], messages[start:end], episode.tools,
        score, size, len(episode.calls), end - start - len(own),
        len(messages) - end,
        bool(episode.extra.get("error"))  # verifiers' and Inspect's word for an environment that failed
        or any(call.error and call.error_from != "parse" and fault_of(call.error) == "tool" for call in episode.calls),
        row,
    )  # fmt: skip


def _usable(call: Call) -> bool:
    return call.bad_arguments is None and (call.arguments is None or isinstance(call.arguments, dict))

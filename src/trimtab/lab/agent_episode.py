"""One conversation as tokens: what the model wrote, what tools inserted, where it ended. No torch here."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from trimtab.lab.database import World, word
from trimtab.lab.tasks import Task, parse_task
from trimtab.lab.tokenizer import BOS, CALL_END, CALL_START, EOS, RESULT_END, RESULT_START, decode, encode
from trimtab.lab.toolbox import Toolbox


@dataclass
class Episode:
    """Grows token by token. After a `</call>` the tool runs and its reply waits in `forced` to be appended.

    Lists `ids`, `logprobs` (0.0 on tool tokens), `env_mask` (0 on tool tokens) and `tool_index` (0: no result
    yet, then the last tool that spoke, its own tokens included) have one entry a completion token.
    `stop_reason` is "" while it runs, then "eos", "length" or "calls" (one call more than `max_calls`).
    """

    task: Task
    toolbox: Toolbox
    step: int = 0
    row: int = 0
    max_tokens: int = 160
    max_calls: int = 3
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    env_mask: list[int] = field(default_factory=list)
    tool_index: list[int] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    forced: deque[int] = field(default_factory=deque)
    stop_reason: str = ""
    valid: bool = True  # False once the infrastructure broke a call: no reward, no gradient, no vote
    _tool: int = 0
    _call_from: int | None = None
    _final_from: int = 0

    @property
    def prompt_ids(self) -> list[int]:
        """The prompt as tokens, bos first."""
        return [BOS, *encode(self.task.prompt)]

    @property
    def final(self) -> str:
        """The text after the last tool result: the model's answer."""
        return decode([i for i in self.ids[self._final_from :] if i != EOS])

    def append(self, token: int, logprob: float) -> None:
        """Add a token the model wrote; a tool that it called has run when this returns, its reply is in
        `forced`.
        """
        self._add(token, logprob, own=True)
        if not self.stop_reason:
            self._react(token)

    def read_result(self) -> None:
        """Add the waiting tool tokens, as many as the length limit admits."""
        while self.forced and not self.stop_reason:
            self._add(self.forced.popleft(), 0.0, own=False)
            self._final_from = len(self.ids)

    def _add(self, token: int, logprob: float, *, own: bool) -> None:
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.env_mask.append(int(own))
        self.tool_index.append(self._tool)
        if token == EOS and own:
            self.stop_reason = "eos"
        elif len(self.ids) >= self.max_tokens:
            self.stop_reason = "length"

    def _react(self, token: int) -> None:
        if token == CALL_START:
            self._call_from = len(self.ids)
        elif token == CALL_END:
            if len(self.called) == self.max_calls:
                self.stop_reason = "calls"
                return
            text = decode(self.ids[self._call_from : -1]) if self._call_from is not None else ""
            self._call_from = None
            self.called.append(text)
            answer = self.toolbox.answer(text, step=self.step, row=self.row, turn=len(self.called))
            self.valid &= answer.valid
            self._tool = self.toolbox.index(text)
            self.forced.extend([RESULT_START, *encode(answer.text), RESULT_END])


@dataclass(frozen=True)
class Corruption:
    """Shares of scripted episodes that are spoiled on purpose, to leave head-room for RL."""

    wrong: float = 0.0  # the answer of another item or word
    no_call: float = 0.0  # a guess without calling
    bad_item: float = 0.0  # one letter of the item miscopied in the call


def script(episode: Episode, rng: np.random.Generator, spoil: Corruption | None = None) -> Episode:
    """Let a scripted agent play the episode: the right calls through the real tools, then the answer, then
    eos.
    """
    spoil = spoil or Corruption()
    task, world = episode.task, episode.toolbox.world
    spoiled = rng.random(3) < (spoil.wrong, spoil.no_call, spoil.bad_item)
    for call in () if spoiled[1] else task.calls:
        tool, _, item = call.partition(" ")
        text = f"{tool} {_misspelled(item, rng)}" if spoiled[2] else call
        _play(episode, [CALL_START, *encode(text), CALL_END])
    answer = _other_answer(task, world, rng) if spoiled[0] or (spoiled[1] and task.calls) else task.answer
    if spoiled[2] and task.calls and not spoiled[1]:
        answer = " ".join(world.query(*call.split(" ", 1)).value for call in episode.called)
    _play(episode, [*encode(answer), EOS])
    return episode


def _play(episode: Episode, tokens: list[int]) -> None:
    for token in tokens:
        if not episode.stop_reason:
            episode.append(token, 0.0)
            episode.read_result()


def _misspelled(item: str, rng: np.random.Generator) -> str:
    index = int(rng.integers(len(item)))
    return item[:index] + word(rng, 1)[index % 2] + item[index + 1 :]


def _other_answer(task: Task, world: World, rng: np.random.Generator) -> str:
    if task.calls:
        other = world.items[int(rng.integers(len(world.items)))]
        return " ".join(world.query(call.split(" ")[0], other).value for call in task.calls)
    if task.kind == "add":
        return str(rng.integers(10) + rng.integers(10))
    return parse_task(f"{task.kind} {word(rng)}?", world).answer

"""Tasks: a prompt carries everything; the answer follows from the prompt and the world.

copy tofa?   reverse tofa?   add 7 8?                answerable without a tool
price of tofa?   owner and stock of tofa?            one call, two calls
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.errors import TrimtabError
from trimtab.lab.database import TOOL_NAMES, World, word
from trimtab.lab.ramp import Ramp

TEXT_KINDS = ("copy", "reverse", "add")
_TEXT = re.compile(r"(copy|reverse) ([a-z0-9]+)\?|add (\d) (\d)\?")
_TOOL = re.compile(r"(price|stock|owner)(?: and (price|stock|owner))? of ([a-z]+)\?")


@dataclass(frozen=True)
class Task:
    """A prompt, its true answer and the calls that lead to it, such as ("price tofa",)."""

    prompt: str
    answer: str
    kind: str
    calls: tuple[str, ...] = ()


def parse_task(prompt: str, world: World) -> Task:
    """The task behind a prompt; raises TrimtabError for a prompt that no task generator wrote.

    >>> parse_task("reverse tofa?", World(items=1)).answer
    'afot'
    """
    if match := _TOOL.fullmatch(prompt):
        first, second, item = match.groups()
        tools = [name for name in (first, second) if name]
        answer = " ".join(world.query(tool, item).value for tool in tools)
        return Task(prompt, answer, "both" if second else first, tuple(f"{t} {item}" for t in tools))
    if match := _TEXT.fullmatch(prompt):
        kind, letters, a, b = match.groups()
        if kind is None:
            return Task(prompt, str(int(a) + int(b)), "add")
        return Task(prompt, letters if kind == "copy" else letters[::-1], kind)
    raise TrimtabError(f"not a lab prompt: {prompt!r}; use the prompts of TaskMix")


@dataclass(frozen=True)
class TaskMix:
    """A stateless map (step, row) -> prompt: tool tasks with probability `alpha.at(step)`, text-only tasks
    otherwise.

    `both` is the share of tool tasks that need two calls. Two runs with one seed see the same prompts.

    >>> mix = TaskMix(World(seed=0), seed=0, alpha=Ramp.constant(0.5))
    >>> mix.prompt(step=3, row=1) == mix.prompt(step=3, row=1)
    True
    """

    world: World
    seed: int = 0
    alpha: Ramp = field(default_factory=lambda: Ramp.constant(0.7))
    both: float = 0.15

    def prompt(self, step: int, row: int) -> str:
        """The prompt at this step and row of the run."""
        rng = np.random.default_rng([self.seed, 202, step, row])
        if rng.random() < self.alpha.at(step):
            return self._tool_prompt(rng)
        kind = TEXT_KINDS[int(rng.integers(len(TEXT_KINDS)))]
        if kind == "add":
            return f"add {rng.integers(10)} {rng.integers(10)}?"
        return f"{kind} {word(rng)}?"

    def _tool_prompt(self, rng: np.random.Generator) -> str:
        item = self.world.items[int(rng.integers(len(self.world.items)))]
        first, second = (TOOL_NAMES[int(i)] for i in rng.choice(len(TOOL_NAMES), 2, replace=False))
        return f"{first} and {second} of {item}?" if rng.random() < self.both else f"{first} of {item}?"

    def prompts(self, steps: int, per_step: int) -> list[str]:
        """All prompts of a run in order: build the dataset from it and switch shuffling off."""
        return [self.prompt(step, row) for step in range(steps) for row in range(per_step)]


def correct_reward(*, final: Sequence[str], answer: Sequence[str], **_: Any) -> list[float]:
    """TRL reward: 1.0 where the final text is exactly the answer.

    >>> correct_reward(final=["482", "48"], answer=["482", "482"])
    [1.0, 0.0]
    """
    return [float(got == want) for got, want in zip(final, answer, strict=True)]


def format_reward(
    *, stop_reason: Sequence[str], num_calls: Sequence[int], want_calls: Sequence[int], **_: Any
) -> list[float]:
    """TRL reward: 1.0 where the episode ended by itself after as many calls as the task needs.

    >>> format_reward(stop_reason=["eos", "length"], num_calls=[1, 1], want_calls=[1, 1])
    [1.0, 0.0]
    """
    rows = zip(stop_reason, num_calls, want_calls, strict=True)
    return [float(stop == "eos" and did == want) for stop, did, want in rows]

"""Tasks of very unequal difficulty: some the agent solves often, some now and then, many never yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trimtab.lab.database import TOOL_NAMES, World, word

__all__ = ["FAMILIES", "TAUGHT", "TaskPool", "drawer", "task_pool"]

TAUGHT: tuple[str, ...] = (
    "add",
    *(f"copy {n}" for n in (4, 6, 8)),
    *(f"reverse {n}" for n in (3, 4, 5, 6, 7, 8)),
    *TOOL_NAMES,
    "two tools",
)
"""Families that the agent has seen in supervised learning."""
FAMILIES: tuple[str, ...] = (*TAUGHT, "reverse 9", "reverse 10", "copy 10", "copy 12")
"""Kinds of tasks; a pool has the same number of each."""
TRAINED, HELD_OUT = 6, 6
"""Tasks a family: to train on, and to evaluate on."""


@dataclass(frozen=True)
class TaskPool:
    """Prompts to train on and held-out ones, each with the number of its family."""

    world: World
    trained: list[str]
    held_out: list[str]
    trained_family: list[int]
    held_out_family: list[int]


def task_pool(seed: int) -> TaskPool:
    """Return the pool of a seed: no prompt is in both parts."""
    world, rng = World(seed), np.random.default_rng([seed, 411])
    trained: list[str] = []
    held_out: list[str] = []
    for family in FAMILIES:
        prompts: dict[str, None] = {}
        draw = drawer(family, world, rng)
        while len(prompts) < TRAINED + HELD_OUT:
            prompts[draw()] = None
        trained += list(prompts)[:TRAINED]
        held_out += list(prompts)[TRAINED:]
    count = range(len(FAMILIES))
    return TaskPool(
        world,
        trained,
        held_out,
        [family for family in count for _ in range(TRAINED)],
        [family for family in count for _ in range(HELD_OUT)],
    )


def drawer(family: str, world: World, rng: np.random.Generator) -> Callable[[], str]:
    """Return a function that draws one prompt of a family."""
    kind, _, size = family.partition(" ")
    if family == "add":
        return lambda: f"add {rng.integers(10)} {rng.integers(10)}?"
    if size.isdigit():
        return lambda: f"{kind} {word(rng, (int(size) + 1) // 2)[: int(size)]}?"

    def tool_prompt() -> str:
        first, second = (TOOL_NAMES[int(i)] for i in rng.choice(len(TOOL_NAMES), 2, replace=False))
        item = world.items[int(rng.integers(len(world.items)))]
        return f"{first} and {second} of {item}?" if family == "two tools" else f"{family} of {item}?"

    return tool_prompt

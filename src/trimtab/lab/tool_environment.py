"""The same world for TRL's default path: GRPOTrainer(environment_factory=LabEnvironment)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from trimtab.lab.database import World
from trimtab.lab.tasks import Task, parse_task
from trimtab.lab.toolbox import Toolbox


@lru_cache(maxsize=4)
def _world(seed: int) -> World:
    return World(seed)


class LabEnvironment:
    """One episode at a time: `reset(prompt=...)`, then the three tools, which TRL finds by their signatures.

    `prompt` is a lab prompt or a chat whose last message is one. It has no `get_reward`, since only the
    trainer sees the final text: `environment_reward` scores the last message of a completion against the
    `answer` left here.
    """

    def __init__(self, seed: int = 0) -> None:
        self._toolbox = Toolbox(_world(seed), seed=seed)
        self._task: Task | None = None
        self._calls = 0

    def reset(self, prompt: Any = None, **_: Any) -> str | None:
        """Start an episode; the prompt already says everything, so nothing is added to it."""
        text = prompt[-1]["content"] if isinstance(prompt, list) else prompt
        self._task = parse_task(text, self._toolbox.world) if text else None
        self._calls = 0
        return None

    def price(self, item: str) -> str:
        """
        Price of an item.

        Args:
            item: Name of the item.

        Returns:
            The price, or "none" when there is no such item.
        """
        return self._call("price", item)

    def stock(self, item: str) -> str:
        """
        Number of pieces of an item in stock.

        Args:
            item: Name of the item.

        Returns:
            The number, or "none" when there is no such item.
        """
        return self._call("stock", item)

    def owner(self, item: str) -> str:
        """
        Owner of an item.

        Args:
            item: Name of the item.

        Returns:
            The owner's name, or "none" when there is no such item.
        """
        return self._call("owner", item)

    @property
    def answer(self) -> str | None:
        """The true answer of the running episode."""
        return self._task.answer if self._task else None

    def _call(self, tool: str, item: str) -> str:
        self._calls += 1
        return self._toolbox.call(f"{tool} {item}", step=0, row=0, turn=self._calls)


def environment_reward(
    *, completions: Sequence[Any], environments: Sequence[LabEnvironment], **_: Any
) -> list[float]:
    """Return TRL rewards for the default path: 1.0 where the last message, or the text, is the answer."""
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [float(text == env.answer) for text, env in zip(texts, environments, strict=True)]

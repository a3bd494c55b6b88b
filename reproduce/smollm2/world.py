"""Lookup tasks in plain words for an instruction-tuned model, on the lab's SQLite world, with two ways to word a result."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from trimtab.lab.database import TOOL_NAMES, World, word
from trimtab.lab.ramp import Ramp

__all__ = ["CALL", "SYSTEM", "Outputs", "Task", "answered", "make_task", "run_call"]

SYSTEM = (
    "You answer questions about a shop. To look something up write <call>price NAME</call>, <call>stock NAME</call> or "
    "<call>owner NAME</call>; the result follows. Then write: answer: VALUE"
)
CALL = re.compile(r"<call>([^<]*)</call>")
_ANSWER = re.compile(r"answer:\s*(\S+)")


@dataclass(frozen=True)
class Task:
    """A question, its true answer, and the call that finds it ("" when none is needed)."""

    question: str
    answer: str
    call: str = ""


def make_task(world: World, rng: np.random.Generator, alpha: float) -> Task:
    """A lookup with probability `alpha`, otherwise a sum the model can do by itself."""
    if rng.random() < alpha:
        item = world.items[int(rng.integers(len(world.items)))]
        tool = TOOL_NAMES[int(rng.integers(len(TOOL_NAMES)))]
        return Task(f"What is the {tool} of {item}?", world.query(tool, item).value, f"{tool} {item}")
    a, b = (int(rng.integers(2, 10)) for _ in range(2))
    return Task(f"What is {a} plus {b}?", str(a + b))


LONGER = Ramp(2.0, 20.0, start=0, span=60)


@dataclass(frozen=True)
class Outputs:
    """`open=False`: the value alone. `open=True`: the value somewhere in words, more of them as steps go by."""

    open: bool = False
    words: Ramp = LONGER

    def render(self, value: str, step: int, rng: np.random.Generator) -> str:
        """What the model will read."""
        if not self.open:
            return value
        count = round(self.words.at(step))
        noise = [word(rng) if rng.random() < 0.5 else str(rng.integers(1000)) for _ in range(count)]
        at = int(rng.integers(0, count + 1))
        return " ".join([*noise[:at], f"value={value}", *noise[at:]])


def run_call(world: World, text: str) -> tuple[str, str]:
    """(value, error) of the call a model wrote; a malformed one finds nothing."""
    tool, _, item = text.strip().partition(" ")
    reply = world.query(tool, item.strip())
    return reply.value, reply.error or ""


def answered(text: str, answer: str) -> bool:
    """Is the last answer given exactly the true one?"""
    found = _ANSWER.findall(text)
    return bool(found) and found[-1].strip(".,<") == answer

"""GRPO with tools through TRL's own tool loop. What the policy writes is scripted; calls, failures and the watch's readings are real."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from transformers import LlamaForCausalLM
from trl import GRPOTrainer

from tests.adapters.tiny_trl import END, chat_rows, grpo_config, scripted, tiny_model, tool_call
from trimtab.adapters.trl import watch

__all__ = ["tools"]

STEPS = 320
LEFT = 110  # from this step on notes.md is no longer read
BROKEN = 160  # from this step on `search` fails three times in four
UNUSED = 200  # from this step on `calculate` is no longer called
RAMBLES = 240  # from this step on, last turns are cut off more and more often


def right(completions: list[Any], **_: Any) -> list[float]:
    """An answer, where the policy gave one."""
    return [float("answer" in str(one[-1]["content"])) for one in completions]


def short(completions: list[Any], **_: Any) -> list[float]:
    """Fewer messages are better."""
    return [1.0 / len(one) for one in completions]


def tools(folder: Path, scratch: Path) -> None:
    """A tool breaks, one is given up, a file is forgotten, turns begin to be cut: each at a step of its own."""
    path, tokenizer = tiny_model(scratch / "model")
    chance = random.Random(7)
    box: dict[str, Any] = {}

    def now() -> int:
        return int(box["trainer"].state.global_step) + 1

    def search(query: str) -> str:
        """Search.

        Args:
            query: what for

        Returns:
            what was found
        """
        if now() >= BROKEN and chance.random() < 0.75:
            raise TimeoutError("no reply")
        return f"two hits for {query}"

    def read_file(path: str) -> str:
        """Read a file.

        Args:
            path: which one

        Returns:
            its text
        """
        return f"text of {path}"

    def calculate(expression: str) -> str:
        """Calculate.

        Args:
            expression: what

        Returns:
            its value
        """
        return f"{expression} is 4"

    def turn(row: int, results: int) -> str:
        del row
        if results == 0 or (results == 1 and chance.random() < 0.3):
            if now() < UNUSED and chance.random() < 0.2:
                return tool_call("calculate", expression="2 + 2")
            if chance.random() < 0.5:
                return tool_call("search", query=f"q{chance.randrange(9)}")
            files = ["main.py", "notes.md"] if now() < LEFT else ["main.py"]
            return tool_call("read_file", path=chance.choice(files))
        rambling = 0.05 if now() < RAMBLES else 0.5
        if chance.random() < rambling:
            return "and so on " * 3
        return f"the answer is {chance.randrange(99)}{END}"

    trainer = GRPOTrainer(
        scripted(LlamaForCausalLM.from_pretrained(path), tokenizer, turn), [right, short],
        args=grpo_config(scratch, max_completion_length=600, max_steps=STEPS, learning_rate=1e-4), train_dataset=chat_rows(),
        processing_class=tokenizer, tools=[search, read_file, calculate],
    )  # fmt: skip
    box["trainer"] = trainer
    run = watch(
        trainer, folder, reference="off", probes="off", required_tools=["search", "read_file", "calculate"], key_arguments={"read_file": "path"},
        required_files=["main.py", "notes.md"], solved_at=1.2, state_every=STEPS, min_tokens=20, min_trajectories=2, strict=True,
    )  # fmt: skip
    trainer.train()
    run.close()

"""A real GRPOTrainer under a guard that quarantines tools: broken episodes leave its batches, a withheld tool its prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the trl extra")

from transformers import LlamaForCausalLM, TrainerCallback
from trl import GRPOTrainer

from tests.adapters.tiny_trl import (
    chat_rows,
    grpo_config,
    random_reward,
    scripted,
    text_rows,
    tiny_model,
    tool_call,
)
from trimtab.adapters.trl import watch
from trimtab.adapters.trl.guard_controls import TrlControls
from trimtab.errors import GuardError
from trimtab.report.run_view import load_view
from trimtab.tools.exclusion import Exclusion

GENERATIONS, FAILS_AT, LAST = 8, 5, 9
MASKS, OFFERS = "tool_broken_gradient", "tool_offer"


class Service:
    """Two tools; from a step on `search` is not reached for some of its calls."""

    def __init__(self) -> None:
        self.step, self.calls = 0, 0

    def search(self, word: str) -> str:
        """Search for a word.

        Args:
            word: What to search for.

        Returns:
            What was found.
        """
        self.calls += 1
        if self.step >= FAILS_AT and self.calls % 2:
            raise ConnectionResetError("connection reset by peer")
        return f"about {word}"

    def read(self, path: str) -> str:
        """Read a file.

        Args:
            path: Which one.

        Returns:
            Its text.
        """
        return f"text of {path}"


class StepClock(TrainerCallback):
    def __init__(self, service: Service) -> None:
        self.service = service

    def on_step_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        self.service.step = state.global_step


def trainer_of(folder: Path, service: Service, steps: int) -> tuple[Any, list[dict[str, Any]]]:
    """A trainer whose rows 0 to 5 of 8 search, and whose others read; and its batches as they come."""
    path, tokenizer = tiny_model(folder / "model")

    def turn(row: int, results: int) -> str:
        if results:
            return "fin<|im_end|>"
        return tool_call("search", word="x") if row < 6 else tool_call("read", path="y")

    trainer = GRPOTrainer(
        scripted(LlamaForCausalLM.from_pretrained(path), tokenizer, turn), [random_reward],
        args=grpo_config(
            folder, max_completion_length=300, max_steps=steps, per_device_train_batch_size=GENERATIONS,
            num_generations=GENERATIONS, learning_rate=1e-5,
        ),
        train_dataset=chat_rows(16), processing_class=tokenizer, tools=[service.search, service.read],
        callbacks=[StepClock(service)],
    )  # fmt: skip
    return trainer, []


def noting(trainer: Any, batches: list[dict[str, Any]]) -> None:
    inner = trainer._generate_and_score_completions

    def generate(inputs: Any) -> Any:
        batches.append(inner(inputs))
        return batches[-1]

    trainer._generate_and_score_completions = generate


def test_broken_episodes_of_a_quarantined_tool_leave_the_batches(tmp_path: Path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text("policies:\n  quarantine_tool: {enabled: true}\n")
    service = Service()
    trainer, batches = trainer_of(tmp_path, service, LAST)
    watch(trainer, tmp_path / "run", guard=policy, reference="off", probes="off", update_rows=0, strict=True)
    noting(trainer, batches)
    trainer.train()
    view = load_view(tmp_path / "run")
    entry = next(row for row in view.actions if row["action"] == "quarantine_tool")
    assert (entry["tool"], entry["lever"], entry["after"]) == ("search", MASKS, 0.0)
    assert FAILS_AT < entry["step"] < LAST
    assert {row["tool"] for row in view.actions if row["action"] == "quarantine_tool"} == {"search"}
    trained = [batch["tool_mask"].any(dim=1).tolist() for batch in batches]
    assert all(map(all, trained[: entry["step"]]))  # before it every row is trained on
    for batch in batches[entry["step"] :]:
        rows = batch["tool_mask"].any(dim=1)
        assert rows[6:].all()
        assert rows[:6].tolist() in ([True, False] * 3, [False, True] * 3)
        assert not batch["advantages"][~rows].any()
        assert batch["advantages"][rows].sum().abs() < 1e-4  # the baseline is that of the rows that vote


def test_a_withheld_tool_is_in_no_prompt_and_is_not_called(tmp_path: Path) -> None:
    service = Service()
    trainer, batches = trainer_of(tmp_path, service, 1)
    controls = TrlControls(trainer, exclusion=Exclusion())
    assert controls.levers()[OFFERS] == ("tool/search", "tool/read")
    controls.set(OFFERS, "tool/search", 0.0)
    noting(trainer, batches)
    trainer.train()
    tokenizer = trainer.processing_class
    prompt = tokenizer.decode(batches[0]["prompt_ids"][0])
    assert ("Read a file." in prompt, "Search for a word." in prompt) == (True, False)
    assert service.calls == 0
    assert [one.__name__ for one in trainer.tools] == ["search", "read"]  # as it was, between generations


def test_a_trainer_without_tools_is_refused_in_a_line(tmp_path: Path) -> None:
    model, tokenizer = tiny_model(tmp_path / "model")
    trainer = GRPOTrainer(
        model,
        random_reward,
        args=grpo_config(tmp_path),
        train_dataset=text_rows(),
        processing_class=tokenizer,
    )
    policy = tmp_path / "p.yaml"
    policy.write_text("policies:\n  quarantine_tool: {enabled: true}\n")
    with pytest.raises(
        GuardError, match="needs the lever tool_broken_gradient, which this trainer does not offer"
    ):
        watch(trainer, tmp_path / "run", guard=policy, reference="off", probes="off")
    assert not hasattr(trainer, "trimtab_run")

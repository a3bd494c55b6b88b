"""One line of `watch(..., guard=...)` on a real GRPOTrainer: trouble is met, and the weights of a stated step come back."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the trl extra")

import torch
from transformers import TrainerCallback
from trl import GRPOTrainer

from tests.adapters.tiny_trl import grpo_config, random_reward, text_rows, tiny_model
from trimtab.adapters.trl import watch
from trimtab.errors import GuardError, RunError, UnsupportedError
from trimtab.report.run_view import load_view

STEPS, FIRST, SECOND = 28, 18, 21
POLICY = """
preset: recommended
confirm_steps: 1
cool_down: 1
soften_times: 1
states: {every: 4, count: 3}
policies: {rollback: {margin: 0}}
"""


def trainer_of(folder: Path, **changes: Any) -> GRPOTrainer:
    model, tokenizer = tiny_model(folder / "model")
    return GRPOTrainer(
        model,
        random_reward,
        args=grpo_config(folder, **{"max_steps": STEPS, "learning_rate": 1e-4, **changes}),
        train_dataset=text_rows(160),
        processing_class=tokenizer,
    )


class WeightLog(TrainerCallback):
    """The weights after each step, and before the next: between the two a guard may restore others."""

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.after, self.before = trainer, {}, {}
        trainer.add_callback(self)

    def now(self) -> dict[str, torch.Tensor]:
        return {name: p.detach().clone() for name, p in self.trainer.model.named_parameters()}

    def on_step_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        self.before[state.global_step + 1] = self.now()

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        self.after[state.global_step] = self.now()


def plant(trainer: Any) -> None:
    """A gradient that is not a number at one step, and a loss that is none at a later one."""
    inner = trainer._compute_loss

    def loss(model: Any, inputs: Any) -> torch.Tensor:
        value = inner(model, inputs)
        return value * math.nan if trainer.state.global_step + 1 == SECOND else value

    trainer._compute_loss = loss
    parameter = next(p for p in trainer.model.parameters() if p.requires_grad)
    parameter.register_hook(lambda g: g * math.nan if trainer.state.global_step + 1 == FIRST else g)


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], two[name]) for name in one)


def test_planted_trouble_is_rolled_back_with_one_line(tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    trainer = trainer_of(tmp_path)
    plant(trainer)
    run = watch(trainer, tmp_path / "run", guard=tmp_path / "policy.yaml", min_tokens=20, min_trajectories=2)
    weights = WeightLog(trainer)
    trainer.train()
    run.close()
    view = load_view(tmp_path / "run")
    assert not view.errors
    actions = view.reader.rows("actions")
    (rollback,) = (row for row in actions if row["action"] == "rollback")
    (softened,) = (row for row in actions if row["action"] == "set_lever" and row["step"] == FIRST)
    assert (softened["lever"], softened["before"], softened["after"]) == ("lr_scale", 1.0, 0.3)
    assert (rollback["step"], rollback["to_step"]) == (SECOND, 16)
    assert same(weights.before[SECOND + 1], weights.after[16])
    assert not same(weights.after[SECOND], weights.after[16])
    assert same(
        weights.after[FIRST], weights.after[FIRST - 1]
    )  # the update that was not a number is left out
    assert same(weights.after[SECOND], weights.after[SECOND - 1])
    assert trainer.state.global_step == STEPS
    assert all(torch.isfinite(p).all() for p in trainer.model.parameters())
    assert [row["step"] for row in view.steps] == list(range(1, STEPS + 1))
    assert run.guard.controls.restores[0]["to_step"] == 16
    assert not same(weights.after[STEPS], weights.after[16])


def test_observing_changes_nothing(tmp_path):
    ends = []
    for name, guard in (("plain", None), ("observed", "observe")):
        torch.manual_seed(0)
        trainer = trainer_of(tmp_path / name, max_steps=4)
        run = watch(trainer, tmp_path / name / "run", guard=guard)
        trainer.train()
        run.close()
        ends.append({key: p.detach().clone() for key, p in trainer.model.named_parameters()})
    assert same(*ends)
    assert not (tmp_path / "observed" / "run" / "stable_states").exists()


def test_what_cannot_be_guarded_is_refused_in_one_line(tmp_path):
    trainer = trainer_of(tmp_path)
    with pytest.raises(GuardError, match="no such preset or file"):
        watch(trainer, tmp_path / "run", guard="recomended")
    (tmp_path / "small.yaml").write_text("states: {count: 3, max_gb: 0.0001}\n")
    with pytest.raises(RunError, match=r"a ring of 3 states of .* need .* are allowed"):
        watch(trainer, tmp_path / "run", guard=tmp_path / "small.yaml")
    import transformers

    plain = transformers.Trainer(
        trainer.model, transformers.TrainingArguments(str(tmp_path / "out"), use_cpu=True)
    )
    with pytest.raises(UnsupportedError, match="a guard acts on GRPOTrainer, got Trainer"):
        watch(plain, tmp_path / "plain", guard="recommended")

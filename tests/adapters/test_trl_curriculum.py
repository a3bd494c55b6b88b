"""One line of `curriculum(trainer)` on a real GRPOTrainer: its groups are those drawn, its rewards the outcomes, a resume goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the trl extra")

import numpy as np
import torch
import transformers
from trl import GRPOTrainer

from tests.adapters.tiny_trl import grpo_config, text_rows, tiny_model
from trimtab.adapters.trl import curriculum, watch
from trimtab.adapters.trl.control.task_outcomes import STATE_KEY
from trimtab.adapters.trl.guard_controls import TrlControls
from trimtab.curriculum import Curriculum, CurriculumOptions
from trimtab.errors import CurriculumError, UnsupportedError
from trimtab.report.run_view import load_view

ROWS, GROUP = 12, 4


class Scores:
    """Reward function: rows 0 to 5 always fail, the others succeed by the first character; notes what it saw."""

    __name__ = "scores"

    def __init__(self) -> None:
        self.calls: list[tuple[list[int], list[float]]] = []
        self.columns: set[str] = set()

    def __call__(self, prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        rows = [int(prompt.split()[1].rstrip(":")) for prompt in prompts]
        self.columns |= set(columns)
        rewards = [float(row >= 6 and hash_of(text) % 2) for row, text in zip(rows, completions, strict=True)]
        self.calls.append((rows, rewards))
        return rewards

    @property
    def drawn(self) -> list[list[int]]:
        return [rows[::GROUP] for rows, _ in self.calls]


def hash_of(text: str) -> int:
    return sum(text.encode())


def trainer_of(folder: Path, **changes: Any) -> tuple[GRPOTrainer, Scores]:
    model, tokenizer = tiny_model(folder / "model")
    scores = Scores()
    config = {"per_device_train_batch_size": 8, "max_steps": 9, "max_completion_length": 4, **changes}
    trainer = GRPOTrainer(
        model, scores, args=grpo_config(folder, **config), train_dataset=text_rows(ROWS), processing_class=tokenizer
    )  # fmt: skip
    return trainer, scores


def test_groups_are_those_drawn_and_a_resume_draws_the_same(tmp_path):
    """Nine steps, in the second epoch from the seventh on; a fresh trainer goes on from step 4 and from 8."""
    options = CurriculumOptions(floor_every=3)
    trainer, scores = trainer_of(tmp_path, save_strategy="steps", save_steps=4)
    tasks = curriculum(trainer, strata=[row // 6 for row in range(ROWS)], options=options)
    run = watch(trainer, tmp_path / "run", reference="off")
    trainer.train()
    run.close()

    assert all(
        row == rows[index // GROUP * GROUP] for rows, _ in scores.calls for index, row in enumerate(rows)
    )
    assert all(len(set(drawn)) == 2 for drawn in scores.drawn)
    assert "trimtab_task" not in scores.columns
    groups = [np.reshape(rewards, (-1, GROUP)) for _, rewards in scores.calls]
    wasted = sum(int((np.ptp(rewards, axis=1) == 0).sum()) for rewards in groups)
    assert (tasks.waste.num_groups, tasks.waste.num_wasted) == (18, wasted)
    again = Curriculum(ROWS, strata=[row // 6 for row in range(ROWS)], seed=1, options=options)
    expected = [again.draw(2)]
    for index, (rows, rewards) in enumerate(scores.calls):  # the loader is one generation ahead
        expected.append(again.draw(2))
        assert scores.drawn[index] == expected[index]
        again.update(rows, rewards)
    view = load_view(tmp_path / "run")
    assert not view.errors
    assert [len(view.steps), view.steps[0]["metrics"]["curriculum/wasted_groups_frac"] >= 0.5] == [9, True]

    for step in (4, 8):
        resumed, seen = trainer_of(tmp_path / str(step), save_strategy="no")
        on = curriculum(resumed, strata=[row // 6 for row in range(ROWS)], options=options)
        resumed.train(resume_from_checkpoint=str(tmp_path / "out" / f"checkpoint-{step}"))
        assert seen.calls == scores.calls[step:]
        assert on.state_dict() == tasks.state_dict()


def test_a_guard_saves_it_with_its_states(tmp_path):
    """`resume` repeats the draws; `restore` takes back the outcomes alone."""
    trainer, scores = trainer_of(
        tmp_path,
        max_steps=5,
        steps_per_generation=2,
        per_device_train_batch_size=4,
        remove_unused_columns=True,
    )
    tasks = curriculum(trainer)
    controls = TrlControls(trainer)
    saved: dict[str, Any] = {}

    class At(transformers.TrainerCallback):
        def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            if state.global_step == 4 and not saved:
                (tmp_path / "state").mkdir()
                controls.save(tmp_path / "state")
                saved.update(tasks.state_dict())

    trainer.add_callback(At())
    trainer.train()
    draws, calls = tasks.num_draws, len(scores.calls)
    controls.restore(tmp_path / "state")
    assert tasks.num_draws == draws
    assert tasks.state_dict()["estimates"] == saved["estimates"]
    controls.resume(tmp_path / "state")
    assert tasks.state_dict() == saved
    assert calls == 3
    json.dumps(controls.restores)


def test_a_checkpoint_without_a_curriculum_starts_one(tmp_path, caplog):
    trainer, _ = trainer_of(tmp_path, max_steps=1, save_strategy="steps", save_steps=1)
    trainer.train()
    checkpoint = tmp_path / "out" / "checkpoint-1"
    assert STATE_KEY not in json.loads((checkpoint / "trainer_state.json").read_text())["stateful_callbacks"]
    resumed, scores = trainer_of(tmp_path / "resumed", max_steps=2)
    tasks = curriculum(resumed)
    with caplog.at_level("WARNING", "trimtab"):
        resumed.train(resume_from_checkpoint=str(checkpoint))
    assert "it starts anew at step 1" in caplog.text
    assert len(scores.calls) == 1
    assert tasks.waste.num_groups == 2


def test_what_cannot_have_a_curriculum_is_refused_in_one_line(tmp_path):
    trainer, _ = trainer_of(tmp_path, per_device_train_batch_size=52)
    with pytest.raises(CurriculumError, match="a generation has 13 groups, the dataset 12 rows"):
        curriculum(trainer)
    plain = transformers.Trainer(
        trainer.model, transformers.TrainingArguments(str(tmp_path / "out"), use_cpu=True)
    )
    with pytest.raises(UnsupportedError, match="draws for GRPOTrainer, got Trainer"):
        curriculum(plain)
    second, _ = trainer_of(tmp_path / "second")
    curriculum(second)
    with pytest.raises(UnsupportedError, match="has a curriculum already"):
        curriculum(second)
    assert torch.is_tensor(next(second.model.parameters()))

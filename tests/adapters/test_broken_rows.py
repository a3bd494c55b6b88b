"""Episodes that the infrastructure broke leave TRL's batch: no reward, gradient or vote."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trimtab.adapters.trl import exclude_broken
from trimtab.adapters.trl.control.broken_rows import VALID_KEY, group_relative
from trimtab.errors import UnsupportedError
from trimtab.tools import ToolFailure
from trimtab.tools.exclusion import Exclusion


class Trainer:
    """The four methods of a GRPOTrainer that are wrapped, with TRL's own formula of advantages."""

    def __init__(self, rewards: torch.Tensor, generations: int = 4, scale: str = "group") -> None:
        self.rewards, self.num_generations, self.scale_rewards = rewards, generations, scale
        self.reward_weights = torch.ones(rewards.shape[1])
        self.accelerator, self.model = SimpleNamespace(process_index=0), SimpleNamespace(training=True)
        self._sync_tool_dicts: list[dict[str, Any]] = []
        self._async_tool_dicts: list[dict[str, Any]] = []

    def _tool_call_loop(self, rows: int, failing: dict[int, Exception]) -> None:
        for row in range(rows):
            try:
                self._sync_tool_dicts[row]["look"](row, failing)
            except Exception as error:
                if error is not failing[row]:
                    raise

    def _calculate_rewards(self, inputs: Any, prompts: Any) -> torch.Tensor:
        return self.rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        failing = inputs[0].get("failing", {})
        rows = len(inputs)

        def look(row: int, failing: dict[int, Exception]) -> str:
            if row in failing:
                raise failing[row]
            return "found"

        self._sync_tool_dicts, self._async_tool_dicts = (
            [{"look": look} for _ in range(rows)],
            [{} for _ in range(rows)],
        )
        self._tool_call_loop(rows, failing)
        rewards = self._calculate_rewards(inputs, [None] * rows)
        total = rewards.nansum(dim=1)
        group = torch.arange(rows) // self.num_generations
        mask = torch.ones(rows, 5, dtype=torch.long)
        return {
            "advantages": group_relative(total, group, self.scale_rewards), "completion_mask": mask,
            "num_items_in_batch": mask.sum(),
        }  # fmt: skip


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages_are_those_of_a_batch_without_the_broken_rows(scale: str) -> None:
    rewards = torch.randn(12, 2, generator=torch.Generator().manual_seed(0))
    trainer = Trainer(rewards, scale=scale)
    broken = exclude_broken(trainer)
    down, wrong = ConnectionResetError("gone"), ToolFailure("policy", "refused", "no such table")
    inputs: list[dict[str, Any]] = [
        {"failing": {1: down, 2: wrong, 8: down, 9: down, 10: down}},
        *({} for _ in range(11)),
    ]
    inputs[4][VALID_KEY] = False
    output = trainer._generate_and_score_completions(inputs)
    voting = torch.tensor([0, 2, 3, 5, 6, 7])  # 11 is alone in its group
    group = torch.arange(12) // 4
    expected = torch.zeros(12)
    expected[voting] = group_relative(rewards.sum(dim=1)[voting], group[voting], scale)
    assert output["advantages"].numpy().tobytes() == expected.numpy().tobytes()
    assert output["tool_mask"].any(dim=1).tolist() == [row not in (1, 4, 8, 9, 10) for row in range(12)]
    assert int(output["num_items_in_batch"]) == 7 * 5
    assert (broken.num_rows, broken.num_excluded) == (12, 5)


def test_nothing_changes_while_nothing_breaks() -> None:
    rewards = torch.randn(8, 1, generator=torch.Generator().manual_seed(1))
    plain, wrapped = Trainer(rewards), Trainer(rewards)
    exclude_broken(wrapped)
    inputs: list[dict[str, Any]] = [{} for _ in range(8)]
    one, other = (
        plain._generate_and_score_completions(inputs),
        wrapped._generate_and_score_completions(inputs),
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_kinds_may_break_too_and_a_row_is_forgotten_after_its_batch() -> None:
    trainer = Trainer(torch.arange(4.0).unsqueeze(1))
    broken = exclude_broken(trainer, Exclusion(kinds=frozenset({"timeout"})))
    rows: list[dict[str, Any]] = [{"failing": {0: TimeoutError("5 s")}}, {}, {}, {}]
    assert trainer._generate_and_score_completions(rows)["advantages"][0] == 0
    trainer._generate_and_score_completions([{}, {}, {}, {}])
    assert broken.num_excluded == 1


def test_other_trainers_are_refused() -> None:
    with pytest.raises(
        UnsupportedError, match="wants a GRPOTrainer; SimpleNamespace has no _calculate_rewards"
    ):
        exclude_broken(SimpleNamespace())


def test_a_real_trainer_learns_nothing_from_broken_episodes(tmp_path: Path) -> None:
    """Every tool call breaks: episodes with one carry no reward, advantage or trained token."""
    from trimtab.lab.database import World
    from trimtab.lab.executed_world import ExecutedWorld
    from trimtab.lab.experiments import Arm
    from trimtab.lab.ramp import Ramp
    from trimtab.lab.rollout import Limits
    from trimtab.tools.chaos import Chaos
    from trimtab.training.lab_grpo import lab_trainer

    arm = Arm("broken", alpha=Ramp.constant(1.0), limits=Limits(max_tokens=24))
    outputs: list[Any] = []
    with ExecutedWorld(World(0), chaos=Chaos({"unavailable": 1.0}), tools=("price", "stock")) as service:
        trainer = lab_trainer(arm, tmp_path, steps=1, prompts_per_step=3, generations=4, service=service)
        inner, calculate = trainer._generate_and_score_completions, trainer._calculate_rewards

        def rewards(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            outputs.append([row[VALID_KEY] for row in inputs])
            outputs.append(calculate(inputs, *args, **kwargs))
            return outputs[-1]

        def generate(inputs: Any) -> Any:
            outputs.append(inner(inputs))
            return outputs[-1]

        trainer._calculate_rewards, trainer._generate_and_score_completions = rewards, generate
        trainer.train()
    valid, rewarded, batch = torch.tensor(outputs[0]), outputs[1], outputs[2]
    assert 0 < int(valid.sum()) < 12
    assert rewarded.isnan().all(dim=1).tolist() == (~valid).tolist()
    assert not batch["advantages"][~valid].any()
    assert not batch["tool_mask"][~valid].any()
    assert batch["tool_mask"][valid].any()
    assert trainer.trimtab_broken_rows.num_excluded == int((~valid).sum())

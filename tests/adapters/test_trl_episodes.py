"""Readings of episodes, tools and preference training from the installed TRL, over a few real steps."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the trl extra")
from datasets import Dataset
from transformers import LlamaForCausalLM
from trl import (
    DPOConfig,
    DPOTrainer,
    GRPOTrainer,
    KTOConfig,
    KTOTrainer,
    RewardTrainer,
    SFTConfig,
    SFTTrainer,
)

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
from trimtab.adapters.trl.preference_trainers import chance_loss
from trimtab.report.run_view import load_view

SMALL = {"min_tokens": 20, "min_trajectories": 2, "strict": True}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))


def read_file(path: str) -> str:
    """Read a file.

    Args:
        path: which one

    Returns:
        its text
    """
    return f"text of {path}"


def values(folder, key, name="all"):
    return [reading.value for reading in load_view(folder).series(key, name)]


def arguments(folder, **changes):
    return {"output_dir": str(folder / "out"), "per_device_train_batch_size": 4, "max_steps": 12, "logging_steps": 1,
            "report_to": [], "use_cpu": True, "save_strategy": "no", "bf16": False, "disable_tqdm": True, **changes}  # fmt: skip


def finished(completions, **_):
    return [1.0] * len(completions)


def test_grpo_with_tools_gives_episodes_and_tools(tiny, tmp_path):
    path, tokenizer = tiny

    def turn(row, results):
        return tool_call("read_file", path=f"f{row % 2}.py") if results < 1 else "fin<|im_end|>"

    trainer = GRPOTrainer(
        scripted(LlamaForCausalLM.from_pretrained(path), tokenizer, turn), [random_reward, finished],
        args=grpo_config(tmp_path, max_completion_length=400, max_steps=10), train_dataset=chat_rows(),
        processing_class=tokenizer, tools=[read_file],
    )  # fmt: skip
    declared = {
        "required_tools": ["read_file", "search"],
        "key_arguments": {"read_file": "path"},
        "required_files": ["f0.py", "f7.py"],
    }
    watch(trainer, tmp_path / "run", reference="off", probes="off", retokenise_every=1, **declared, **SMALL)
    trainer.train()
    run = tmp_path / "run"
    assert values(run, "tools/calls", "tool/read_file") == [40]
    assert values(run, "tools/calls", "file/f0.py") == [20]
    assert values(run, "tools/neglected") == [2]
    assert values(run, "aggregate/no_call_frac") == [0] * 10
    assert values(run, "aggregate/num_turns") == [2] * 10
    assert values(run, "retokenise/sequence_frac") == [0] * 10  # byte tokens: text and ids are one to one
    rewards = [row["metrics"] for row in load_view(run).steps]
    assert values(run, "reward_part/mean", "reward/finished") == [1.0] * 10
    assert values(run, "reward_part/mean", "reward/random_reward") == pytest.approx(
        [m["reward"] - 1.0 for m in rewards], abs=2e-6
    )
    assert all(0 <= value < 1 for value in values(run, "aggregate/repetition_frac"))


def test_group_spread_is_that_of_the_rewards_trl_computed(tiny, tmp_path):
    """Groups of four in micro-batches of two, shuffled: the spread is taken over whole groups."""
    path, tokenizer = tiny
    config = grpo_config(tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=4, max_steps=3)
    trainer = GRPOTrainer(
        path, random_reward, args=config, train_dataset=text_rows(), processing_class=tokenizer
    )
    inner, spreads = trainer._calculate_rewards, []

    def calculate(*args, **kwargs):
        rewards = inner(*args, **kwargs)
        spreads.append(rewards[:, 0].view(-1, 4).std(dim=1).mean().item())
        return rewards

    trainer._calculate_rewards = calculate
    watch(trainer, tmp_path / "run", reference="off", probes="off", state_every=1, **SMALL)
    trainer.train()
    assert values(tmp_path / "run", "aggregate/reward_std") == pytest.approx(spreads, rel=1e-5)
    assert load_view(tmp_path / "run").series("aggregate/reward_std", "all")[0].n_tokens == 2
    assert "rewards/batch_std" in load_view(tmp_path / "run").steps[0]["metrics"]


def pairs(count=16):
    return Dataset.from_list([
        {"prompt": [{"role": "user", "content": f"q{i}"}], "chosen": [{"role": "assistant", "content": f"yes {i}"}],
         "rejected": [{"role": "assistant", "content": f"no no {i}"}]} for i in range(count)
    ])  # fmt: skip


def test_dpo_loss_margin_and_accuracy(tiny, tmp_path):
    path, tokenizer = tiny
    trainer = DPOTrainer(
        LlamaForCausalLM.from_pretrained(path), args=DPOConfig(**arguments(tmp_path, learning_rate=1e-3)),
        train_dataset=pairs(), processing_class=tokenizer,
    )  # fmt: skip
    watch(trainer, tmp_path / "run", **SMALL)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    steps = [row["metrics"] for row in load_view(tmp_path / "run").steps]
    assert [m["loss"] for m in steps] == pytest.approx([e["loss"] for e in logged], abs=1e-5)
    over = values(tmp_path / "run", "preference/loss_over_chance")
    assert over[0] == pytest.approx(0.0, abs=1e-5)  # the policy is its reference
    assert over == pytest.approx([e["loss"] - math.log(2) for e in logged], abs=1e-5)
    assert over[-1] < 0
    margins = values(tmp_path / "run", "preference/margin")
    assert margins == pytest.approx([e["rewards/margins"] for e in logged], abs=1e-6)
    assert values(tmp_path / "run", "aggregate/chosen_logp") == pytest.approx(
        [e["logps/chosen"] for e in logged]
    )
    assert len(values(tmp_path / "run", "aggregate/preference_accuracy")) == 12


def test_losses_add_up_between_two_logs(tiny, tmp_path):
    """transformers sums losses until it logs their mean: ours, one a step, must have that mean."""
    path, tokenizer = tiny
    rows = Dataset.from_list([{"text": f"row {i} says hello"} for i in range(16)])
    config = SFTConfig(
        **arguments(tmp_path, logging_steps=3, eval_strategy="steps", eval_steps=4, learning_rate=1e-2)
    )
    trainer = SFTTrainer(path, args=config, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer)
    watch(trainer, tmp_path / "run", **SMALL)
    trainer.train()
    steps = [row["metrics"] for row in load_view(tmp_path / "run").steps]
    losses = np.array([m["loss"] for m in steps])
    logged = [e["loss"] for e in trainer.state.log_history if "loss" in e]
    assert losses.reshape(4, 3).mean(axis=1) == pytest.approx(logged, abs=1e-4)
    held_out = [e["eval_loss"] for e in trainer.state.log_history if "eval_loss" in e]
    assert [m["eval_loss"] for m in steps if "eval_loss" in m] == pytest.approx(held_out[:2])
    gap = values(tmp_path / "run", "supervised/gap")
    assert gap == pytest.approx([np.mean(held_out[:2]) - losses[:10].mean()], abs=1e-6)
    assert (
        len(values(tmp_path / "run", "aggregate/token_accuracy")) == 12
    )  # no tokens are watched: a reading a step


def test_kto_tells_its_balance(tiny, tmp_path):
    path, tokenizer = tiny
    rows = Dataset.from_list([
        {"prompt": [{"role": "user", "content": f"q{i}"}], "completion": [{"role": "assistant", "content": f"a{i}"}],
         "label": i % 4 == 0} for i in range(16)
    ])  # fmt: skip
    trainer = KTOTrainer(
        LlamaForCausalLM.from_pretrained(path), args=KTOConfig(**arguments(tmp_path)), train_dataset=rows,
        processing_class=tokenizer,
    )  # fmt: skip
    watch(trainer, tmp_path / "run", **SMALL)
    trainer.train()
    steps = [row["metrics"] for row in load_view(tmp_path / "run").steps]
    assert np.mean([m["desirable_frac"] for m in steps]) == pytest.approx(0.25)
    assert steps[0]["chance_loss"] == 0.5
    assert steps[0]["loss"] == pytest.approx(0.5, abs=1e-5)
    assert len(values(tmp_path / "run", "aggregate/desirable_frac")) == 12


@pytest.mark.parametrize(
    ("kind", "beta"), [("sigmoid", 0.1), ("hinge", 0.1), ("ipo", 0.5), ("robust", 0.1), ("apo_zero", 0.1)]
)
def test_chance_is_the_loss_of_a_policy_equal_to_its_reference(tiny, tmp_path, kind, beta):
    path, tokenizer = tiny
    config = DPOConfig(**arguments(tmp_path, loss_type=[kind], beta=beta, max_steps=1))
    trainer = DPOTrainer(
        LlamaForCausalLM.from_pretrained(path),
        args=config,
        train_dataset=pairs(4),
        processing_class=tokenizer,
    )
    told = chance_loss(trainer)["chance_loss"]
    trainer.train()
    loss = trainer.state.log_history[0]["loss"]
    assert math.isnan(told) if kind == "apo_zero" else told == pytest.approx(loss, abs=1e-4)


def test_other_trainers_have_no_chance(tiny, tmp_path):
    path, tokenizer = tiny
    trainer = GRPOTrainer(
        path, random_reward, args=grpo_config(tmp_path), train_dataset=text_rows(), processing_class=tokenizer
    )
    assert chance_loss(trainer) == {}
    assert chance_loss(RewardTrainer.__new__(RewardTrainer)) == {"chance_loss": math.log(2)}

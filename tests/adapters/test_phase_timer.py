"""Phases of the installed TRL: their seconds add up to the step, and what training computes does not change."""

from __future__ import annotations

import json
import time

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch
from datasets import Dataset
from transformers import LlamaForCausalLM
from trl import GRPOTrainer, SFTConfig, SFTTrainer

from tests.adapters.tiny_trl import chat_rows, grpo_config, scripted, tiny_model, tool_call
from trimtab.adapters.trl import watch

SLOW_REWARD_S, SLOW_TOOL_S, SLOW_GATHER_S = 0.05, 0.02, 0.2


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
    time.sleep(SLOW_TOOL_S)
    return f"text of {path}"


def slow_reward(completions, **_):
    time.sleep(SLOW_REWARD_S)
    return [float(i % 3) for i in range(len(completions))]


def _train(tiny, folder, watched):
    path, tokenizer = tiny
    torch.manual_seed(0)
    model = scripted(
        LlamaForCausalLM.from_pretrained(path),
        tokenizer,
        lambda row, results: (
            tool_call("read_file", path="a.txt") if results == 0 else f"done {row}<|im_end|>"
        ),
    )
    functions = [slow_reward]
    trainer = GRPOTrainer(
        model=model, processing_class=tokenizer, reward_funcs=functions, train_dataset=chat_rows(), tools=[read_file],
        args=grpo_config(folder / "out", max_steps=3),
    )  # fmt: skip
    inner = trainer.accelerator.gather

    def slow_gather(tensor):  # inside `_generate`, where ranks wait for each other
        time.sleep(SLOW_GATHER_S)
        return inner(tensor)

    trainer.accelerator.gather = slow_gather
    run = watch(trainer, folder / "run") if watched else None
    trainer.train()
    assert functions == [slow_reward]
    weights = torch.cat([one.detach().flatten() for one in trainer.model.parameters()])
    return weights, run


def _rows(folder):
    text = (folder / "run" / "steps.r0.s0.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_phases_of_grpo_are_timed_and_the_weights_are_those_without(tiny, tmp_path) -> None:
    plain, _ = _train(tiny, tmp_path / "plain", False)
    weights, run = _train(tiny, tmp_path / "watched", True)
    run.close()
    assert run.num_failures == 0
    assert torch.equal(plain, weights)
    rows = _rows(tmp_path / "watched")
    for row in rows:
        phases = row["phases_s"]
        assert set(phases) == {"rollout", "tools", "reward", "sync", "forward", "backward", "optimizer"}
        assert all(seconds > 0 for seconds in phases.values())
        assert sum(phases.values()) < row["duration_s"]
        assert phases["reward"] >= SLOW_REWARD_S
        assert phases["tools"] >= SLOW_TOOL_S
        assert phases["sync"] >= SLOW_GATHER_S
        assert phases["rollout"] < row["duration_s"] - SLOW_GATHER_S
        assert row["memory"]["host"][0] > 0


def test_a_supervised_trainer_has_forward_backward_and_optimizer(tiny, tmp_path) -> None:
    path, tokenizer = tiny
    rows = Dataset.from_list([{"text": f"row {i}: what follows"} for i in range(8)])
    config = SFTConfig(
        output_dir=str(tmp_path / "out"), max_steps=2, per_device_train_batch_size=2, report_to=[], use_cpu=True, bf16=False,
        save_strategy="no", max_length=64,
    )  # fmt: skip
    trainer = SFTTrainer(model=path, processing_class=tokenizer, train_dataset=rows, args=config)
    with watch(trainer, tmp_path / "run") as run:
        with run.isolated("score"):  # what the watch does is in no phase
            trainer.accelerator.backward(torch.ones((), requires_grad=True))
        assert run._intake.costs.clock.take() == {}
        trainer.train()
    assert all(set(row["phases_s"]) == {"forward", "backward", "optimizer"} for row in _rows(tmp_path))

"""The lab under TRL: a GRPOTrainer for one arm, exactly as a user would build and watch one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from trimtab.adapters.trl import exclude_broken, watch
from trimtab.lab.database import TOOL_NAMES
from trimtab.lab.executed_world import ExecutedWorld
from trimtab.lab.experiments import Arm, open_arm
from trimtab.lab.model import agent_path, load_agent
from trimtab.lab.probe_bank import probe_bank
from trimtab.lab.tasks import correct_reward, format_reward
from trimtab.monitor import Run
from trimtab.traces.core.tool_call import ToolCall
from trimtab.training.minirl.config import MiniRLConfig
from trimtab.training.minirl.trainer import MiniRLTrainer

_FATE = ("blame", "kind", "attempts", "queued_s")
"""What only an executor knows of a call."""


def lab_trainer(
    arm: str | Arm,
    output: str | Path,
    *,
    steps: int = 60,
    seed: int = 0,
    prompts_per_step: int = 8,
    generations: int = 8,
    calls: list[dict[str, Any]] | None = None,
    kind: type[GRPOTrainer] = GRPOTrainer,
    service: ExecutedWorld | None = None,
    **config: Any,
) -> GRPOTrainer:
    """A GRPOTrainer of the shipped agent on an arm of the lab; `config` overrides GRPOConfig fields.

    `calls` collects the executed tool calls, for `watch_lab`. `kind` may be MiniRLTrainer: `config` then
    overrides MiniRLConfig fields. With a `service`, of the world of the same seed, tool calls are executed by
    it, and episodes that it breaks are excluded. One thread; no network.
    """
    torch.set_num_threads(1)
    opened = open_arm(
        arm,
        steps=steps,
        prompts_per_step=prompts_per_step,
        seed=seed,
        on_tool_call=None if calls is None else _keep(calls),
        service=service,
    )

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        result = opened.rollout_func(prompts, trainer)
        result["tool_names"] = [[call.partition(" ")[0] for call in called] for called in result["called"]]
        return result

    batch = prompts_per_step * generations
    settings: dict[str, Any] = {
        "output_dir": str(output),
        "per_device_train_batch_size": batch,
        "num_generations": generations,
        "max_completion_length": opened.arm.limits.max_tokens,
        "max_steps": steps,
        "learning_rate": 2e-4,
        "lr_scheduler_type": "constant",
        "temperature": opened.arm.limits.temperature,
        "beta": 0.0,
        "shuffle_dataset": False,
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "seed": seed,
        "reward_weights": [0.9, 0.1],
    }
    _, tokenizer = load_agent()
    config_of = MiniRLConfig if issubclass(kind, MiniRLTrainer) else GRPOConfig
    trainer = kind(
        agent_path(),
        [correct_reward, format_reward],
        args=config_of(**{**settings, **config}),
        train_dataset=Dataset.from_dict({"prompt": opened.prompts}),
        processing_class=tokenizer,
        rollout_func=rollout,
    )
    if service is not None:
        trainer.trimtab_broken_rows = exclude_broken(trainer, service.exclusion)
    return trainer


def watch_lab(
    trainer: GRPOTrainer, folder: str | Path, calls: list[dict[str, Any]] | None = None, **options: Any
) -> Run:
    """`watch` with the lab's fixed probe bank; tool calls the rollouts made are recorded too."""
    run = watch(trainer, folder, probes=_trl_probes(), tool_names=TOOL_NAMES, **options)
    if calls is not None:
        inner = trainer._calculate_rewards

        def drain(*args: Any, **kwargs: Any) -> Any:
            for call in calls:
                done = (call["result_size"], call["error"] or "", call["latency_s"])
                fate = {key: call[key] for key in _FATE if key in call}
                run.tool_call(ToolCall(call["name"], call["arguments"], *done, **fate))
            calls.clear()
            return inner(*args, **kwargs)

        trainer._calculate_rewards = drain
    return run


def _trl_probes() -> dict[str, np.ndarray]:
    """The lab's probe bank as TRL pads a batch: prompts on the left, completions on the right."""
    bank = probe_bank()
    sizes = bank.attention_mask.sum(axis=1)
    before, after = int(bank.prompt_lengths.max()), int((sizes - bank.prompt_lengths).max())
    arrays = {
        "prompt_ids": np.zeros((len(sizes), before), np.int64),
        "prompt_mask": np.zeros((len(sizes), before), np.int64),
        "completion_ids": np.zeros((len(sizes), after), np.int64),
        "completion_mask": np.zeros((len(sizes), after), np.int64),
        "tool_mask": np.ones((len(sizes), after), np.int64),
    }
    for row, (size, prompt) in enumerate(zip(sizes.tolist(), bank.prompt_lengths.tolist(), strict=True)):
        arrays["prompt_ids"][row, before - prompt :] = bank.ids[row, :prompt]
        arrays["prompt_mask"][row, before - prompt :] = 1
        arrays["completion_ids"][row, : size - prompt] = bank.ids[row, prompt:size]
        arrays["completion_mask"][row, : size - prompt] = 1
        arrays["tool_mask"][row, : size - prompt] = bank.env_mask[row, prompt:size]
    return arrays


def _keep(calls: list[dict[str, Any]]) -> Any:
    def keep(call: Mapping[str, Any]) -> None:
        calls.append(dict(call))

    return keep

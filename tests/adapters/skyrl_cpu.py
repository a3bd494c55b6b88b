"""SkyRL's own RayPPOTrainer on the CPU: its loop, its batches and its loss; the lab agent in place of GPU workers and of vLLM.

`CpuDispatch` has the methods of SkyRL's WorkerDispatch that `train()` calls, `LabGenerator` is a GeneratorInterface that plays the lab's tool
episodes. Everything between them is SkyRL's.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("skyrl", reason="needs SkyRL: bash .ci/skyrl.sh")
from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
from skyrl.backends.skyrl_train.utils.ppo_utils import ppo_policy_loss
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.trainer import RayPPOTrainer

from trimtab.lab.database import World
from trimtab.lab.model import load_agent
from trimtab.lab.ramp import Ramp
from trimtab.lab.rollout import Limits, rollout
from trimtab.lab.tasks import TaskMix, correct_reward
from trimtab.lab.tokenizer import build_tokenizer
from trimtab.lab.toolbox import Toolbox

PROMPTS, SAMPLES = 4, 4


class Prompts:
    """Tasks of the lab as SkyRL's PromptDataset yields them."""

    def __init__(self, world: World, count: int) -> None:
        tasks = TaskMix(world, 0, Ramp.constant(0.75))
        self.rows = [
            {"prompt": tasks.prompt(0, row), "env_class": "lab", "env_extras": {}, "uid": str(row)}
            for row in range(count)
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.rows[row]

    @staticmethod
    def collate_fn(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return rows


class LabGenerator:
    """SkyRL's GeneratorInterface over the lab: `model` samples, SQLite tools answer."""

    def __init__(self, model: Any, world: World) -> None:
        self.model, self.toolbox, self.calls = model, Toolbox(world), 0
        self.episodes: list[Any] = []

    async def generate(self, input_batch: dict[str, Any]) -> dict[str, Any]:
        step = input_batch["batch_metadata"].global_step
        self.calls += 1
        played = rollout(
            self.model,
            input_batch["prompts"],
            self.toolbox,
            step=step,
            seed=self.calls,
            limits=Limits(max_tokens=60),
        )
        self.episodes.append(played)
        return {
            "prompt_token_ids": [e.prompt_ids for e in played],
            "response_ids": [e.ids for e in played],
            "rewards": correct_reward(
                final=[e.final for e in played], answer=[e.task.answer for e in played]
            ),
            "loss_masks": [e.env_mask for e in played],
            "stop_reasons": [e.stop_reason for e in played],
            "rollout_logprobs": [e.logprobs for e in played],
            "rollout_metrics": {"generate/avg_num_tokens": sum(len(e.ids) for e in played) / len(played)},
            "trajectory_ids": input_batch["trajectory_ids"],
        }


class CpuDispatch:
    """The calls of WorkerDispatch that RayPPOTrainer makes, on one torch model and its frozen copy."""

    def __init__(self, cfg: SkyRLTrainConfig, policy: Any, learning_rate: float = 3e-4) -> None:
        self.cfg, self.models = cfg, {"policy": policy, "ref": copy.deepcopy(policy).eval()}
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=learning_rate)
        self.batches: list[TrainingInputBatch] = []

    def get_lcm_dp_size(self) -> int:
        return 1

    def init_weight_sync_state(self, client: Any) -> None:
        """The generator samples from the policy itself."""

    async def save_weights_for_sampler(self) -> None:
        """As above."""

    def empty_cache(self, model: str | None = None) -> None:
        """Nothing is cached."""

    def profile_step(self, model: str) -> None:
        """Not profiled."""

    def _scores(self, model: str, batch: Any) -> torch.Tensor:
        """(B, R) log-probabilities of the response's places, as SkyRL's model wrapper slices them."""
        ids, mask = batch["sequences"], batch["attention_mask"]
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        logits = self.models[model](input_ids=ids, attention_mask=mask, position_ids=positions).logits
        scores = torch.log_softmax(logits[:, :-1].float(), -1).gather(2, ids[:, 1:, None])[..., 0]
        return scores[:, -batch.metadata["response_length"] :]

    def forward(self, model: str, batch: Any) -> Any:
        with torch.no_grad():
            rows = self._scores(model, batch).tolist()
        return SimpleNamespace(loss_fn_outputs=[{"logprobs": row} for row in rows])

    def stage_data(self, model: str, batch: Any, boundaries: list[tuple[int, int]]) -> list[Any]:
        return [batch[start:end] for start, end in boundaries]

    def forward_from_staged(self, model: str, chunk: Any) -> Any:
        return self.forward(model, chunk)

    def forward_backward_from_staged(self, model: str, chunk: Any) -> Any:
        self.batches.append(chunk)
        scores = self._scores(model, chunk)
        loss, metrics = ppo_policy_loss(
            scores,
            chunk["action_log_probs"],
            chunk["advantages"],
            self.cfg.trainer.algorithm,
            chunk["loss_mask"],
            None,
        )
        loss.backward()
        return SimpleNamespace(metrics={"policy_loss": float(loss), **metrics})

    def optim_step(self, model: str) -> float:
        norm = torch.nn.utils.clip_grad_norm_(self.models[model].parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(norm)


class Tracker:
    """SkyRL's Tracking as far as a trainer calls it."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, Any]]] = []

    def log(self, data: dict[str, Any], step: int, commit: bool = False) -> None:
        self.rows.append((step, dict(data)))

    def finish(self) -> None:
        """Nothing to close."""


def lab_trainer(steps: int, mini_batch: int = PROMPTS) -> RayPPOTrainer:
    """SkyRL's trainer for `steps` steps of 16 episodes; `mini_batch` prompts an optimizer step."""
    torch.manual_seed(0)
    cfg = SkyRLTrainConfig()
    own = {
        "train_batch_size": PROMPTS, "policy_mini_batch_size": mini_batch, "epochs": 1, "eval_interval": -1, "ckpt_interval": -1,
        "hf_save_interval": -1, "resume_mode": "none", "logger": "console", "print_example_interval": -1, "enable_ray_gpu_monitor": False,
    }  # fmt: skip
    for name, value in own.items():
        assert hasattr(cfg.trainer, name), name
        setattr(cfg.trainer, name, value)
    cfg.trainer.placement.colocate_all = False
    cfg.generator.n_samples_per_prompt = SAMPLES
    cfg.generator.inference_engine.enable_ray_prometheus_stats = False
    cfg.data.dataloader.num_workers = 0
    cfg.data.dataloader.persistent_workers = False
    model, _ = load_agent()
    world = World(0)
    trainer = RayPPOTrainer(
        cfg, Tracker(), build_tokenizer(), Prompts(world, steps * PROMPTS), None, LabGenerator(model, world)
    )
    trainer.dispatch = CpuDispatch(cfg, model)
    trainer.ref_model = trainer.dispatch.models["ref"]
    return trainer

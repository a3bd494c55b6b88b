"""MiniRL of a tiny mixture of experts, sampled by a second engine with fp8 weights: both engines' routes go to the watch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.adapters.tiny_trl import make_tokenizer, text_rows
from tests.training.tiny import COMMON, moe
from trimtab.adapters.trl import watch
from trimtab.objectives import RoutingReplay
from trimtab.training import MiniRLConfig, MiniRLTrainer
from trimtab.training.inference_engines import RoundedEngine

__all__ = ["mixture"]

STEPS, WIDTH = 120, 12


def digits(completions: list[str], **_: Any) -> list[float]:
    """Digits a token."""
    return [sum(map(str.isdigit, text)) / WIDTH for text in completions]


class Routes:
    """Experts of the sampler by the text they were sampled for, and of the trainer's pass with gradients."""

    def __init__(self) -> None:
        self.engine = RoundedEngine("fp8", max_new_tokens=WIDTH)
        self.sampled: dict[tuple[int, ...], tuple[int, Any]] = {}
        self.columns: list[tuple[Any, Any]] = []

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        found = self.engine(prompts, trainer)
        for prompt, completion, routes in zip(
            found["prompt_ids"], found["completion_ids"], found.pop("routes"), strict=True
        ):
            self.sampled[(*prompt, *completion)] = len(prompt), torch.as_tensor(routes)
        return found

    def attach(self, trainer: Any, run: Any) -> None:
        """Record the trainer's routes in the pass of the loss, and add both columns to what the watch observes."""
        score, loss, observe = trainer._get_per_token_logps_and_entropies, trainer._compute_loss, run.observe
        replay = RoutingReplay(trainer.model)
        batch: dict[str, Any] = {}

        def keeping(*args: Any, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled() or "inputs" not in batch:
                return score(*args, **kwargs)
            with replay.recording() as tape:
                result = score(*args, **kwargs)
            self.columns.append(self._pair(batch.pop("inputs"), tape))
            return result

        def losing(model: Any, inputs: Any) -> Any:
            batch["inputs"] = inputs
            return loss(model, inputs)

        def observing(**arrays: Any) -> None:
            own, theirs = self.columns.pop(0)
            observe(**arrays, routed_experts=own, rollout_routed_experts=theirs)

        trainer._get_per_token_logps_and_entropies, trainer._compute_loss, run.observe = (
            keeping,
            losing,
            observing,
        )

    def _pair(self, inputs: Any, tape: Any) -> tuple[np.ndarray, np.ndarray]:
        """(B, T, L, K) of each engine at the completion's places; -1 where the sampler never fed the token."""
        rows, width = inputs["completion_ids"].shape
        own = tape.routes(rows)[:, -width:].clone()
        theirs = torch.full_like(own, -1)
        for row in range(rows):
            prompt = inputs["prompt_ids"][row][inputs["prompt_mask"][row].bool()].tolist()
            completion = inputs["completion_ids"][row][inputs["completion_mask"][row].bool()].tolist()
            start, routes = self.sampled[(*prompt, *completion)]
            after = routes[start:]
            theirs[row, : len(after)] = after.to(theirs.dtype)
        return own.numpy(), theirs.numpy()


def mixture(folder: Path, scratch: Path) -> None:
    """No replay: the trainer routes as it would, and the share of tokens it routes otherwise is what is read."""
    routes = Routes()
    settings = {
        **COMMON, "output_dir": str(scratch / "out"), "max_steps": STEPS, "per_device_train_batch_size": 16, "learning_rate": 5e-3,
        "optim": "adamw_torch", "max_completion_length": WIDTH, "max_grad_norm": 1.0,
    }  # fmt: skip
    trainer = MiniRLTrainer(
        moe(scratch / "model"), digits, args=MiniRLConfig(**settings), train_dataset=text_rows(64), processing_class=make_tokenizer(),
        rollout_func=routes,
    )  # fmt: skip
    run = watch(
        trainer, folder, reference="off", probes="off", state_every=STEPS, min_tokens=50, min_trajectories=4, strict=True
    )  # fmt: skip
    routes.attach(trainer, run)
    trainer.train()
    run.close()

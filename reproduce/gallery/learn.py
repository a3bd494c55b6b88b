"""GRPO of a tiny untrained model on parts of a reward: nothing is scripted, what it writes is what it sampled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from trl import GRPOTrainer

from tests.adapters.tiny_trl import grpo_config, text_rows, tiny_model
from trimtab.adapters.trl import watch

__all__ = ["learn"]

STEPS, WIDTH = 160, 16
SOLVED = 0.3
"""Total reward at which a rollout counts as solved, which the untrained model hardly ever reaches."""


def digits(completions: list[str], **_: Any) -> list[float]:
    """The part that can be learnt: digits a token."""
    return [sum(map(str.isdigit, text)) / WIDTH for text in completions]


def letters(completions: list[str], **_: Any) -> list[float]:
    """A part of little weight: letters of ASCII a token. Markup like `<tool_response>` is one token of twelve, and the policy finds that."""
    return [sum(map(str.isalpha, filter(str.isascii, text))) / WIDTH for text in completions]


def answer(completions: list[str], **_: Any) -> list[float]:
    """A part that nobody earns."""
    return [float("answer" in text) for text in completions]


class Learner(GRPOTrainer):  # type: ignore[misc]
    """Logs the largest KL of a token, as a user would, and gives the watch each trajectory's gradient."""

    run: Any = None

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        width = inputs["completion_ids"].size(1)
        logits = model(input_ids=ids, attention_mask=attention).logits[:, -width - 1 : -1]
        logps = logits.log_softmax(-1).gather(-1, inputs["completion_ids"][..., None])[..., 0]
        own = inputs["completion_mask"]
        gap = (inputs["ref_per_token_logps"] - logps).detach()
        worst = ((gap.exp() - gap - 1) * own).max()
        self._metrics["train"]["kl_max"].append(float(worst))
        weights = [p for p in model.parameters() if p.requires_grad]
        rows = (inputs["advantages"][:, None] * logps * own).sum(dim=1)
        vectors = [torch.autograd.grad(row, weights, retain_graph=True) for row in rows]
        table = torch.stack([torch.cat([g.flatten() for g in one]) for one in vectors]).double()
        gram = (table @ table.T).numpy()
        self.run.gradients(int(self.state.global_step) + 1, {"all": gram}, gram=True)
        return super()._compute_loss(model, inputs)


def learn(folder: Path, scratch: Path) -> None:
    """Four updates a generation, so that the last three are clipped; beta > 0, so that there is a KL."""
    path, tokenizer = tiny_model(scratch / "model")
    config = grpo_config(
        scratch, max_steps=STEPS, per_device_train_batch_size=16, steps_per_generation=4, beta=0.02, learning_rate=8e-3,
        max_completion_length=WIDTH, reward_weights=[1.0, 0.1, 1.0], lr_scheduler_type="constant", gradient_checkpointing=False,
    )  # fmt: skip
    trainer = Learner(
        path,
        [digits, letters, answer],
        args=config,
        train_dataset=text_rows(64),
        processing_class=tokenizer,
    )
    trainer.run = watch(
        trainer, folder, probes="off", retokenise_every=1, solved_at=SOLVED, state_every=STEPS, min_tokens=50,
        min_trajectories=4, strict=True,
    )  # fmt: skip
    trainer.train()
    trainer.run.close()

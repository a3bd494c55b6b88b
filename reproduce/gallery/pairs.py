"""DPO whose labels are swapped on the way, and supervised training of a few rows with evaluation: both through TRL."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import LlamaForCausalLM
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from tests.adapters.tiny_trl import tiny_model
from trimtab.adapters.trl import watch

__all__ = ["preferences", "supervised"]

STEPS, BATCH, SWAPPED = 240, 8, 140


def _settings(scratch: Path, **changes: Any) -> dict[str, Any]:
    return {"output_dir": str(scratch / "out"), "per_device_train_batch_size": BATCH, "max_steps": STEPS, "logging_steps": 1,
            "report_to": [], "use_cpu": True, "save_strategy": "no", "bf16": False, "disable_tqdm": True, "seed": 1,
            "lr_scheduler_type": "constant", "gradient_checkpointing": False, **changes}  # fmt: skip


def preferences(folder: Path, scratch: Path) -> None:
    """One answer is chosen over the other in four pairs of five; from step `SWAPPED` on in one of five."""
    path, tokenizer = tiny_model(scratch / "model")
    chance, rows = random.Random(3), []
    for i in range(STEPS * BATCH):
        word = "".join(chance.choices("abcdefgh", k=4))
        chosen, rejected = f"yes {word}", f"no {word}"
        if chance.random() < (0.2 if i < SWAPPED * BATCH else 0.8):
            chosen, rejected = rejected, chosen
        rows.append({
            "prompt": [{"role": "user", "content": word[::-1]}], "chosen": [{"role": "assistant", "content": chosen}],
            "rejected": [{"role": "assistant", "content": rejected}],
        })  # fmt: skip
    trainer = DPOTrainer(
        LlamaForCausalLM.from_pretrained(path), args=DPOConfig(**_settings(scratch, learning_rate=3e-5, train_sampling_strategy="sequential")),
        train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
    )  # fmt: skip
    run = watch(trainer, folder, state_every=STEPS, min_tokens=20, min_trajectories=2, strict=True)
    trainer.train()
    run.close()


def supervised(folder: Path, scratch: Path) -> None:
    """Sixteen rows of random letters are learnt by heart; other such rows are held out and evaluated every five steps."""
    path, tokenizer = tiny_model(scratch / "model")
    chance = random.Random(5)
    rows = [{"text": "".join(chance.choices("abcdefgh", k=24))} for _ in range(32)]
    config = SFTConfig(
        **_settings(scratch, max_steps=240, learning_rate=3e-3, eval_strategy="steps", eval_steps=5)
    )
    trainer = SFTTrainer(
        path, args=config, train_dataset=Dataset.from_list(rows[:16]), eval_dataset=Dataset.from_list(rows[16:]),
        processing_class=tokenizer,
    )  # fmt: skip
    run = watch(trainer, folder, state_every=STEPS, min_tokens=20, min_trajectories=2, strict=True)
    trainer.train()
    run.close()

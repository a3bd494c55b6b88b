"""The cold start: a mixture of experts, trained from scratch on demonstrations for too short a time; one for all runs, as in the paper.

It is stopped when three answers in ten are right, so that there is something to learn by reinforcement.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from reproduce.minirl.task import (
    LONGEST,
    STEP_BY_STEP,
    correct,
    demonstration,
    digits_of,
    make_tokenizer,
    text_of,
)

__all__ = ["SHAPE", "start_of", "supervise"]

SHAPE: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "moe_intermediate_size": 192, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16, "num_experts": 16, "num_experts_per_tok": 2,
    "norm_topk_prob": True, "max_position_embeddings": 64, "router_aux_loss_coef": 0.01, "tie_word_embeddings": False,
}  # fmt: skip
ROWS, RATE, WARM = 64, 5e-3, 20
SEED = 0  # of the weights and the demonstrations
LOOK, ASKED, ENOUGH = 20, 256, 0.3  # every so many steps, so many questions, such a share right


def supervise(most: int, seed: int) -> tuple[Qwen3MoeForCausalLM, int]:
    """A model that answers `ENOUGH` of its questions rightly, and how many batches that took, `most` at most. The same for the same seed."""
    torch.manual_seed(seed)
    rng = np.random.default_rng([seed, 2])
    tokenizer = make_tokenizer()
    model = Qwen3MoeForCausalLM(
        Qwen3MoeConfig(vocab_size=len(tokenizer), bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
                       pad_token_id=tokenizer.pad_token_id, output_router_logits=True, **SHAPE)
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    ramp = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARM))
    for step in range(1, most + 1):
        out = model(**_batch(rng, tokenizer))
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        ramp.step()
        if step % LOOK == 0 and _score(model, rng, tokenizer) >= ENOUGH:
            break
    model.config.output_router_logits = False
    return model.eval(), step


@torch.no_grad()
def _score(model: Any, rng: np.random.Generator, tokenizer: Any) -> float:
    """Share of right answers to fresh questions, sampled at temperature 1."""
    questions = [text_of(digits_of(rng)) for _ in range(ASKED)]
    ids = torch.tensor([tokenizer(question)["input_ids"] for question in questions])
    model.eval()
    model.config.output_router_logits = False
    written = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=LONGEST, do_sample=True, top_k=0
    )
    model.config.output_router_logits = True
    model.train()
    answers = tokenizer.batch_decode(written[:, ids.shape[1] :], skip_special_tokens=True)
    return sum(correct(questions, answers)) / ASKED


def _batch(rng: np.random.Generator, tokenizer: Any) -> dict[str, torch.Tensor]:
    """Demonstrations padded on the right; the loss is on the answers alone."""
    rows = []
    for _ in range(ROWS):
        digits = digits_of(rng)
        question = tokenizer(text_of(digits))["input_ids"]
        answer = tokenizer(demonstration(digits, bool(rng.random() < STEP_BY_STEP)))["input_ids"]
        rows.append((question, [*answer, tokenizer.eos_token_id]))
    width = max(len(question) + len(answer) for question, answer in rows)
    ids = torch.full((ROWS, width), tokenizer.pad_token_id)
    labels = torch.full((ROWS, width), -100)
    for at, (question, answer) in enumerate(rows):
        whole = torch.tensor([*question, *answer])
        ids[at, : len(whole)] = whole
        labels[at, len(question) : len(whole)] = whole[len(question) :]
    attention = (torch.arange(width) < torch.tensor([len(q) + len(a) for q, a in rows])[:, None]).long()
    return {"input_ids": ids, "labels": labels, "attention_mask": attention}


def start_of(most: int, folder: Path) -> Path:
    """The start, trained where it is missing; it appears whole or not at all."""
    own = folder / f"at-most-{most}"
    if own.is_dir():
        return own
    half = own.with_name(f"{own.name}.part{os.getpid()}")
    model, steps = supervise(most, SEED)
    model.save_pretrained(half)
    make_tokenizer().save_pretrained(half)
    print(f"cold start: {steps} steps", flush=True)
    if own.is_dir():  # another process was faster
        shutil.rmtree(half)
    else:
        half.replace(own)
    return own

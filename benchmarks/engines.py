"""How far apart are the trainer and each second engine? |log pi_old - log mu| of the tokens that the engine sampled, during MiniRL steps.

    python benchmarks/engines.py [--engines NAME ...] [--model FOLDER] [--steps N] [--rows N] [--json]

Each engine is the `rollout_func` of a MiniRLTrainer of the lab's agent (or of a causal language model in FOLDER) for N steps; pi_old is the
trainer's float32 at the weights that were sampled. Figures, in nats: `mismatch_mean_<engine>`, `mismatch_p99_<engine>`, with 95 %
bootstrap intervals by trajectory, and `sync_s_<engine>`, `sample_s_<engine>`: CPU seconds of one synchronisation and one rollout
(one thread; neighbours on a shared machine still show). llama.cpp's are left out, and named, where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from datasets import Dataset
from transformers import AutoTokenizer, PrinterCallback
from transformers.utils import logging

from trimtab.errors import UnsupportedError
from trimtab.lab.experiments import open_arm
from trimtab.lab.model import agent_path
from trimtab.training import MiniRLConfig, MiniRLTrainer
from trimtab.training.inference_engines import RoundedEngine
from trimtab.training.llamacpp import LlamaCppEngine

TOKENS, GROUP = 64, 4
ENGINES: dict[str, Callable[[], Any]] = {
    "rounded_bf16": lambda: RoundedEngine("bf16", max_new_tokens=TOKENS),
    "rounded_bf16_arithmetic": lambda: RoundedEngine("bf16", max_new_tokens=TOKENS, compute=torch.bfloat16),
    "rounded_fp8": lambda: RoundedEngine("fp8", max_new_tokens=TOKENS),
    "rounded_int8": lambda: RoundedEngine("int8", max_new_tokens=TOKENS),
    "llama_f32_cache_f32": lambda: LlamaCppEngine("f32", max_new_tokens=TOKENS, cache="f32"),
    "llama_f32": lambda: LlamaCppEngine("f32", max_new_tokens=TOKENS),
    "llama_f16": lambda: LlamaCppEngine("f16", max_new_tokens=TOKENS),
    "llama_bf16": lambda: LlamaCppEngine("bf16", max_new_tokens=TOKENS),
    "llama_q8_0": lambda: LlamaCppEngine("q8_0", max_new_tokens=TOKENS),
}


class Watched:
    """An engine as a rollout_func, with each trajectory's gaps to the trainer's own float32 and the engine's CPU seconds."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.gaps, self.sync, self.sample = engine, [], [], []

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        start = time.process_time()
        self.engine.synchronise(trainer)
        middle = time.process_time()
        out = self.engine(prompts, trainer)
        self.sync.append(middle - start)
        self.sample.append(time.process_time() - middle)
        model = trainer.accelerator.unwrap_model(trainer.model).eval()
        for prompt, ids, mu in zip(out["prompt_ids"], out["completion_ids"], out["logprobs"], strict=True):
            with torch.no_grad():
                logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
            old = logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None])[:, 0]
            self.gaps.append((old - torch.tensor(mu)).abs().double().numpy())
        model.train()
        return out


def prompts_of(model: str | None, rows: int, steps: int) -> list[str]:
    """The lab's tasks; for another model, sums in words."""
    if model is None:
        return open_arm("constrained", steps=steps, prompts_per_step=rows // GROUP, seed=0).prompts
    rng = np.random.default_rng(0)
    pairs = rng.integers(2, 90, (steps * rows // GROUP, 2)).tolist()
    return [f"Question: what is {a} plus {b}? Explain.\nAnswer:" for a, b in pairs]


def by_letters(completions: list[str], **_: Any) -> list[float]:
    """A reward that differs within a group."""
    return [sum(map(str.isalpha, text)) / max(len(text), 1) for text in completions]


def measured(make: Callable[[], Any], model: str | None, rows: int, steps: int, folder: str) -> Watched:
    path = model or agent_path()
    watched = Watched(make())
    args = MiniRLConfig(
        output_dir=folder, max_steps=steps, num_generations=GROUP, per_device_train_batch_size=rows, max_completion_length=TOKENS,
        learning_rate=2e-4 if model is None else 1e-6, report_to=[], save_strategy="no", use_cpu=True, bf16=False, seed=0,
        gradient_checkpointing=False, shuffle_dataset=False, disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    trainer = MiniRLTrainer(
        path, by_letters, args=args, train_dataset=Dataset.from_dict({"prompt": prompts_of(model, rows, steps)}),
        processing_class=AutoTokenizer.from_pretrained(path, padding_side="left"), rollout_func=watched,
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return watched


def interval(gaps: list[np.ndarray], figure: Callable[[np.ndarray], float]) -> tuple[float, float, float]:
    """(value over all tokens, low, high), trajectories drawn anew 1000 times."""
    rng = np.random.default_rng(0)
    draws = [
        figure(np.concatenate([gaps[i] for i in rng.integers(0, len(gaps), len(gaps))])) for _ in range(1000)
    ]
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(figure(np.concatenate(gaps))), float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--model")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one step of 8 rows of each engine: it checks that everything runs",
    )
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    options = parser.parse_args()
    if options.quick:
        options.steps, options.rows = 1, 2 * GROUP
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    figures, intervals = {}, {}
    print(f"{'engine':<26}{'mean nats':>34}{'p99 nats':>34}{'tokens':>8}{'sync s':>8}{'rollout s':>10}")
    for name in options.engines:
        make = ENGINES[name]
        try:
            with tempfile.TemporaryDirectory() as folder:
                seen = measured(make, options.model, options.rows, options.steps, folder)
        except UnsupportedError as missing:
            print(f"{name:<26}left out: {missing}")
            continue
        mean, p99 = interval(seen.gaps, np.mean), interval(seen.gaps, lambda x: float(np.quantile(x, 0.99)))
        figures |= {f"mismatch_mean_{name}": mean[0], f"mismatch_p99_{name}": p99[0]}
        intervals |= {f"mismatch_mean_{name}": mean[1:], f"mismatch_p99_{name}": p99[1:]}
        figures[f"sync_s_{name}"], figures[f"sample_s_{name}"] = np.median(seen.sync), np.median(seen.sample)
        shown = [f"{value:.2e} ({low:.2e} to {high:.2e})" for value, low, high in (mean, p99)]
        tokens = sum(map(len, seen.gaps))
        print(
            f"{name:<26}{shown[0]:>34}{shown[1]:>34}{tokens:>8}{figures[f'sync_s_{name}']:>8.2f}{figures[f'sample_s_{name}']:>10.2f}",
            flush=True,
        )
    if options.json:
        print(json.dumps({"figures": figures, "intervals": intervals}))


if __name__ == "__main__":
    main()

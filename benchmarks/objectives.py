"""What do MiniRL, PPO-EWMA and routing replay cost? Side by side with a plain TRL step, in turns of one step, in one process.

    python benchmarks/objectives.py [--rounds N] [--no-cut] [--json]

Trainers take the same prompts, completions and optimizer; a round is one step of each, in an order that rotates. Figures are medians
of the ratio within a round, with a 95 % bootstrap interval: `minirl_step_ratio` (target <= 1.05) and `ppo_ewma_step_ratio` (<= 1.45) over
a plain GRPOTrainer whose rollout_func costs nothing, so that the loss and not generation is timed; `minirl_generation_step_ratio`
the same with transformers' own sampling, recorded; `replay_overhead_frac` (<= 0.05) of forward + backward of a Qwen3-MoE. Seconds are CPU
seconds of the process, one thread, one trainer at a time: neighbours on a shared machine still show, in the intervals. Last, what replay
cuts of the mismatch of a trained mixture (`benchmarks/replay_cut.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
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
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PrinterCallback,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    TrainerCallback,
)

ROWS, PROMPT, COMPLETION, WORDS, WARMUP = 8, 16, 96, 1024, 2


class Turns:
    """Trainers in threads of one process that take turns: one optimizer step each a round, alone on the machine's clock."""

    def __init__(self, names: list[str], rounds: int) -> None:
        self.names, self.rounds = names, rounds
        self.order = [names[(r + i) % len(names)] for r in range(rounds) for i in range(len(names))]
        self.place, self.gate = 0, threading.Condition()
        self.seconds: dict[str, list[float]] = {name: [] for name in names}
        self.failure: BaseException | None = None

    def wait(self, name: str) -> None:
        with self.gate:
            while self.failure is None and self.place < len(self.order) and self.order[self.place] != name:
                self.gate.wait()
        if self.failure is not None:
            raise RuntimeError("another trainer failed") from self.failure

    def done(self, name: str, seconds: float) -> None:
        with self.gate:
            self.seconds[name].append(seconds)
            self.place += 1
            self.gate.notify_all()

    def run(self, trainers: dict[str, Any]) -> dict[str, np.ndarray]:
        def train(name: str) -> None:
            try:
                self.wait(name)
                trainers[name].train()
            except BaseException as error:
                with self.gate:
                    self.failure = self.failure or error
                    self.gate.notify_all()

        threads = []
        for name in self.names:
            trainers[name].add_callback(Turn(self, name))
            trainers[name].remove_callback(PrinterCallback)
            threads.append(threading.Thread(target=train, args=(name,)))
            threads[-1].start()
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure
        return {name: np.array(values[WARMUP:]) for name, values in self.seconds.items()}


class Turn(TrainerCallback):
    """Waits for its turn before a step and passes it on after; what transformers does between is timed."""

    def __init__(self, turns: Turns, name: str) -> None:
        self.turns, self.name, self.start = turns, name, 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, state, control
        self.turns.wait(self.name)
        self.start = time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, state, control
        self.turns.done(self.name, time.process_time() - self.start)


def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
    """The same completions for every trainer."""
    generator = torch.Generator().manual_seed(len(prompts) + trainer.state.global_step)
    ids = torch.randint(0, 250, (len(prompts), PROMPT + COMPLETION), generator=generator).tolist()
    return {
        "prompt_ids": [row[:PROMPT] for row in ids],
        "completion_ids": [row[PROMPT:] for row in ids],
        "logprobs": [[-7.0] * COMPLETION for _ in ids],
    }


def make(kind: str, path: str, work: Path, steps: int, **settings: Any) -> Any:
    """A trainer over the model at `path`; `plain` is TRL's, other kinds are objectives of ours."""
    from trl import GRPOConfig, GRPOTrainer

    from tests.adapters.tiny_trl import make_tokenizer, text_rows
    from trimtab.training import MiniRLConfig, MiniRLTrainer

    generates = settings.pop("generates", False)
    arguments: dict[str, Any] = {
        "output_dir": str(work / "out"), "per_device_train_batch_size": ROWS, "num_generations": ROWS, "max_steps": steps,
        "max_completion_length": 32 if generates else COMPLETION, "report_to": [], "use_cpu": True, "bf16": False, "save_strategy": "no",
        "logging_strategy": "no", "disable_tqdm": True, "gradient_checkpointing": False, "learning_rate": 1e-4, "seed": 0,
    }  # fmt: skip
    if generates:
        arguments["generation_kwargs"] = {"min_new_tokens": 32}
    if kind == "plain":
        trainer: Any = GRPOTrainer
        args = GRPOConfig(loss_type="grpo", scale_rewards="none", **arguments)
    else:
        trainer, args = MiniRLTrainer, MiniRLConfig(objective=kind, **{**arguments, **settings})
    return trainer(
        path, lambda completions, **_: [float(i % 3) for i in range(len(completions))], args=args, train_dataset=text_rows(512),
        processing_class=make_tokenizer(), rollout_func=None if generates else rollout,
    )  # fmt: skip


def paired(values: np.ndarray, base: np.ndarray) -> tuple[float, float, float]:
    """Median ratio within a round, and a 95 % bootstrap interval of it."""
    ratio = values / base
    rng = np.random.default_rng(0)
    draws = np.median(ratio[rng.integers(0, len(ratio), (2000, len(ratio)))], axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(np.median(ratio)), float(low), float(high)


def trainer_figures(work: Path, rounds: int) -> dict[str, tuple[float, float, float]]:
    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=512, bos_token_id=None, eos_token_id=250, pad_token_id=251,
    )  # fmt: skip
    torch.manual_seed(0)
    path = str(work / "llama")
    LlamaForCausalLM(config).save_pretrained(path)
    found = {}
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "plain": ("plain", {}),
        "minirl_step_ratio": ("minirl", {}),
        "ppo_ewma_step_ratio": ("decoupled", {"ewma_centre_of_mass": 8.0}),
    }
    steps = rounds + WARMUP
    times = Turns(list(kinds), steps).run({n: make(k, path, work, steps, **s) for n, (k, s) in kinds.items()})
    for name in list(kinds)[1:]:
        found[name] = paired(times[name], times["plain"])
    own = {"plain": "plain", "minirl_generation_step_ratio": "minirl"}
    times = Turns(list(own), steps).run(
        {n: make(k, path, work, steps, generates=True) for n, k in own.items()}
    )
    found["minirl_generation_step_ratio"] = paired(times["minirl_generation_step_ratio"], times["plain"])
    return found


def replay_figure(rounds: int) -> tuple[float, float, float]:
    """Forward + backward with every router's experts replayed, over the same without, minus 1."""
    from trimtab.objectives import RoutingReplay

    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=WORDS, hidden_size=256, intermediate_size=512, moe_intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, head_dim=64, num_experts=16, num_experts_per_tok=2, norm_topk_prob=True, max_position_embeddings=512,
    )  # fmt: skip
    model = Qwen3MoeForCausalLM(config)
    ids = torch.randint(0, WORDS, (ROWS, PROMPT + COMPLETION))
    replay = RoutingReplay(model)
    with torch.no_grad(), replay.recording() as tape:
        model(input_ids=ids)
    routes = tape.routes(ROWS)

    def bare() -> None:
        model(input_ids=ids, labels=ids).loss.backward()

    def replayed() -> None:
        with replay.replaying(routes):
            bare()

    seconds: dict[Callable[[], None], list[float]] = {bare: [], replayed: []}
    for number in range(rounds + WARMUP):
        for function in (bare, replayed) if number % 2 else (replayed, bare):
            model.zero_grad()
            start = time.process_time()
            function()
            seconds[function].append(time.process_time() - start)
    one, two = (np.array(seconds[f][WARMUP:]) for f in (bare, replayed))
    middle, low, high = paired(two, one)
    return middle - 1, low - 1, high - 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument(
        "--no-cut", action="store_true", help="leave out benchmarks/replay_cut.py, which trains for minutes"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few rounds and a tiny mixture: it checks that everything runs"
    )
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 2
    from benchmarks.replay_cut import cuts

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        found = trainer_figures(Path(name), options.rounds)
    found["replay_overhead_frac"] = replay_figure(options.rounds)
    if not options.no_cut:
        cut, lines = cuts(steps=20, rows=8) if options.quick else cuts()
        found |= cut
        print("\n".join(lines))
    targets = {"minirl_step_ratio": 1.05, "ppo_ewma_step_ratio": 1.45, "replay_overhead_frac": 0.05}
    print(f"{'figure':<32}{'median':>9}{'95 % interval':>20}{'target':>9}")
    for key, (middle, low, high) in found.items():
        print(
            f"{key:<32}{middle:>9.3f}{f'{low:.3f} to {high:.3f}':>20}{targets.get(key, float('nan')):>9.2f}"
        )
    if options.json:
        figures = {key: value[0] for key, value in found.items()}
        intervals = {key: list(value[1:]) for key, value in found.items()}
        print(json.dumps({"figures": figures, "intervals": intervals, "rounds": options.rounds}))


if __name__ == "__main__":
    main()

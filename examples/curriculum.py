"""A GRPOTrainer whose tasks are drawn by their outcomes; offline, on one CPU core.

python examples/curriculum.py
"""

from __future__ import annotations

import os
import sys
from collections import Counter

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TRL_EXPERIMENTAL_SILENCE="1")

from trimtab.adapters.trl import curriculum, watch
from trimtab.training.lab_grpo import lab_trainer

STEPS, TASKS = int(sys.argv[1]) if len(sys.argv) > 1 else 20, 24


def main() -> None:
    """Train the lab's agent on two dozen tasks, four groups of eight a step."""
    trainer = lab_trainer(
        "constrained", "runs/curriculum-trl", steps=STEPS, prompts_per_step=4, logging_strategy="no"
    )
    trainer.train_dataset = trainer.train_dataset.select(range(TASKS))
    tasks = curriculum(trainer)
    run = watch(trainer, "runs/curriculum", reference="off", log_readings=False)
    drawn: Counter[str] = Counter()
    inner = trainer._calculate_rewards

    def counted(inputs, prompts, *rest):  # type: ignore[no-untyped-def]
        drawn.update(prompts[::8])
        return inner(inputs, prompts, *rest)

    trainer._calculate_rewards = counted
    trainer.train()
    run.close()
    waste = tasks.waste
    print(f"{waste.num_groups} groups, {waste.num_failed} failed and {waste.num_solved} solved as a whole")
    rates = dict(zip(trainer.train_dataset["prompt"], tasks.success_rates(), strict=True))
    for prompt, count in drawn.most_common(3) + drawn.most_common()[-3:]:
        print(f"{count:3d} times: {prompt} (success {rates[prompt]:.2f})")


if __name__ == "__main__":
    main()

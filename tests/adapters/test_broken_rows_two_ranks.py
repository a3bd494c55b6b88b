"""Broken episodes under two real ranks: each rank's advantages and token count are those of the batch without them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the trl extra")

from tests.adapters.tiny_trl import tiny_model
from tests.warm import ranks_finished

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, sys
from pathlib import Path
import torch
from trl import GRPOTrainer
from tests.adapters.tiny_trl import grpo_config, make_tokenizer, text_rows
from tests.support import leave_group
from trimtab.adapters.trl import exclude_broken

BROKEN = (1, 4, 5, 6)  # of the eight completions of a step: one of the first group, three of the second

work = Path(sys.argv[2])
config = grpo_config(work, max_steps=1, ddp_backend="gloo", num_generations=4)
trainer = GRPOTrainer(sys.argv[1], lambda completions, **_: [float(len(c) % 7) for c in completions],
                      args=config, train_dataset=text_rows(16), processing_class=make_tokenizer())
rank, size = trainer.accelerator.process_index, trainer.accelerator.num_processes
calculate, generate = trainer._calculate_rewards, trainer._generate_and_score_completions
record = {"size": size}

def rewards(inputs, *args, **kwargs):
    for row, one in enumerate(inputs):  # rank 0 has rows 0 to 3, rank 1 rows 4 to 7
        one["episode_valid"] = rank * len(inputs) + row not in BROKEN
    result = calculate(inputs, *args, **kwargs)
    record["rewards"] = result.squeeze(1).tolist()
    return result

def scored(inputs):
    output = generate(inputs)
    record["plain_items"] = int(output["num_items_in_batch"])
    record["lengths"] = output["completion_mask"].sum(dim=1).tolist()
    return output

trainer._calculate_rewards, trainer._generate_and_score_completions = rewards, scored
broken = exclude_broken(trainer)
outer = trainer._generate_and_score_completions

def seen(inputs):
    output = outer(inputs)
    record.update(advantages=output["advantages"].tolist(), items=int(output["num_items_in_batch"]),
                  trained=output["tool_mask"].any(dim=1).tolist(), excluded=broken.num_excluded)
    return output

trainer._generate_and_score_completions = seen
trainer.train()
(work / f"record.{rank}").write_text(json.dumps(record))
leave_group()
"""
ENVIRONMENT = {
    **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
}  # fmt: skip


def test_two_ranks_agree_on_the_batch_without_broken_rows(tmp_path: Path) -> None:
    import torch

    model = tiny_model(tmp_path / "model")[0]
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = ranks_finished([str(script), model, str(tmp_path)], 2, ENVIRONMENT)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"record.{rank}").read_text()) for rank in (0, 1))
    assert first["size"] == 2
    assert first["rewards"] == second["rewards"]
    rewards = torch.tensor(first["rewards"])
    voting = [0, 2, 3]  # row 7 is alone in its group
    values = rewards[voting]
    expected = torch.zeros(8)
    expected[voting] = (values - values.mean()) / (values.std() + 1e-4)
    assert first["advantages"] + second["advantages"] == expected.tolist()
    assert any(first["advantages"])
    assert first["trained"] + second["trained"] == [row not in (1, 4, 5, 6) for row in range(8)]
    removed = first["lengths"][1] + sum(second["lengths"][:3])
    assert first["items"] == first["plain_items"] - removed == second["items"]
    assert first["excluded"] == second["excluded"] == 4

"""A real GRPOTrainer that saves checkpoints and crashes: the post-mortem names the one to resume from, and it is a go."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the trl extra")

from tests.support import cli, running
from tests.warm import WarmProcess
from trimtab.report.post_mortem import read_post_mortem

ROOT = Path(__file__).parents[2]
CRASH = """
import sys
from pathlib import Path
from trl import GRPOTrainer
from tests.adapters.tiny_trl import grpo_config, random_reward, text_rows, tiny_model
from trimtab.adapters.trl import watch

folder = Path(sys.argv[1])

def reward(completions, **_):
    if trainer.state.global_step >= 3:
        raise MemoryError("the judge's cache")
    return random_reward(completions)

path, tokenizer = tiny_model(folder / "model")
args = grpo_config(folder, max_steps=6, save_strategy="steps", save_steps=2)
trainer = GRPOTrainer(path, reward, args=args, train_dataset=text_rows(40), processing_class=tokenizer)
watch(trainer, folder / "run", min_tokens=20, min_trajectories=2)
trainer.train()
"""


def test_a_crashed_trainer_says_from_where_to_go_on(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(CRASH)
    with running(
        [sys.executable, str(script), str(tmp_path)], start=WarmProcess, env=dict(os.environ)
    ) as child:
        _, err = child.communicate()
    assert child.returncode == 1, err
    assert err.count("Traceback") == 1
    assert "MemoryError: the judge's cache" in err

    record = read_post_mortem(tmp_path / "run")
    checkpoint = tmp_path / "out" / "checkpoint-2"
    assert record is not None
    assert (record["ending"]["kind"], record["ending"]["phase"]) == ("out of memory", "reward")
    assert "train.py" in record["ending"]["line"]
    assert record["try_first"][0]["do"].startswith("call the reward in smaller batches")
    assert record["try_first"][-1]["command"] == [
        "trimtab",
        "resume-check",
        str(tmp_path / "run"),
        str(checkpoint),
    ]
    assert {"torch", "trl", "transformers", "python"} <= record["versions"].keys()
    assert [one["step"] for one in record["checkpoints"]] == [2]

    result = json.loads(cli("resume-check", tmp_path / "run", checkpoint, "--json").stdout)
    assert result["verdict"] == "go", result["headline"]
    assert {row["name"] for row in result["checks"] if row["state"] != "go"} == {"configuration"}
    settings = tmp_path / "next.json"
    settings.write_text(json.dumps({"learning_rate": 1e-3, "num_generations": 8, "seed": 1}))
    changed = cli("resume-check", tmp_path / "run", checkpoint, "--config", settings)
    assert changed.returncode == 1
    assert "num_generations is 8 now and was 4" in changed.stdout.splitlines()[0]
    weights = checkpoint / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)
    cut = cli("resume-check", tmp_path / "run", checkpoint)
    assert (cut.returncode, "model.safetensors is cut" in cut.stdout.splitlines()[0]) == (1, True)

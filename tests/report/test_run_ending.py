"""How a run ended and what it was: real processes that finish, raise, are interrupted, and are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support import cli, running
from tests.warm import WarmProcess
from trimtab.report.html.run_page import render_html
from trimtab.report.html.run_payload import build_payload
from trimtab.report.run_view import load_view
from trimtab.runs import read_header

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    "SECRET_OF_MINE": "do-not-store",
}
LOOP = """
import math, os, sys, time, trimtab
how = sys.argv[1]
run = trimtab.open_run(sys.argv[2], config={"identity": {"model": "tiny", "beta": 0.04}})
for step in range(4):
    run.flush(step, {"reward": 0.5, "loss": math.nan if how == "nan" and step > 1 else 1.0})
if how == "raise":
    raise ValueError("the reward function broke")
if how == "wait":
    print("ready", flush=True)
    time.sleep(120)
if how in ("finish", "nan"):
    run.close()
"""


def ended(tmp_path: Path, how: str, send: int | None = None) -> str:
    """The sentence of a real process that ended in this way."""
    script, folder = tmp_path / "loop.py", tmp_path / how
    script.write_text(LOOP)
    command = [sys.executable, str(script), "wait" if send else how, str(folder), "--hf-token", "hf_abcdef"]
    with running(command, env=ENVIRONMENT, limit=120) as child:
        if send:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            time.sleep(0.2)
            child.send_signal(send)
        child.wait()
    assert send not in (signal.SIGTERM, signal.SIGKILL) or child.returncode == -send
    return json.loads(cli("diagnose", folder, "--json").stdout)["ending"]["text"]


def test_five_ends_are_five_sentences(tmp_path):
    """Issue 17.17: finished, raised, NaN, interrupted and killed runs looked the same."""
    sentences = [
        ended(tmp_path, "finish"),
        ended(tmp_path, "raise"),
        ended(tmp_path, "nan"),
        ended(tmp_path, "open"),
        ended(tmp_path, "kill", signal.SIGKILL),
        ended(tmp_path, "term", signal.SIGTERM),
        ended(tmp_path, "int", signal.SIGINT),
    ]
    assert sentences[0] == "finished after step 3"
    expected = (
        "ended after step 3 by an exception, ValueError: the reward function broke, at loop.py:8 in <module>"
    )
    assert sentences[1] == expected
    assert sentences[2] == "finished after step 3, with NaN or infinite values since step 2: metrics/loss"
    assert sentences[3] == "exited after step 3 and did not close the run"
    assert re.match(r"vanished after step 3: process \d+ on \S+ is gone", sentences[4])
    assert sentences[5] == "ended after step 3 by SIGTERM, at loop.py:11 in <module>"
    assert sentences[6] == "ended after step 3 by SIGINT, at loop.py:11 in <module>"
    assert "ended after step 3 by an exception" in cli("diagnose", tmp_path / "raise").stdout
    assert "vanished after step 3" in cli("watch", tmp_path / "kill", "--once").stdout
    assert "by SIGTERM" in render_html(build_payload([load_view(tmp_path / "term")]))


def test_identity_opens_the_diagnosis_and_holds_no_secret(tmp_path):
    """Issue 17.17: neither model nor command, commit, host or versions were recorded."""
    ended(tmp_path, "finish")
    identity = read_header(tmp_path / "finish")["config"]["identity"]
    assert identity["model"] == "tiny"
    assert "loop.py finish" in identity["command"]
    assert identity["command"].endswith("--hf-token ***")
    assert {"host", "python", "versions", "git_commit", "cpus"} <= identity.keys()
    assert not re.search("hf_abcdef|do-not-store", (tmp_path / "finish" / "run.json").read_text())
    assert "model tiny, beta 0.04" in cli("diagnose", tmp_path / "finish").stdout
    page = render_html(build_payload([load_view(tmp_path / "finish")]))
    assert "model tiny, beta 0.04" in page
    assert "loop.py finish" in page


def test_a_running_process_is_said_to_run(tmp_path):
    import trimtab

    run = trimtab.open_run(tmp_path / "run")
    run.flush(0)
    assert "is running, after step 0" in cli("diagnose", tmp_path / "run").stdout
    run.close()
    assert "run finished after step 0" in cli("diagnose", tmp_path / "run").stdout


TRAINED = """
import sys
from pathlib import Path
from transformers import TrainerCallback
from trl import GRPOTrainer
from tests.adapters.tiny_trl import grpo_config, random_reward, text_rows, tiny_model
from trimtab.adapters.trl import watch

how, folder = sys.argv[1], Path(sys.argv[2])

def reward(completions, **_):
    if how == "reward" and trainer.state.global_step >= 1:
        raise KeyError("no answer in the row")
    return random_reward(completions)

class Broken(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if how == "callback" and state.global_step >= 2:
            raise RuntimeError("the tracker is gone")

path, tokenizer = tiny_model(folder / "model")
trainer = GRPOTrainer(path, reward, args=grpo_config(folder), train_dataset=text_rows(), processing_class=tokenizer, callbacks=[Broken()])
watch(trainer, folder / "run", min_tokens=20, min_trajectories=2)
trainer.train()
"""


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (
            "reward",
            "ended after step 1 by an exception, KeyError: 'no answer in the row', at train.py:13 in reward",
        ),
        ("callback", "by an exception, RuntimeError: the tracker is gone, at train.py:19 in on_step_end"),
        ("none", "finished after step 3"),
    ],
)
def test_training_under_trl_says_what_raised(tmp_path, how, expected):
    """Issue 17.17: a raised reward function and a raised callback looked like a finished run."""
    pytest.importorskip("trl", reason="needs the trl extra")
    (tmp_path / "train.py").write_text(TRAINED)
    command = [sys.executable, str(tmp_path / "train.py"), how, str(tmp_path)]
    with running(command, 240, WarmProcess, env=ENVIRONMENT) as child:
        _, error = child.communicate()
    assert (child.returncode == 0) == (how == "none"), error[-2000:]
    result = json.loads(cli("diagnose", tmp_path / "run", "--json").stdout)
    assert expected in result["ending"]["text"]
    assert result["identity"]["learning_rate"] == 1e-3
    assert result["identity"]["group_size"] == 4
    assert "beta" in result["identity"]

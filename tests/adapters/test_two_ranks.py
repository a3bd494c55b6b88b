"""Two processes under accelerate: each rank writes its shard, the views merge them; and kill -9 of a watched TRL run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the trl extra")

from tests.adapters.tiny_trl import tiny_model
from tests.support import finished, running
from tests.warm import WarmProcess
from trimtab.report.run_view import load_view

ROOT = Path(__file__).parents[2]
SCRIPT = """
import hashlib, json, os, sys
from pathlib import Path
from trl import GRPOTrainer
from tests.adapters.tiny_trl import grpo_config, random_reward, text_rows, make_tokenizer
from tests.support import leave_group
from trimtab.adapters.trl import watch

def train(model, work, steps, resume, **merged):
    changes = {"ddp_backend": "gloo"} if int(os.environ.get("WORLD_SIZE", 1)) > 1 else {}
    config = grpo_config(work, max_steps=steps, save_strategy="steps", save_steps=1, save_total_limit=4, learning_rate=1e-2, **changes)
    trainer = GRPOTrainer(model, random_reward, args=config, train_dataset=text_rows(64), processing_class=make_tokenizer())
    (work / f"world.{trainer.accelerator.process_index}").write_text(str(trainer.accelerator.num_processes))
    run = watch(trainer, work / "run", reference_rows=1.0, min_tokens=20, min_trajectories=2, state_every=1, strict=True, **merged)
    inner = run.flush
    def flush(step, *a, **k):
        out = inner(step, *a, **k)
        os.write(1, f"flushed {step}\\n".encode())  # whole: print writes in pieces where nothing is buffered
        return out
    run.flush = flush
    found = sorted(((whole(c), str(c)) for c in (work / "out").glob("checkpoint-*")), reverse=True) if resume else []
    trainer.train(resume_from_checkpoint=found[0][1] if found and found[0][0] > 0 else None)
    if merged:
        run.close()
    whole_model = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in trainer.accelerator.unwrap_model(trainer.model).parameters()))
    (work / f"weights.{trainer.accelerator.process_index}").write_text(whole_model.hexdigest())

def whole(checkpoint):  # kill -9 may leave a half-written checkpoint; transformers writes trainer_state.json last
    try:
        return json.loads((checkpoint / "trainer_state.json").read_text())["global_step"]
    except (OSError, ValueError, KeyError):
        return -1

train(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "resume")
if sys.argv[4] == "merge":  # the same training once more, in the same processes
    again = Path(sys.argv[2]) / "again"
    again.mkdir(exist_ok=True)
    train(sys.argv[1], again, int(sys.argv[3]), False, merge="folder", guard="observe")
leave_group()  # gloo's threads may abort a process that exits with the group alive
"""
ENVIRONMENT = {
    **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))[0]


def test_two_ranks_write_shards_and_the_views_merge_them(model, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        str(script),
    ]
    done = finished([*command, model, str(tmp_path), "3", "merge"], cwd=ROOT, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert {path.name: path.read_text() for path in tmp_path.glob("world.*")} == {
        "world.0": "2",
        "world.1": "2",
    }
    view = load_view(tmp_path / "run")
    assert view.reader.ranks == [0, 1]
    assert [row["step"] for row in view.steps] == [1, 2, 3]
    per_rank = [
        sum(r["slices"]["all"]["n_tokens"] for r in view.reader.rows("steps", rank)) for rank in (0, 1)
    ]
    assert sum(row["slices"]["all"]["n_tokens"] for row in view.steps) == sum(per_rank)
    assert min(per_rank) > 0
    drift = view.series("drift/p99", "all")
    assert [r.n_tokens for r in drift] == [row["slices"]["all"]["n_tokens"] for row in view.steps]
    assert drift[0].value < 1e-4 < drift[-1].value
    assert not view.errors
    merged_live_as_in_the_view(tmp_path)


def merged_live_as_in_the_view(work: Path) -> None:
    """The same training with `merge="folder"`: the leading rank's own readings are those of both ranks."""
    weights = [path.read_text() for path in sorted(work.glob("**/weights.*"))]
    assert len(weights) == 4
    assert len(set(weights)) == 1  # merging changes nothing of the training, on no rank
    view, merged = load_view(work / "run"), load_view(work / "again" / "run")
    live = {(row["step"], row["slice"]): row for row in merged.reader.rows("readings", 0)}
    assert not [row for row in merged.reader.rows("readings", 1) if row["n_tokens"]]
    compared = 0
    for step in (1, 2, 3):
        row = live[step, "all"]
        of_ranks = [
            r["slices"]["all"]["n_tokens"]
            for k in (0, 1)
            for r in merged.reader.rows("steps", k)
            if r["step"] == step
        ]
        assert row["n_tokens"] == sum(of_ranks) > max(of_ranks)
        for key in ("drift/p95", "drift/p99", "entropy/mean"):
            (reading,) = [r for r in view.series(key, "all") if r.step == step]
            assert row["values"][key] == pytest.approx(reading.value, rel=1e-6)
            compared += 1
    assert compared == 9
    rows = merged.reader.rows("steps", 0)
    assert [row["merge"].keys() - {"through"} for row in rows] == [set()] * 3  # none missing, late or lost
    actions = [[(r["step"], r["action"]) for r in merged.reader.rows("actions", k)] for k in (0, 1)]
    assert actions[0] == actions[1]
    assert not merged.errors


def test_kill_9_of_a_watched_trl_run(model, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    rng, seen = random.Random(1), 0
    for attempt in range(4):
        last = attempt == 3
        target = 400 if not last else seen + 3
        command = [sys.executable, str(script), model, str(tmp_path), str(target), "resume"]
        flushed = 0
        with running(
            command, 130, WarmProcess, stderr=subprocess.DEVNULL, cwd=ROOT, env=ENVIRONMENT
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("flushed") and line.endswith("\n"):
                    flushed += 1
                    seen = int(line.split()[1])
                    if not last and flushed == 4:
                        time.sleep(rng.uniform(0.0, 0.2))
                        process.send_signal(signal.SIGKILL)
            process.wait()
        assert last or flushed >= 4
        view = load_view(tmp_path / "run")
        steps = [row["step"] for row in view.steps]
        assert steps == list(range(1, steps[-1] + 1))
        assert steps[-1] >= seen
        seen = steps[-1]
    assert process.returncode == 0
    assert view.reader.num_sessions == 4
    assert view.reader.num_malformed == 0
    assert {row["session"] for row in view.steps} == {0, 1, 2, 3}
    assert not view.errors

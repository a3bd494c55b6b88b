"""Files written by the packages themselves. Run at least once with all of them installed (tensorboard 2.21, wandb 0.31,
mlflow 3.17, trackio 0.43); where a package is missing, its test is skipped by name."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from trimtab.errors import MetricLogError
from trimtab.metric_logs import read_metric_log

VALUES = [0.5, 0.25, math.nan, math.inf, 0.125]
WANT = [(step, {"reward": 0.25 * step, "kl": value}) for step, value in enumerate(VALUES)]


def check(log, format, want=WANT):
    assert (log.format, log.framework) == (format, "trl")
    assert [(s, {k: repr(float(v)) for k, v in r.items()}) for s, r in log.rows] == [
        (s, {k: repr(v) for k, v in r.items()}) for s, r in want
    ]


def script(code, tmp_path, **environment):
    """Run in a process of its own: these packages start services and touch global state."""
    done = subprocess.run(
        [sys.executable, "-c", f"import math\nVALUES = {VALUES!r}\n".replace("nan", "math.nan").replace("inf", "math.inf") + code],
        cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_tensorboard_through_torch(tmp_path):
    pytest.importorskip("tensorboard", reason="pip install tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    for life in (VALUES[:3], VALUES[3:]):  # a restart writes a second file
        with SummaryWriter(str(tmp_path), filename_suffix=f".{len(life)}") as writer:
            for value in life:
                step = next(i for i, v in enumerate(VALUES) if repr(v) == repr(value))
                writer.add_scalar("train/reward", 0.25 * step, step)
                writer.add_scalar("train/kl", value, step, new_style=True)
            writer.add_text("note", "no number", 0)
            writer.add_histogram("weights", np.arange(9.0), 0)
    check(read_metric_log(tmp_path), "tensorboard")
    first = sorted(tmp_path.glob("*tfevents*"))[0]
    first.write_bytes(first.read_bytes()[:-5])
    assert read_metric_log(tmp_path).excluded == {"event files that end in a damaged record": 1}


def test_tensorboard_agrees_with_its_own_reader(tmp_path):
    pytest.importorskip("tensorboard", reason="pip install tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray
    from torch.utils.tensorboard import SummaryWriter

    random = np.random.default_rng(0)
    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(300):
            writer.add_scalar("loss", random.normal(), step * 7)
            writer.add_scalar("grad_norm", random.normal(), step * 7, new_style=True)
    theirs = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    want = {
        "loss": [(e.step, e.value) for e in theirs.Scalars("loss")],
        "grad_norm": [(e.step, float(make_ndarray(e.tensor_proto))) for e in theirs.Tensors("grad_norm")],
    }
    for key, values in want.items():
        assert len(values) == 300
        assert [(step, row[key]) for step, row in read_metric_log(tmp_path).rows] == values


def test_wandb_offline(tmp_path):
    """Large texts force records over several of the file's blocks."""
    pytest.importorskip("wandb", reason="pip install wandb")
    script(
        "import wandb\nrun = wandb.init(project='p', mode='offline')\n"
        "for i, v in enumerate(VALUES):\n"
        "    run.log({'train/reward': 0.25 * i, 'train/kl': v, 'train/global_step': i, 'text': 'x' * 20_000})\nrun.finish()\n",
        tmp_path, WANDB_SILENT="true",
    )  # fmt: skip
    check(read_metric_log(tmp_path), "wandb")
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    check(read_metric_log(path), "wandb")
    path.write_bytes(path.read_bytes()[:60_000])
    cut = read_metric_log(path)
    assert 0 < len(cut.rows) < 5
    assert cut.excluded == {"the file ends in a damaged record": 1}


MLFLOW = """
import mlflow
mlflow.set_tracking_uri({uri!r})
for name, scale in (("old", 4.0), ("new", 0.25)):
    with mlflow.start_run(run_name=name):
        for i, v in enumerate(VALUES):
            mlflow.log_metrics({{"train/reward": scale * i, "train/kl": v}}, step=i)
"""


@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_mlflow(tmp_path, kind):
    pytest.importorskip("mlflow", reason="pip install mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db" if kind == "sqlite" else f"file://{tmp_path}/mlruns"
    script(MLFLOW.format(uri=uri), tmp_path, MLFLOW_ALLOW_FILE_STORE="true")
    path = tmp_path / ("mlflow.db" if kind == "sqlite" else "mlruns")
    log = read_metric_log(path)
    check(log, "mlflow")
    if kind == "files":
        assert [count for reason, count in log.excluded.items() if reason.startswith("older runs")] == [1]
    else:
        assert any(note.startswith("2 run") for note in log.notes)
        assert read_metric_log(f"{path}#old").rows[1][1]["reward"] == 4.0
        with pytest.raises(MetricLogError, match="has no run 'older'; it has old, new"):
            read_metric_log(f"{path}#older")


def test_trackio(tmp_path):
    pytest.importorskip("trackio", reason="pip install trackio")
    script(
        "import trackio\nfor name, scale in (('old', 4.0), ('new', 0.25)):\n"
        "    trackio.init(project='p', name=name)\n    for i, v in enumerate(VALUES):\n"
        "        trackio.log({'train/reward': scale * i, 'train/kl': v}, step=i)\n    trackio.finish()\n",
        tmp_path, TRACKIO_DIR=str(tmp_path / "t"),
    )  # fmt: skip
    path = tmp_path / "t" / "p.db"
    check(read_metric_log(path), "trackio")
    assert read_metric_log(f"{path}#old").rows[1][1]["reward"] == 4.0

"""Each tracker's numbers are the run store's: a run is recorded with all four, and their own files are read back.

One child process records, as trackio reads its folder off the environment once.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.sinks import readback
from tests.support import running
from trimtab.measure.state.blocks import unpack_states

for library in ("wandb", "tensorboard", "mlflow", "sqlalchemy", "trackio"):
    pytest.importorskip(library, reason="trackers are in the extras wandb, tensorboard, mlflow and trackio")

RECORD = """
import math, sys
import numpy as np
from pathlib import Path
import trimtab
from tests.support import make_batch
from trimtab.sinks import sink_feed
sink_feed.bound = lambda name: 150.0  # seconds: MLflow's first tables take long on a busy machine
from trimtab.sinks import MlflowSink, SelectedNames, TensorBoardSink, TrackioSink, WandbSink
home = Path(sys.argv[1])
rng = np.random.default_rng(0)
sinks = [TensorBoardSink(home / "tb"), WandbSink("project", folder=home / "wandb", mode="offline"),
         SelectedNames(MlflowSink(f"sqlite:///{home / 'mlflow.db'}"), ["trimtab/metrics/*", "trimtab/post_tool/*"]), TrackioSink("project", folder=home / "trackio")]
odd = {5: math.nan, 6: math.inf, 7: -math.inf}
with trimtab.open_run(home / "run", strict=True, sinks=sinks) as run:
    for step in range(34):
        batch = make_batch(rng, sequences=32, step=step, mismatch=0.02, post_scale=0.05 * 2.0 ** max(0, step - 24))
        run.observe(batch)
        run.flush(step, {"reward": 0.5 + 0.01 * rng.normal(), "loss": odd.get(step, rng.normal()), "odd [name]": 0.1 * step})
    assert run.incidents
    counts = run.sink_counts
print(counts)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("trackers")
    offline = {"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_SILENT": "true", "HF_HUB_OFFLINE": "1"}
    with running([sys.executable, "-c", RECORD, str(home)], 200, env=os.environ | offline) as child:
        out, err = child.communicate(timeout=200)
    assert child.returncode == 0, out + err
    return home


@pytest.fixture(scope="module")
def stored(home: Path) -> readback.Numbers:
    numbers = readback.store_numbers(home / "run")
    assert len(numbers) > 5_000
    return numbers


def differences(ours: readback.Numbers, theirs: readback.Numbers) -> list[object]:
    names = sorted(ours.keys() ^ theirs.keys())
    return [
        *names,
        *((k, ours[k], theirs[k]) for k in ours if k in theirs and not readback.same(ours[k], theirs[k])),
    ]


def test_wandb_has_every_number_of_the_store(home: Path, stored: readback.Numbers) -> None:
    assert not differences(stored, readback.wandb_numbers(home / "wandb"))[:5]


def test_trackio_has_every_number_of_the_store(home: Path, stored: readback.Numbers) -> None:
    assert not differences(stored, readback.trackio_numbers(home / "trackio" / "project.db"))[:5]


def test_tensorboard_has_every_number_of_the_store_as_float32(home: Path, stored: readback.Numbers) -> None:
    with np.errstate(over="ignore"):
        rounded = {key: float(np.float32(value)) for key, value in stored.items()}
    assert not differences(rounded, readback.tensorboard_numbers(home / "tb"))[:5]


def test_mlflow_has_every_finite_number_and_counts_the_infinite_ones(
    home: Path, stored: readback.Numbers
) -> None:
    theirs = readback.mlflow_numbers(home / "mlflow.db")
    (odd,) = {name for _, name in theirs if "odd" in name}
    assert odd.startswith("trimtab/metrics/odd _name_.")
    named = {
        (step, odd if "odd" in name else name): value
        for (step, name), value in stored.items()
        if name.startswith(("trimtab/metrics/", "trimtab/post_tool/"))
    }
    infinite = [key for key, value in named.items() if math.isinf(value)]
    assert not differences({k: v for k, v in named.items() if k not in infinite}, theirs)[:5]
    end = json.loads((home / "run" / "end.r0.s0.jsonl").read_text().splitlines()[-1])
    counts = end["detail"]["sinks"]
    assert counts["mlflow"]["refused"] == len(infinite) == 2
    assert all(one["dropped"] == one["failed"] == 0 and one["written"] >= 34 for one in counts.values())
    assert counts["wandb"]["refused"] == counts["trackio"]["refused"] == counts["tensorboard"]["refused"] == 0


def stored_histogram(home: Path) -> tuple[int, np.ndarray, object]:
    """The last stored state's drift sketch of the slice `all`: step, and counts by bucket."""
    row = json.loads((home / "run" / "states.r0.s0.jsonl").read_text().splitlines()[-1])
    sketch = unpack_states(row["states"])["all"].summaries["drift/sketch"]
    return row["last"], sketch.count, sketch


@pytest.mark.parametrize("sink", ["wandb", "trackio", "tensorboard"])
def test_histograms_have_the_counts_of_the_sketch(home: Path, sink: str) -> None:
    step, count, sketch = stored_histogram(home)
    name = "trimtab/all/drift/histogram"
    if sink == "wandb":
        one = next(
            r[name] for r in readback.wandb_rows(home / "wandb") if r["trimtab/step"] == step and name in r
        )
        bins, values = one["bins"], one["values"]
    elif sink == "trackio":
        with sqlite3.connect(home / "trackio" / "project.db") as file:
            rows = [
                json.loads(t) for (t,) in file.execute(f"select metrics from metrics where step = {step}")
            ]
        one = next(row[name] for row in rows if name in row)
        bins, values = one["bins"], one["values"]
    else:
        proto = readback.accumulate(home / "tb").Histograms(name)[-1].histogram_value
        assert (proto.min, proto.max, proto.num) == (sketch.min, sketch.max, count)
        assert proto.sum == pytest.approx(sketch.mean() * count)
        bins, values = proto.bucket_limit, proto.bucket[1:]
    assert sum(values) == count
    assert len(bins) == len(values) + 1 <= 513
    assert sorted(bins) == list(bins)
    below_zero = sum(v for v, high in zip(values, bins[1:], strict=True) if high <= 0)
    exact = sketch.share_below(0.0) * count
    assert below_zero == pytest.approx(exact, abs=1e-6 * count)


def test_incidents_and_alarms_are_texts_of_each_tracker(home: Path) -> None:
    texts = [row.get("trimtab/events", "") for row in readback.wandb_rows(home / "wandb")]
    opened = [text for text in texts if "incident opened" in text]
    assert opened
    tags = readback.accumulate(home / "tb").Tags()["tensors"]
    assert {"trimtab/incident/text_summary", "trimtab/alarm/text_summary"} <= set(tags)
    with sqlite3.connect(home / "mlflow.db") as file:
        events = [
            text
            for key, text in file.execute("select key, value from tags")
            if key.startswith("trimtab.event.")
        ]
    assert any("incident opened" in text for text in events)
    assert any("the run ended: finished" in text for text in events)
    with sqlite3.connect(home / "trackio" / "project.db") as file:
        alerts = file.execute("select title, level from alerts").fetchall()
    assert any(title.startswith("incident opened") for title, _ in alerts)
    assert len(alerts) >= len(opened)

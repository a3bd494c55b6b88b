"""What do sinks cost, and do their files hold what the run store holds? Rows to each tracker in flat memory.

    python benchmarks/sinks.py [--json] [--quick | --run [--rows 50000] [--sinks tensorboard,wandb,mlflow,trackio]]

Without `--run` and `--quick` it prints the committed results, `results/sinks.json`. `--run` measures anew and, with all trackers and
rows, replaces them; MLflow alone takes 45 minutes for 50,000 rows. `--quick` measures 300 rows of TensorBoard and trackio.

Each tracker gets `--rows` steps of four numbers, NaN and infinity among them, in a process of its own, and its own files are read back.
Figures: `sink_equal_frac` (numbers equal to what was sent, of all; float32 for TensorBoard; infinity is left out for MLflow),
`sink_growth_bytes_<sink>` (resident memory of the process at the end over that after a fifth of the rows), `sink_rows_per_s_<sink>`, and
`flush_added_s` (median wall seconds of a flush with all trackers attached over one without; `flush_s` is the latter).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
for _name, _value in {
    "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_DISABLE_TELEMETRY": "true", "HF_HUB_OFFLINE": "1",
}.items():  # fmt: skip
    os.environ[_name] = _value

import numpy as np  # noqa: E402

import trimtab  # noqa: E402
from tests.sinks import readback  # noqa: E402
from tests.support import make_batch  # noqa: E402
from trimtab.sinks import (  # noqa: E402
    MlflowSink,
    Point,
    Sink,
    SinkRun,
    StepRecord,
    TensorBoardSink,
    TrackioSink,
    WandbSink,
)

TRACKERS = ("tensorboard", "wandb", "mlflow", "trackio")
RESULTS = Path(__file__).parent / "results" / "sinks.json"
ROWS, QUICK_ROWS, QUICK_TRACKERS = 50_000, 300, ("tensorboard", "trackio")
ODD = {7: math.nan, 11: math.inf, 13: -math.inf}


def sink_of(name: str, home: Path) -> Sink:
    """The sink that writes below `home`."""
    if name == "mlflow":
        return MlflowSink(f"sqlite:///{home / 'mlflow.db'}")
    folder = home / name
    return {
        "tensorboard": TensorBoardSink,
        "wandb": lambda f: WandbSink(folder=f),
        "trackio": lambda f: TrackioSink(folder=f),
    }[name](folder)


def records(rows: int) -> Iterator[StepRecord]:
    """Steps of four numbers; every hundredth has one that is not finite."""
    rng = np.random.default_rng(0)
    for step in range(rows):
        values = [float(f"{value:.7g}") for value in rng.normal(size=4)]
        values[3] = ODD.get(step % 100, values[3])
        points = tuple(Point("post_tool", f"benchmark/{i}", value) for i, value in enumerate(values))
        yield StepRecord(step, 1.7e9 + step, points)


def resident() -> int:
    """Bytes of resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def feed(name: str, rows: int, home: Path) -> dict[str, float]:
    """Write all rows; memory after a fifth and at the end, and seconds."""
    sink = sink_of(name, home)
    sink.open(SinkRun("0123456789abcdef", "run", home, {}))
    begin, early, refused = time.perf_counter(), 0, 0
    for record in records(rows):
        refused += sink.write(record)
        if record.step == rows // 5:
            sink.flush()
            early = resident()
    sink.flush()
    late = resident()
    sink.close()
    return {"growth": late - early, "seconds": time.perf_counter() - begin, "refused": refused}


def equal(name: str, rows: int, home: Path) -> tuple[int, int]:
    """Numbers that are equal in the tracker's files, and numbers that were sent."""
    theirs = {
        "tensorboard": lambda: readback.tensorboard_numbers(home / name),
        "wandb": lambda: readback.wandb_numbers(home / name),
        "mlflow": lambda: readback.mlflow_numbers(home / "mlflow.db"),
        "trackio": lambda: readback.trackio_numbers(home / name / "trimtab.db"),
    }[name]()
    same = total = 0
    for record in records(rows):
        for point in record.points:
            if name == "mlflow" and math.isinf(point.value):
                continue
            value = float(np.float32(point.value)) if name == "tensorboard" else point.value
            total += 1
            same += readback.same(value, theirs.get((record.step, point.name), math.e))
    return same, max(total, len(theirs))  # one too many counts as well


def flush_seconds(folder: Path, names: list[str], steps: int) -> float:
    """Median wall seconds of observe and flush, without the first fifth of the steps."""
    rng, taken = np.random.default_rng(0), []
    batches = [make_batch(rng, step=step, mismatch=0.02) for step in range(steps)]
    with trimtab.open_run(
        folder, strict=True, sinks=[sink_of(name, folder.parent / "live") for name in names]
    ) as run:
        for step, batch in enumerate(batches):
            begin = time.perf_counter()
            run.observe(batch)
            run.flush(step, {"reward": 0.5})
            taken.append(time.perf_counter() - begin)
            time.sleep(0.1)  # the rest of a step: the trackers work meanwhile, as in training
    return statistics.median(taken[steps // 5 :])


def measured(rows: int, names: list[str], *, quick: bool) -> dict[str, Any]:
    """Figures of a run with each tracker, and of a flush with all of them."""
    figures: dict[str, Any] = {}
    same = total = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in [*names, "flush"]:
            home = Path(folder) / name
            home.mkdir()
            out = in_child(name, home, rows, names, quick=quick)
            if name == "flush":
                figures |= {key: round(value, 5) for key, value in out.items()}
                continue
            figures[f"sink_rows_{name}"] = rows
            figures[f"sink_growth_bytes_{name}"] = out["growth"]
            figures[f"sink_rows_per_s_{name}"] = round(rows / out["seconds"], 1)
            one_same, one_total = equal(name, rows, home)
            same, total = same + one_same, total + one_total
            figures[f"sink_equal_frac_{name}"] = one_same / one_total
    return figures | {"sink_equal_frac": same / total}


def in_child(name: str, home: Path, rows: int, names: list[str], *, quick: bool) -> dict[str, Any]:
    """What a process of its own measured."""
    options = ["--rows", str(rows), "--sinks", ",".join(names), *(["--quick"] * quick)]
    done = subprocess.run(
        [sys.executable, __file__, "--child", name, str(home), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{name}: {done.stderr[-2_000:]}")
    lines = reversed(done.stdout.splitlines())
    return dict(json.loads(next(line for line in lines if line.startswith("{"))))


def child(name: str, home: Path, rows: int, names: list[str], *, quick: bool) -> dict[str, float]:
    """What a child process measures."""
    if name != "flush":
        return feed(name, rows, home)
    steps = 10 if quick else 100
    alone = flush_seconds(home / "alone", [], steps)
    fed = flush_seconds(home / "fed", names, steps)
    return {"flush_s": alone, "flush_added_s": fed - alone}


def main() -> None:
    """Print the figures; with `--json` as the last line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a small part, measured now")
    parser.add_argument("--run", action="store_true", help="measure anew")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--sinks")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    rows = args.rows or (QUICK_ROWS if args.quick else ROWS)
    names = args.sinks.split(",") if args.sinks else list(QUICK_TRACKERS if args.quick else TRACKERS)
    if args.child:
        print(json.dumps(child(args.child[0], Path(args.child[1]), rows, names, quick=args.quick)))
        return
    if args.quick or args.run:
        results: dict[str, Any] = {"figures": measured(rows, names, quick=args.quick)}
        if not args.quick and rows == ROWS and names == list(TRACKERS):
            results["about"] = f"python benchmarks/sinks.py --run, trimtab {trimtab.__version__}"
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    elif args.rows or args.sinks:
        parser.error("--rows and --sinks need --run or --quick")
    else:
        results = json.loads(RESULTS.read_text())
        print(results["about"])
    for key, value in results["figures"].items():
        print(f"{key:32} {value}")
    if args.json:
        print(json.dumps({"figures": results["figures"]}))


if __name__ == "__main__":
    main()

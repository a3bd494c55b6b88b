"""A fault in mid-run under TRL, saved by `watch(trainer, run, guard="recommended")` or not, with GRPOTrainer and MiniRLTrainer.

    python reproduce/trl_guard.py [--run] [--arms NAME ...] [--seeds N ...] [--jobs N] [--raw DIR] [--store FILE] [--quick] [--json]

The bare command trains nothing: it reads the records in reproduce/trl_bank/guarded.jsonl and prints a table and the figures. `--run` trains
what is missing, some 40 seconds of one core a run of 120 steps, and adds it to the store. It can be stopped and started again.
Seeds, arms and what counts as saved are registered in docs/trl-guard-test.md. `--quick`: one short run in a temporary folder; it checks that
everything runs and claims nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.interrupt import said, say_interrupted

if __name__ == "__main__":
    say_interrupted("trl_guard")
    # one thread: at these sizes a second one costs more than it does; the model is in the package
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

from reproduce.children import Job, run_jobs
from reproduce.options import positive
from reproduce.trl_bank.guarded import ARMS, SEEDS, TRAINERS, figures_of, read_records, table_of
from trimtab.errors import TrimtabError

ROOT = Path(__file__).parents[1]
STORE, RAW = ROOT / "reproduce" / "trl_bank" / "guarded.jsonl", ROOT / "out" / "trl_guard"
STEPS, FAULT_STEP = 120, 60
QUICK = (5, 3)
"""Steps and fault step of `--quick`."""


def main() -> int:
    """Train where asked to, then print table and figures; 1 when a run failed, 2 for an error, 130 when interrupted."""
    options = _parser().parse_args()
    try:
        if options.one:
            train(*options.one, options.seeds[0], options.raw)
            return 0
        if options.quick:
            with tempfile.TemporaryDirectory() as scratch:
                train(TRAINERS[0], "guard", SEEDS[0], Path(scratch), *QUICK)
                options.store = Path(scratch) / "store.jsonl"
                _pack(Path(scratch), options.store)
                return _show(options, 0)
        status = _run(options) if options.run else 0
        return _show(options, status)
    except (TrimtabError, OSError) as error:
        print(f"trl_guard: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(said("trl_guard"), file=sys.stderr)
        return 130


def train(
    trainer: str, arm: str, seed: int, raw: Path, steps: int = STEPS, fault_step: int = FAULT_STEP
) -> None:
    """Train and watch one run, and write its record; the run folder is removed."""
    from trl import GRPOTrainer

    from trimtab.adapters.trl import watch
    from trimtab.report.run_view import load_view
    from trimtab.training.lab_faults import FaultPlan, fault_trainer
    from trimtab.training.minirl.trainer import MiniRLTrainer

    fault, guard = ARMS[arm]
    name = f"{trainer}-{arm}-s{seed}"
    folder = raw / f"{name}.run"
    shutil.rmtree(folder, ignore_errors=True)
    kind = {"grpo": GRPOTrainer, "minirl": MiniRLTrainer}[trainer]
    plan = FaultPlan(fault, fault_step, steps, seed)
    made = fault_trainer(raw / f"{name}.trainer", plan, kind)
    run = watch(made, folder, guard=guard)
    made.train()
    run.close()
    view = load_view(folder)
    loud = [alarm for alarm in view.alarms if alarm.severity != "info"]
    record = {
        "trainer": trainer, "arm": arm, "seed": seed, "steps": steps, "fault": fault, "fault_step": fault_step,
        "rewards": [round(float(row["metrics"]["reward"]), 4) for row in view.steps],
        "alarms": [[a.step, a.since, a.rule, a.slice, a.severity] for a in sorted(loud, key=lambda a: a.step)],
        "actions": [{key: row[key] for key in row if key not in ("time", "s", "q", "c")} for row in view.actions],
        "errors": len(view.errors), "cpu_s": round(time.process_time(), 1),
    }  # fmt: skip
    half = raw / f"{name}.json.part"
    half.write_text(json.dumps(record) + "\n")
    half.replace(raw / f"{name}.json")
    shutil.rmtree(folder)
    shutil.rmtree(raw / f"{name}.trainer", ignore_errors=True)


def _run(options: argparse.Namespace) -> int:
    """Train what is neither in the store nor in the raw folder, one process a run; then pack."""
    options.raw.mkdir(parents=True, exist_ok=True)
    known = {f"{one.trainer}-{one.arm}-s{one.seed}" for one in read_records(options.store)}
    known |= {path.stem for path in options.raw.glob("*.json")}
    todo = []
    for seed in options.seeds:
        for arm in options.arms:
            for trainer in options.trainers:
                name = f"{trainer}-{arm}-s{seed}"
                if name not in known:
                    command = [sys.executable, str(Path(__file__).resolve()), "--one", trainer, arm, "--seeds", str(seed), "--raw", str(options.raw)]  # fmt: skip
                    todo.append(Job(name, command, options.raw / f"{name}.log", [options.raw / f"{name}.run"]))  # fmt: skip
    try:
        return int(bool(run_jobs(todo, options.jobs)))
    finally:
        _pack(options.raw, options.store)


def _pack(raw: Path, store: Path) -> None:
    """Put the records of the raw folder into the store, in place of older ones of the same runs."""
    lines = {}
    for text in [*(store.read_text().splitlines() if store.exists() else []), *(p.read_text() for p in raw.glob("*.json"))]:  # fmt: skip
        one = json.loads(text)
        lines[one["trainer"], one["arm"], one["seed"]] = json.dumps(one)
    half = store.with_suffix(".part")
    half.write_text("".join(f"{lines[key]}\n" for key in sorted(lines)))
    half.replace(store)


def _show(options: argparse.Namespace, status: int) -> int:
    records = read_records(options.store)
    figures = figures_of(records)
    print(table_of(records))
    for name, value in figures.items():
        print(f"{name:34s} {'not yet run' if value is None else value}")
    if options.json:
        print(json.dumps({"figures": figures}))
    return status


def _parser() -> argparse.ArgumentParser:
    first, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first,
        epilog=rest.partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--run", action="store_true", help="train and record what is missing")
    add("--arms", nargs="+", choices=list(ARMS), default=list(ARMS), metavar="NAME", help=f"of {', '.join(ARMS)}")  # fmt: skip
    add("--trainers", nargs="+", choices=TRAINERS, default=list(TRAINERS), metavar="NAME", help=f"of {', '.join(TRAINERS)}")  # fmt: skip
    add("--seeds", nargs="+", type=int, default=list(SEEDS), metavar="N", help="by default those of the page")
    add("--jobs", type=positive, default=1, metavar="N", help="runs trained at a time (by default 1)")
    add("--raw", type=Path, default=RAW, metavar="DIR", help="records before they are packed (by default out/trl_guard)")  # fmt: skip
    add("--store", type=Path, default=STORE, metavar="FILE", help="packed records (by default reproduce/trl_bank/guarded.jsonl)")  # fmt: skip
    add("--quick", action="store_true", help="one short run in a temporary folder")
    add("--json", action="store_true", help="the last line is one JSON object of figures")
    add("--one", nargs=2, metavar=("TRAINER", "ARM"), help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())

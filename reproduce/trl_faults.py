"""Faults in mid-run under TRL, watched with the one line: how many runs lose their reward, and how many are warned before.

    python reproduce/trl_faults.py [--run] [--arms NAME ...] [--jobs N] [--store DIR] [--raw DIR] [--picture FILE] [--quick] [--json]

The bare command trains nothing: it reads the runs recorded in reproduce/trl_bank/runs, replays today's rules over their readings, and prints
a table and the figures (seconds). `--run` trains what is missing there with TRL's GRPOTrainer and `watch(trainer, folder)`, all defaults: some
70 seconds of one core a run of 120 steps. It can be stopped and started again; runs that wait to be packed lie in `--raw`.
`--picture` draws docs/demo.png from the two runs that `make demo` trains (seed 0). This is no registered test: seeds were not kept back.
`--quick`: the control and one fault for a few steps, in a temporary folder; it checks that everything runs and claims nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.interrupt import said, say_interrupted

if __name__ == "__main__":
    say_interrupted("trl_faults")
    # one thread: at these sizes a second one costs more than it does; the model is in the package
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

from reproduce.archives import arm_of, pack, unpacked
from reproduce.children import Job, run_jobs
from reproduce.options import positive
from reproduce.trl_bank.outcomes import figures_of, load_outcomes, table_of
from reproduce.trl_bank.recording import ARMS, finished_files, finished_runs, folder_of, record
from trimtab.errors import TrimtabError

ROOT = Path(__file__).parents[1]
STORE, RAW = ROOT / "reproduce" / "trl_bank" / "runs", ROOT / "out" / "trl_faults"
QUICK_ARMS, QUICK_STEPS, QUICK_FAULT = ("none", "stale"), 5, 3


def main() -> int:
    """Train where asked for, then print table and figures; 1 when a run failed, 2 for an error, 130 when interrupted."""
    options = _parser().parse_args()
    try:
        if options.one:
            record(options.one, options.seed, folder_of(options.raw, options.one, options.seed))
            return 0
        if options.quick:
            with tempfile.TemporaryDirectory() as scratch:
                for arm in QUICK_ARMS:
                    record(arm, 0, folder_of(Path(scratch), arm, 0), QUICK_STEPS, QUICK_FAULT)
                return _show(Path(scratch), options.json)
        status = _run(options) if options.run else 0
        store = unpacked(options.store)
        if options.picture:
            from reproduce.trl_bank.picture import draw

            draw(store, options.picture)
        return max(status, _show(store, options.json))
    except (TrimtabError, OSError) as error:
        print(f"trl_faults: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(said("trl_faults"), file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    """Train what is neither in the store nor in the raw folder, one process a run; then pack."""
    recorded = {folder.name for folder in finished_runs(options.raw)}
    if any(options.store.glob("*.zip")):
        recorded |= {folder.name for folder in finished_runs(unpacked(options.store))}
    todo = []
    for arm in options.arms:
        for seed in ARMS[arm].seeds:
            folder = folder_of(options.raw, arm, seed)
            if folder.name not in recorded:
                command = [sys.executable, str(Path(__file__).resolve()), "--one", arm, "--seed", str(seed), "--raw", str(options.raw)]  # fmt: skip
                todo.append(Job(folder.name, command, options.raw / f"{folder.name}.log", [folder]))
    try:
        return int(bool(run_jobs(todo, options.jobs)))
    finally:
        _pack(options.raw, options.store)


def _pack(raw: Path, store: Path) -> None:
    """Add the finished runs of the raw folder to the archives of the store."""
    with tempfile.TemporaryDirectory() as scratch:
        merged = Path(scratch)
        for source in [*([unpacked(store)] if any(store.glob("*.zip")) else []), raw]:
            for folder in finished_runs(source):
                shutil.copytree(folder, merged / folder.name, dirs_exist_ok=True)
        files = finished_files(merged)
        for arm in {arm_of(folder.relative_to(raw) / "run.json") for folder in finished_runs(raw)}:
            of_arm = [file for file in files if arm_of(file.relative_to(merged)) == arm]
            pack(merged, of_arm, store / f"{arm}.zip")
    unpacked.cache_clear()


def _show(store: Path, as_json: bool) -> int:
    outcomes = load_outcomes(store)
    figures = figures_of(outcomes)
    print(table_of(outcomes))
    for name, value in figures.items():
        print(f"{name:34s} {'-' if value is None else value}")
    if as_json:
        print(json.dumps({"figures": figures}))
    return 0


def _parser() -> argparse.ArgumentParser:
    first, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first,
        epilog=rest.partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--run", action="store_true", help="train and record what is missing")
    add("--arms", nargs="+", choices=list(ARMS), default=list(ARMS), metavar="NAME", help=f"trained with --run: {', '.join(ARMS)}")  # fmt: skip
    add("--jobs", type=positive, default=1, metavar="N", help="runs trained at a time (by default 1)")
    add("--store", type=Path, default=STORE, metavar="DIR", help="archives of recorded runs (by default reproduce/trl_bank/runs)")  # fmt: skip
    add("--raw", type=Path, default=RAW, metavar="DIR", help="runs before they are packed (by default out/trl_faults)")  # fmt: skip
    add("--picture", type=Path, metavar="FILE", help="draw the demo's two runs")
    add("--quick", action="store_true", help="two short runs in a temporary folder")
    add("--json", action="store_true", help="the last line is one JSON object of figures")
    add("--one", choices=list(ARMS), help=argparse.SUPPRESS)
    add("--seed", type=int, default=0, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())

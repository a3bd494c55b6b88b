"""Collapses that come after a run has learned, and what warned of them: the collapse bank and the figures of the registered test.

    python reproduce/collapse.py [--run | --rerecord] [--causes NAME ...] [--seeds N ...] [--jobs N] [--raw DIR] [--store DIR] [--quick] [--json]

The bare command trains nothing: it reads the recorded runs in reproduce/collapse_bank/runs and prints a table and the figures.
`--run` trains what is missing (0.3 to 0.45 seconds of one core a step; a seed of all causes has some 3,000 steps), keeps the tokens in
`--raw`, <cause>/<seed>.npz, and records them through `trimtab.open_run`. It can be stopped and started again. `--rerecord` trains nothing: it records
all tokens in `--raw` anew, with the rules and readings of today. Seeds 100 to 139 are for tuning; seeds 200 to 229 (first test, figures under their names), 230 to 245 (second, `_second`
behind) and 246 to 261 (third) are refused until the page (`PAGES` in collapse_bank/figures.py) that registers them is committed.
`--quick`: one fault and one slow cause, a few steps, in a temporary folder; it checks that everything runs and claims nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.interrupt import said, say_interrupted

if __name__ == "__main__":
    say_interrupted("collapse")
    # one thread: at these sizes a second one costs more than it does; the model is in the package
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

from reproduce.archives import arm_of, files_below, pack, recording, unpacked
from reproduce.children import TOLD, Job, run_jobs
from reproduce.collapse_bank.figures import (
    PAGES,
    figures_of,
    page_is_committed,
    registered_before_data,
    table_of,
)
from reproduce.collapse_bank.marks import finished_files, folder_of
from reproduce.collapse_bank.outcomes import load_outcomes
from reproduce.collapse_bank.regimes import CAUSES, HALVES, TEST_SEEDS, TUNING_SEEDS, half_of, runs_of
from reproduce.options import positive
from trimtab.errors import RunError, TrimtabError

ROOT = Path(__file__).parents[1]
STORE, RAW = ROOT / "reproduce" / "collapse_bank" / "runs", ROOT / "out" / "collapse_raw"
QUICK_CAUSES, QUICK_STEPS = ("healthy", "stale_fault", "proxy_reward"), 10


def main() -> int:
    """Train or record where asked for, then print table and figures; 1 when a run failed, 2 for an error, 130 when interrupted."""
    options = _parser().parse_args()
    try:
        if options.worker:
            return _train(options, TOLD.decode())
        if options.quick:
            with tempfile.TemporaryDirectory() as scratch:
                options.raw, options.store = Path(scratch) / "raw", Path(scratch) / "store"
                options.causes, options.seeds, options.steps = (
                    list(QUICK_CAUSES),
                    [TUNING_SEEDS[0]],
                    QUICK_STEPS,
                )
                _train(options, "")
                _record(options)
                return _show(options, 0)
        status = 0
        if options.run:
            _check_seeds(options.seeds)
            status = _run(options)
        if options.run or options.rerecord:
            _record(options)
        return _show(options, status)
    except (TrimtabError, OSError) as error:
        print(f"collapse: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(said("collapse"), file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    """Train in processes of one thread each, every one with seeds of its own."""
    script = str(Path(__file__).resolve())
    todo = []
    for index in range(min(options.jobs, len(options.seeds))):
        seeds = [str(seed) for seed in options.seeds[index :: options.jobs]]
        command = [
            sys.executable,
            script,
            "--worker",
            "--raw",
            str(options.raw),
            "--store",
            str(options.store),
        ]
        command += ["--causes", *options.causes, "--seeds", *seeds]
        todo.append(Job(f"worker {index}", command, options.raw / f"worker{index}.log", []))
    return int(bool(run_jobs(todo, options.jobs)))


def _train(options: argparse.Namespace, prefix: str) -> int:
    """Train seed by seed, causes in turn; runs whose tokens are there are passed over."""
    import torch

    from reproduce.collapse_bank.training import train_seed

    torch.set_num_threads(1)
    for seed in options.seeds:
        for group in _groups(options.causes):
            for line in train_seed(options.raw, group, seed, options.steps):
                print(f"{prefix}{line}", flush=True)
    return 0


def _groups(causes: Sequence[str]) -> list[list[str]]:
    """The healthy run and its faults are trained together; a slow cause is trained alone."""
    from reproduce.collapse_bank.regimes import SLOW

    together = [cause for cause in causes if cause not in SLOW]
    return [*([together] if together else []), *([cause] for cause in causes if cause in SLOW)]


def _record(options: argparse.Namespace) -> None:
    """Record the kept tokens of the causes and seeds: what is missing in the store, or with `--rerecord` everything."""
    from reproduce.collapse_bank.batches import load_batches
    from reproduce.collapse_bank.recording import record
    from reproduce.collapse_bank.training import raw_file

    seeds = [*TUNING_SEEDS, *TEST_SEEDS] if options.rerecord else options.seeds
    runs = [(cause, seed, role) for cause in options.causes for seed in seeds for role in runs_of(cause)]
    with _recording(options.store) as folder:
        for cause, seed, role in runs:
            source, target = raw_file(options.raw, cause, seed, role), folder_of(folder, cause, seed, role)
            if source.exists() and (options.rerecord or not target.exists()):
                record(load_batches(source), target)
                print(f"recorded {target.name}", flush=True)


@contextmanager
def _recording(store: Path) -> Iterator[Path]:
    """Yield the unpacked store; at the end it is packed again, one archive a cause and role."""
    if store.exists() and any(store.glob("*.zip")):
        with recording(store, finished_files) as folder:
            before = {path: path.stat().st_mtime_ns for path in finished_files(folder)}
            yield folder
            files = finished_files(folder)
            changed = {
                arm_of(path.relative_to(folder))
                for path in files
                if before.get(path) != path.stat().st_mtime_ns
            }
            _pack(folder, store, changed)
        return
    with tempfile.TemporaryDirectory() as scratch:
        try:
            yield Path(scratch)
        finally:
            _pack(
                Path(scratch),
                store,
                {arm_of(path.relative_to(scratch)) for path in files_below(Path(scratch))},
            )
            unpacked.cache_clear()


def _pack(folder: Path, store: Path, names: set[str]) -> None:
    files = finished_files(folder)
    for name in sorted(names):
        of_name = [path for path in files if arm_of(path.relative_to(folder)) == name]
        if of_name:
            pack(folder, of_name, store / f"{name}.zip")


def _show(options: argparse.Namespace, status: int) -> int:
    outcomes = load_outcomes(unpacked(options.store))
    figures = {
        **{
            f"registered_before_data{'' if half == 'test' else f'_{half}'}": registered_before_data(
                ROOT, options.store, half
            )
            for half in PAGES
        },
        **figures_of(outcomes),
    }
    for half in HALVES:
        runs = [run for run in outcomes if run.half == half]
        if runs:
            print(f"{half} seeds\n{table_of(runs)}\n")
    for name, value in figures.items():
        print(f"{name:44s} {'not yet run' if value is None else value}")
    if options.json:
        print(json.dumps({"figures": figures}))
    return status


def _check_seeds(seeds: Sequence[int]) -> None:
    """Refuse seeds of neither half, and seeds of the test before it is registered."""
    for half in sorted({half_of(seed) for seed in seeds} - {"tuning"}):
        if not page_is_committed(ROOT, half):
            of = HALVES[half]
            raise RunError(f"seeds {of[0]} to {of[-1]} wait until {PAGES[half][0]} registers them")


def _parser() -> argparse.ArgumentParser:
    first, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first,
        epilog=rest.partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--run", action="store_true", help="train and record what is missing")
    add("--rerecord", action="store_true", help="record all kept tokens anew, without training")
    add(
        "--causes",
        nargs="+",
        choices=CAUSES,
        default=list(CAUSES),
        metavar="NAME",
        help=f"of {', '.join(CAUSES)}",
    )
    add("--seeds", nargs="+", type=int, default=list(TUNING_SEEDS), metavar="N", help="by default 100 to 139")
    add("--jobs", type=positive, default=1, metavar="N", help="processes that train at a time (by default 1)")
    add("--raw", type=Path, default=RAW, metavar="DIR", help="folder of tokens (by default out/collapse_raw)")
    add(
        "--store",
        type=Path,
        default=STORE,
        metavar="DIR",
        help="folder of recorded runs (by default reproduce/collapse_bank/runs)",
    )
    add("--quick", action="store_true", help="a few short runs in a temporary folder")
    add("--json", action="store_true", help="the last line is one JSON object of figures")
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    add("--steps", type=positive, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())

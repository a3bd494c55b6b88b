"""Runs that meet a fault, saved or not: the guard, an oracle, a placebo and published remedies, from one checkpoint at the fault.

    python reproduce/closed_loop.py [--run] [--seeds N ...] [--causes NAME ...] [--jobs N] [--raw DIR] [--store DIR] [--quick] [--json]

The bare command trains nothing: it reads the records in reproduce/guard_bank/runs and prints table and figures, of complete seeds alone.
`--run` trains what is missing, seed by seed with all arms (some ten minutes of a core a seed), and keeps one record an arm in `--raw`.
It can be stopped and started again at any time, also from what was packed. At its end it packs all records of `--raw` into `--store`; `--pack`
does that alone.
Seeds 100 to 139 are for tuning; seeds 300 to 345 (first test) and 346 to 361 (second, figures with `_second` behind, `--causes stale_fault
rate_fault`) are refused until the page of the test (`PAGES` in guard_bank/figures.py) is committed.
`--quick`: one seed and one cause for a few steps in a temporary folder; it checks that everything runs and claims nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.interrupt import said, say_interrupted

if __name__ == "__main__":
    say_interrupted("closed_loop")
    # one thread: at these sizes a second one costs more than it does; the model is in the package
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

from reproduce.archives import unpacked
from reproduce.children import TOLD, Job, run_jobs
from reproduce.guard_bank.causes import CAUSES, TEST_SEEDS, TUNING_SEEDS, causes_of, half_of
from reproduce.guard_bank.figures import (
    PAGES,
    Bank,
    figures_of,
    halves,
    registered_before_data,
    table_of,
)
from reproduce.guard_bank.records import Record, fill_raw, load_arms, pack_arms
from reproduce.options import positive
from trimtab.errors import RunError, TrimtabError

ROOT = Path(__file__).parents[1]
STORE, RAW = ROOT / "reproduce" / "guard_bank" / "runs", ROOT / "out" / "guard_raw"
BENCHMARK = ROOT / "benchmarks" / "guard.json"
QUICK_STEPS = (4, 3)
"""Fault step and horizon of `--quick`."""


def main() -> int:
    """Train where asked to, then print table and figures; 1 when a run failed, 2 for an error, 130 when interrupted."""
    options = _parser().parse_args()
    try:
        if options.worker:
            return _train(options, TOLD.decode())
        if options.quick:
            with tempfile.TemporaryDirectory() as scratch:
                options.raw, options.store = Path(scratch) / "raw", Path(scratch) / "store"
                options.seeds, options.causes = [TUNING_SEEDS[0]], ["stale_fault"]
                _train(options, "", QUICK_STEPS)
                pack_arms(options.raw, options.store, options.seeds)
                return _show(options, 0)
        status = 0
        if options.run:
            _check_seeds(options.seeds)
            fill_raw(options.store, options.raw)
            status = _run(options)
        if options.run or options.pack:
            pack_arms(options.raw, options.store, [*TUNING_SEEDS, *TEST_SEEDS])
            unpacked.cache_clear()
        return _show(options, status)
    except (TrimtabError, OSError) as error:
        print(f"closed_loop: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(said("closed_loop"), file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    """Train in processes of one thread each, every one with seeds of its own."""
    todo = []
    for index in range(min(options.jobs, len(options.seeds))):
        seeds = [str(seed) for seed in options.seeds[index :: options.jobs]]
        command = [sys.executable, str(Path(__file__).resolve()), "--worker", "--raw", str(options.raw)]
        command += ["--causes", *options.causes, "--seeds", *seeds]
        todo.append(Job(f"worker {index}", command, options.raw / f"worker{index}.log", []))
    return int(bool(run_jobs(todo, options.jobs)))


def _train(options: argparse.Namespace, prefix: str, steps: tuple[int, int] | None = None) -> int:
    """Train seed by seed with all arms; arms whose records are there are passed over."""
    import torch

    from reproduce.guard_bank.seed_runs import train_seed
    from trimtab.guard import guard_options

    torch.set_num_threads(1)
    for seed in options.seeds:
        for line in train_seed(options.raw, seed, options.causes, guard_options("recommended"), steps):
            print(f"{prefix}{line}", flush=True)
    return 0


def _show(options: argparse.Namespace, status: int) -> int:
    by_half = halves(load_arms(options.store))
    for name, records in by_half.items():
        if records:
            print(f"{name} seeds: {table_of(bank_of(by_half, name, options.causes))}\n")
    measured = json.loads(BENCHMARK.read_text()) if BENCHMARK.exists() else {}
    figures = {
        "registered_before_data": registered_before_data(ROOT, options.store),
        **figures_of(bank_of(by_half, "test", options.causes)),
        "registered_before_data_second": registered_before_data(ROOT, options.store, "second"),
        **{f"{n}_second": v for n, v in figures_of(bank_of(by_half, "second", options.causes)).items()},
        "rollback_extra_s": measured.get("rollback_extra_s"),
        "ring_overhead_frac": measured.get("ring_overhead_frac"),
    }
    for name, value in figures.items():
        print(f"{name:32s} {'not yet run' if value is None else value}")
    if options.json:
        print(json.dumps({"figures": figures}))
    return status


def bank_of(by_half: dict[str, list[Record]], half: str, causes: Sequence[str]) -> Bank:
    """Return the complete seeds of a half, of the causes that it has."""
    return Bank(by_half[half], [cause for cause in causes if cause in causes_of(half)])


def _check_seeds(seeds: Sequence[int]) -> None:
    """Refuse seeds of neither half, and seeds of the test before it is registered."""
    from reproduce.collapse_bank.figures import first_commit

    unknown = sorted(set(seeds) - {*TUNING_SEEDS, *TEST_SEEDS})
    if unknown:
        raise RunError(
            f"seed {unknown[0]} is neither a tuning seed (100 to 139) nor a test seed (300 to {TEST_SEEDS[-1]})"
        )
    for half in sorted({half_of(seed) for seed in seeds} - {"tuning"}):
        if first_commit(ROOT, PAGES[half]) is None:
            raise RunError(f"test seeds wait until {PAGES[half]} is committed")


def _parser() -> argparse.ArgumentParser:
    first, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first,
        epilog=rest.partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--run", action="store_true", help="train what is missing, and pack it")
    add("--pack", action="store_true", help="pack the records of --raw into --store, without training")
    add("--causes", nargs="+", choices=tuple(CAUSES), default=list(CAUSES), metavar="NAME", help=f"of {', '.join(CAUSES)}")  # fmt: skip
    add("--seeds", nargs="+", type=int, default=list(TUNING_SEEDS[:2]), metavar="N", help="by default 100 and 101")  # fmt: skip
    add("--jobs", type=positive, default=1, metavar="N", help="processes that train at a time (by default 1)")
    add("--raw", type=Path, default=RAW, metavar="DIR", help="folder of records (by default out/guard_raw)")
    add("--store", type=Path, default=STORE, metavar="DIR", help="folder of archives (by default reproduce/guard_bank/runs)")  # fmt: skip
    add("--quick", action="store_true", help="one short seed in a temporary folder")
    add("--json", action="store_true", help="the last line is one JSON object of figures")
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Entropy that falls too early in the lab, and what supports it without a wider clip: a bonus, data selection, both. See docs/how-to/entropy.md.

    python reproduce/entropy_support.py [--run] [--arms NAME ...] [--seeds N ...] [--store FILE] [--quick] [--json]

The bare command trains nothing: it reads reproduce/entropy_runs/records.jsonl and prints the page's table and the figures. `--run` trains what is
missing, one run after the other, some 30 seconds of one core each, and adds each to the store as it ends: it can be stopped and started again.
`--quick`: two arms, one seed, two steps, in a temporary folder; it checks that everything runs and claims nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.interrupt import said, say_interrupted

if __name__ == "__main__":
    say_interrupted("entropy_support")
    # one thread: at these sizes a second one costs more than it does; the model is in the package
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

from reproduce.entropy_runs.figures import EVERY, SEEDS, STEPS, figures_of, read_records, table_of
from reproduce.entropy_runs.learner import ARMS, train
from trimtab.errors import TrimtabError

STORE = Path(__file__).parent / "entropy_runs" / "records.jsonl"
QUICK_ARMS, QUICK_STEPS = ("baseline", "both"), 2


def main(arguments: list[str] | None = None) -> int:
    """Train where asked to, then print table and figures; 2 for an error, 130 when interrupted."""
    options = _parser().parse_args(arguments)
    try:
        if options.quick:
            with tempfile.TemporaryDirectory() as scratch:
                options.store = Path(scratch) / "records.jsonl"
                _run(options.store, QUICK_ARMS, [0], QUICK_STEPS, 1)
                return _show(options)
        if options.run:
            _run(options.store, options.arms, options.seeds, STEPS, EVERY)
        return _show(options)
    except (TrimtabError, OSError) as error:
        print(f"entropy_support: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(said("entropy_support"), file=sys.stderr)
        return 130


def _run(store: Path, arms: list[str] | tuple[str, ...], seeds: list[int], steps: int, every: int) -> None:
    """Train what the store lacks, seed by seed; the store is replaced whole after each run."""
    import torch

    from reproduce.collapse_bank.transformer import load_weights

    torch.set_num_threads(1)
    start = load_weights()
    for seed in seeds:
        for arm in arms:
            records = read_records(store)
            if any((row["arm"], row["seed"]) == (arm, seed) for row in records):
                continue
            records.append(train(start, arm, seed, steps=steps, every=every))
            half = store.with_suffix(".part")
            half.write_text("".join(f"{json.dumps(row)}\n" for row in records))
            half.replace(store)
            print(f"{arm}, seed {seed}: done", flush=True)


def _show(options: argparse.Namespace) -> int:
    records = read_records(options.store)
    figures = figures_of(records)
    print(table_of(records))
    for name, value in figures.items():
        print(f"{name:34s} {'not yet run' if value is None else value}")
    if options.json:
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
    add(
        "--arms",
        nargs="+",
        choices=list(ARMS),
        default=list(ARMS),
        metavar="NAME",
        help=f"of {', '.join(ARMS)}",
    )
    add("--seeds", nargs="+", type=int, default=list(SEEDS), metavar="N", help="by default those of the page")
    add(
        "--store",
        type=Path,
        default=STORE,
        metavar="FILE",
        help="by default reproduce/entropy_runs/records.jsonl",
    )
    add("--quick", action="store_true", help="two arms, one seed, two steps, in a temporary folder")
    add("--json", action="store_true", help="the last line is one JSON object of figures")
    return parser


if __name__ == "__main__":
    sys.exit(main())

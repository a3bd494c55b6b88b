"""Does a failure-aware curriculum beat uniform and dynamic sampling at equal rollouts? See docs/curriculum-test.md.

    python reproduce/curriculum.py [--run] [--seeds N ...] [--store FILE] [--quick] [--json]

The bare command trains nothing: it reads the records in reproduce/curriculum_bank/runs.jsonl and prints table and figures, of seeds with
all arms alone. `--run` trains what is missing, one run after the other in this process, some 30 seconds of a core each, and appends one
record a run; it can be stopped and started again at any time, and several may run at once on seeds of their own with one `--store` each.
Seeds 100 to 119 are for tuning; seeds 400 to 407 are refused until the page of the test is committed.
`--quick`: one seed, few rollouts, in a temporary folder; it checks that everything runs and claims nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.interrupt import say_interrupted

if __name__ == "__main__":
    say_interrupted("curriculum")
    # one thread: at these sizes a second one costs more than it does; the model is in the package
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

from reproduce.curriculum_bank.figures import figures_of, load_records, table_of
from trimtab.errors import RunError, TrimtabError

ROOT = Path(__file__).parents[1]
STORE, PAGE = ROOT / "reproduce" / "curriculum_bank" / "runs.jsonl", ROOT / "docs" / "curriculum-test.md"
WARM = ROOT / "out" / "curriculum" / "warm_start.pt"
TUNING_SEEDS, TEST_SEEDS = range(100, 120), range(400, 408)
ARM_NAMES = ("uniform", "dynamic", "curriculum")
QUICK_ROLLOUTS, QUICK_STEPS = 96, 1


def main() -> int:
    """Train where asked to, then print table and figures; 2 for an error, 130 when interrupted."""
    options = _parser().parse_args()
    try:
        if options.quick:
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch)
                _train(
                    folder / "runs.jsonl", [TUNING_SEEDS[0], TUNING_SEEDS[1]], folder / "warm.pt", quick=True
                )
                return _show(folder / "runs.jsonl", as_json=options.json)
        if options.run:
            _train(options.store, options.seeds, WARM, quick=False)
        return _show(options.store, as_json=options.json)
    except (TrimtabError, OSError) as error:
        print(f"curriculum: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _train(store: Path, seeds: list[int], warm: Path, *, quick: bool) -> None:
    """Train the missing runs of some seeds, and append a record of each as soon as it is done."""
    from reproduce.curriculum_bank.training_loop import Settings, train
    from reproduce.curriculum_bank.warm_start import STEPS, warm_start

    for seed in seeds:
        if seed not in TUNING_SEEDS and seed not in TEST_SEEDS:
            raise RunError(f"seed {seed} is neither a tuning seed (100 to 119) nor a test seed (400 to 407)")
    if set(seeds) & set(TEST_SEEDS) and not _registered():
        raise RunError(f"{PAGE.name} is not committed: the test's seeds are not trained before it is")
    done = {(record["arm"], record["seed"]) for record in load_records(store)}
    settings = (
        Settings(rollouts=QUICK_ROLLOUTS, groups=2, group_size=4, evaluate_early=64, evaluate_late=16)
        if quick
        else Settings()
    )
    start = warm_start(warm, QUICK_STEPS if quick else STEPS)
    for seed in seeds:
        for arm in ARM_NAMES:
            if (arm, seed) not in done:
                record = train(arm, seed, start, settings)
                with store.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                print(
                    f"{arm}, seed {seed}: {record['updates']} updates, {record['cpu_seconds']} CPU-s",
                    flush=True,
                )


def _registered() -> bool:
    """Is the page of the test part of the last commit, unchanged?"""
    name = PAGE.relative_to(ROOT).as_posix()
    tracked = subprocess.run(["git", "-C", ROOT, "cat-file", "-e", f"HEAD:{name}"], capture_output=True)
    clean = subprocess.run(["git", "-C", ROOT, "diff", "--quiet", "HEAD", "--", name], capture_output=True)
    return tracked.returncode == 0 and clean.returncode == 0


def _show(store: Path, *, as_json: bool) -> int:
    figures = figures_of(load_records(store), ARM_NAMES)
    print(table_of(figures, ARM_NAMES), file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(json.dumps({"figures": figures}))
    else:
        print("\n".join(f"{name}: {value}" for name, value in figures.items()))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--run", action="store_true", help="train what is missing")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(TEST_SEEDS), metavar="N")
    parser.add_argument("--store", type=Path, default=STORE, help="file of the records")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", help="figures as the last line")
    return parser


if __name__ == "__main__":
    sys.exit(main())

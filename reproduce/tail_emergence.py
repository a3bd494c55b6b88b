"""Does the post-tool tail come first? The pilot: every arm and seed through TRL and the watch, then docs/evidence.md.

    python reproduce/tail_emergence.py [--seeds N] [--arms NAME ...] [--bank DIR] [--quick] [--json]

The bare command trains nothing: every run it would record is in reproduce/bank, and it writes the page and the figures from them
(about a minute). Resumable: a run that reached its end is not repeated; a missing one takes one to five minutes of a
core, so `--bank` with an empty folder records the whole bank anew (73 runs). One folder a run, in
<bank>/<tuning|test>/<arm>-s<seed>: even seeds are for tuning detectors, odd seeds for judging them, and are never to be tuned on.
`--quick`: two arms, one seed, few steps, into a temporary folder; it checks that everything runs and claims nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.pilot.arms import PILOT
from reproduce.pilot.train import finished
from trimtab.training.child import child_environment

ROOT = Path(__file__).parents[1]
BANK = ROOT / "reproduce" / "bank"
QUICK_ARMS, QUICK_STEPS = ("constrained", "open"), 24


def folder_of(bank: Path, arm: str, seed: int) -> Path:
    """Where a run is recorded; the half of the bank follows from the seed."""
    return bank / ("test" if seed % 2 else "tuning") / f"{arm}-s{seed}"


def wanted(arms: list[str], seeds: int | None) -> list[tuple[str, int]]:
    """(arm, seed) of every run that is asked for, seed by seed; without a number of seeds those the bank holds of each arm."""
    count = {arm: PILOT[arm].seeds if seeds is None else seeds for arm in arms}
    return [
        (arm, seed) for seed in range(max(count.values(), default=0)) for arm in arms if seed < count[arm]
    ]


def train_all(runs: list[tuple[str, int]], steps: int | None, bank: Path, jobs: int) -> list[str]:
    """Run what is missing, one process and one thread each; the names of the runs that failed."""
    todo = [
        (arm, seed)
        for arm, seed in runs
        if not finished(folder_of(bank, arm, seed), steps or PILOT[arm].steps)
    ]
    print(f"{len(runs) - len(todo)} runs are there, {len(todo)} to do, {jobs} at a time, in {bank}")

    def one(item: tuple[str, int]) -> str | None:
        arm, seed = item
        folder = folder_of(bank, arm, seed)
        folder.parent.mkdir(parents=True, exist_ok=True)
        log = folder.with_name(folder.name + ".log")
        command = [
            sys.executable,
            __file__,
            "--one",
            arm,
            "--seed",
            str(seed),
            "--steps",
            str(steps or PILOT[arm].steps),
        ]
        environment = child_environment()
        with log.open("wb") as out:
            code = subprocess.run(
                [*command, "--bank", str(bank)], stdout=out, stderr=out, env=environment, check=False
            ).returncode
        if code == 0:
            log.unlink()
        print(f"{folder.name}: " + ("done" if code == 0 else f"failed, see {log}"), flush=True)
        return None if code == 0 else folder.name

    with ThreadPoolExecutor(jobs) as pool:
        return [name for name in pool.map(one, todo) if name]


def main() -> int:
    """Train what is missing, then write the evidence; 1 when a run failed."""
    parser = _parser()
    options = parser.parse_args()
    if options.one:
        from reproduce.pilot.train import run_one

        run_one(
            PILOT[options.one],
            folder_of(options.bank, options.one, options.seed),
            seed=options.seed,
            steps=options.steps or PILOT[options.one].steps,
        )
        return 0
    if options.quick:
        with tempfile.TemporaryDirectory() as scratch:
            bank = Path(scratch) / "bank"
            failed = train_all(wanted(list(QUICK_ARMS), 1), QUICK_STEPS, bank, options.jobs)
            return finish(bank, Path(scratch), failed, options.json)
    failed = train_all(wanted(options.arms, options.seeds), options.steps, options.bank, options.jobs)
    return finish(options.bank, ROOT / "docs", failed, options.json)


def _parser() -> argparse.ArgumentParser:
    first, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first,
        epilog=rest.partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seeds",
        type=_positive,
        metavar="N",
        help="seeds 0 to N-1 of each arm are trained where they are missing; by default as many as the repository's bank "
        "holds of the arm (3; 5 and 7 of the hot arms), so that nothing is missing there",
    )
    parser.add_argument(
        "--arms",
        nargs="+",
        choices=sorted(PILOT),
        default=list(PILOT),
        metavar="NAME",
        help="train what is missing of these arms alone (by default of all; the report always covers every run of the bank): "
        + ", ".join(PILOT),
    )
    parser.add_argument(
        "--steps",
        type=_positive,
        metavar="N",
        help="length of the runs that are trained; by default each arm's own (140, the warm arms 200); a shorter recorded run is repeated",
    )
    parser.add_argument(
        "--bank",
        type=Path,
        default=BANK,
        metavar="DIR",
        help="folder the runs are read from and recorded in; docs/evidence.md is written from it (by default reproduce/bank)",
    )
    parser.add_argument(
        "--jobs",
        type=_positive,
        default=os.cpu_count() or 1,
        metavar="N",
        help="runs trained at a time, one process and one thread each (by default one a core)",
    )
    parser.add_argument(
        "--quick", action="store_true",
        help=f"{' and '.join(QUICK_ARMS)}, one seed, {QUICK_STEPS} steps, into a temporary folder; the other options but --jobs and "
        "--json are not looked at",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    parser.add_argument("--one", choices=sorted(PILOT), help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def finish(bank: Path, docs: Path, failed: list[str], as_json: bool) -> int:
    """Write tables and figures of the runs that are there, print the figures."""
    from reproduce.pilot.evidence import write_evidence

    figures = write_evidence(bank, docs)
    for name, value in figures.items():
        print(f"{name:28s} {value}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    if as_json:
        print(json.dumps({"figures": figures}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Does the post-tool tail come first? The pilot: every arm and seed through TRL and the watch, then docs/evidence.md.

    python reproduce/tail_emergence.py [--seeds N] [--arms NAME ...] [--quick] [--json]

Resumable: a run that reached its end is not repeated. One folder a run, in --bank/<tuning|test>/<arm>-s<seed>: even seeds
are for tuning detectors, odd seeds for judging them, and are never to be tuned on. A run takes one to five minutes of a
core. `--quick`: two arms, one seed, few steps, into a temporary folder; it checks that everything runs
and claims nothing.
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


def train_all(arms: list[str], seeds: int, steps: int | None, bank: Path, jobs: int) -> list[str]:
    """Run what is missing, seed by seed, one process and one thread each; the names of the runs that failed."""
    todo = [
        (arm, seed)
        for seed in range(seeds)
        for arm in arms
        if not finished(folder_of(bank, arm, seed), steps or PILOT[arm].steps)
    ]
    print(f"{len(arms) * seeds - len(todo)} runs are there, {len(todo)} to do, {jobs} at a time, in {bank}")

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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4, metavar="N")
    parser.add_argument("--arms", nargs="+", choices=sorted(PILOT), default=list(PILOT), metavar="NAME")
    parser.add_argument("--steps", type=int, help="of every arm; by default each arm's own")
    parser.add_argument("--bank", type=Path, default=BANK)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--quick", action="store_true", help="two arms, one seed, a few steps")
    parser.add_argument("--json", action="store_true", help="last line is one JSON object of figures")
    parser.add_argument("--one", choices=sorted(PILOT), help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
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
            failed = train_all(list(QUICK_ARMS), 1, QUICK_STEPS, bank, options.jobs)
            return finish(bank, Path(scratch), failed, options.json)
    failed = train_all(options.arms, options.seeds, options.steps, options.bank, options.jobs)
    return finish(options.bank, ROOT / "docs", failed, options.json)


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

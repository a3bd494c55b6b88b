"""The pilot's runs: only what is missing is trained."""

from __future__ import annotations

import sys
from pathlib import Path

from reproduce.children import Job, run_jobs
from reproduce.pilot.arms import PILOT
from reproduce.pilot.marks import check_bank, finished, folder_of, scratch_of

__all__ = ["train_all", "wanted"]

SCRIPT = Path(__file__).parents[1] / "tail_emergence.py"


def wanted(arms: list[str], seeds: int | None) -> list[tuple[str, int]]:
    """(arm, seed) of every run that is asked for, seed by seed; without a number of seeds those the bank holds of each arm."""
    count = {arm: PILOT[arm].seeds if seeds is None else seeds for arm in arms}
    return [
        (arm, seed) for seed in range(max(count.values(), default=0)) for arm in arms if seed < count[arm]
    ]


def train_all(runs: list[tuple[str, int]], steps: int | None, bank: Path, jobs: int) -> list[str]:
    """Run what is missing, one process and one thread each; the names of the runs that failed.

    The whole bank is looked at first: RunError for a damaged run in it, before anything is trained.
    """
    check_bank(bank)
    todo = [run for run in runs if not finished(folder_of(bank, *run), steps or PILOT[run[0]].steps)]
    print(f"{len(runs) - len(todo)} runs are there, {len(todo)} to do, {jobs} at a time, in {bank}", flush=True)  # fmt: skip
    return run_jobs([_job(bank, arm, seed, steps) for arm, seed in todo], jobs)


def _job(bank: Path, arm: str, seed: int, steps: int | None) -> Job:
    command = [sys.executable, str(SCRIPT), "--one", arm, "--seed", str(seed),
               "--steps", str(steps or PILOT[arm].steps), "--bank", str(bank)]  # fmt: skip
    folder = folder_of(bank, arm, seed)
    return Job(folder.name, command, folder.with_name(folder.name + ".log"), [scratch_of(folder)])

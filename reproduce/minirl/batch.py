"""The runs of one experiment: only what is missing is trained."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from reproduce.children import Job, run_jobs
from reproduce.minirl.arms import Experiment
from reproduce.minirl.bank import check_bank, finished, folder_of
from reproduce.pilot.marks import scratch_of

__all__ = ["train_all", "wanted"]


def wanted(experiment: Experiment, arms: Sequence[str], seeds: int | None) -> list[tuple[str, int]]:
    """(arm, seed) of every run that is asked for, seed by seed; without a number of seeds those that are recorded of each arm."""
    chosen = {arm: experiment.arms[arm].seeds if seeds is None else tuple(range(seeds)) for arm in arms}
    return sorted(((arm, seed) for arm in arms for seed in chosen[arm]), key=lambda run: run[1])


def train_all(
    experiment: Experiment, runs: Sequence[tuple[str, int]], steps: int, supervised: int, bank: Path, jobs: int
) -> list[str]:
    """Run what is missing, one process and one thread each; the names of the runs that failed.

    The whole bank is looked at first: RunError for a damaged run in it, before anything is trained.
    """
    check_bank(bank, experiment)
    todo = [run for run in runs if not finished(folder_of(bank, experiment, *run), experiment, steps)]
    print(f"{len(runs) - len(todo)} runs are there, {len(todo)} to do, {jobs} at a time, in {bank}", flush=True)
    script = Path(__file__).parents[1] / experiment.script
    found = []
    for arm, seed in todo:
        folder = folder_of(bank, experiment, arm, seed)
        command = [sys.executable, str(script), "--one", arm, "--seed", str(seed), "--steps", str(steps),
                   "--supervised", str(supervised), "--bank", str(bank)]  # fmt: skip
        found.append(Job(command, folder, scratch_of(folder)))
    return run_jobs(found, jobs)

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
    experiment: Experiment,
    runs: Sequence[tuple[str, int]],
    steps: int,
    supervised: int,
    bank: Path,
    jobs: int,
) -> list[str]:
    """Run what is missing, in `jobs` processes of one thread; the names of the runs that failed.

    The whole bank is looked at first: RunError for a damaged run in it, before anything is trained.
    """
    check_bank(bank, experiment)
    todo = [
        run
        for run in runs
        if not finished(folder_of(bank, experiment, *run), experiment, experiment.steps_of(run[0], steps))
    ]
    print(
        f"{len(runs) - len(todo)} runs are there, {len(todo)} to do, {jobs} at a time, in {bank}", flush=True
    )
    shares = [todo[start::jobs] for start in range(min(jobs, len(todo)))]
    run_jobs([_job(experiment, share, at, steps, supervised, bank) for at, share in enumerate(shares)], jobs)
    return [
        f"{arm}-s{seed}"
        for arm, seed in todo
        if not finished(folder_of(bank, experiment, arm, seed), experiment, experiment.steps_of(arm, steps))
    ]


def _job(
    experiment: Experiment, share: Sequence[tuple[str, int]], at: int, steps: int, supervised: int, bank: Path
) -> Job:
    """A process for many runs: loading the libraries costs a fifth of a run."""
    script = Path(__file__).parents[1] / experiment.script
    command = [sys.executable, str(script), "--train", *(f"{arm}:{seed}" for arm, seed in share), "--steps", str(steps),
               "--supervised", str(supervised), "--bank", str(bank)]  # fmt: skip
    log = bank / experiment.name / f"worker-{at}.log"
    return Job(f"worker {at}", command, log, [scratch_of(folder_of(bank, experiment, *run)) for run in share])

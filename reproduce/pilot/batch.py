"""Many runs, a process and a thread each: only what is missing, and an interruption leaves nothing but runs that begin anew."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from reproduce.pilot.arms import PILOT
from reproduce.pilot.marks import check_bank, finished, folder_of, scratch_of
from trimtab.training.child import child_environment

__all__ = ["train_all", "wanted"]

SCRIPT = Path(__file__).parents[1] / "tail_emergence.py"
PATIENCE = 10  # seconds a child has to end after it was asked to


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
    children = _Children(bank, steps)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            return [name for name in pool.map(children.train, todo) if name]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            children.stop()
            raise


class _Children:
    """The processes that train, so that all of them can be stopped."""

    def __init__(self, bank: Path, steps: int | None) -> None:
        self.bank, self.steps = bank, steps
        self.stopped = Event()
        self.alive: set[subprocess.Popen[bytes]] = set()

    def train(self, run: tuple[str, int]) -> str | None:
        """One run in a process of its own; its name when it failed."""
        arm, seed = run
        folder = folder_of(self.bank, arm, seed)
        folder.parent.mkdir(parents=True, exist_ok=True)
        log = folder.with_name(folder.name + ".log")
        command = [sys.executable, str(SCRIPT), "--one", arm, "--seed", str(seed),
                   "--steps", str(self.steps or PILOT[arm].steps), "--bank", str(self.bank)]  # fmt: skip
        if self.stopped.is_set():
            return None
        with log.open("wb") as out:
            # a session of its own: Ctrl-C reaches this process alone, which then ends the others
            child = subprocess.Popen(command, stdout=out, stderr=out, env=child_environment(), start_new_session=True)  # fmt: skip
            self.alive.add(child)
            if self.stopped.is_set():
                child.terminate()
            code = child.wait()
            self.alive.discard(child)
        if code == 0 or self.stopped.is_set():
            log.unlink()
        if self.stopped.is_set():
            shutil.rmtree(scratch_of(folder), ignore_errors=True)
            return None
        print(f"{folder.name}: " + ("done" if code == 0 else f"failed, see {log}"), flush=True)
        return None if code == 0 else folder.name

    def stop(self) -> None:
        """End every child; the threads that wait for them clean up."""
        self.stopped.set()
        for child in list(self.alive):
            child.terminate()
        for child in list(self.alive):
            try:
                child.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()

"""Processes of one thread each that train runs; an interruption leaves nothing but runs that begin anew."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from trimtab.training.demo import child_environment

__all__ = ["TOLD", "Job", "run_jobs"]

PATIENCE = 10  # seconds a child has to end after it was asked to
TOLD = b"told: "
"""What a child prints after this is shown; all it prints is in its log."""


@dataclass(frozen=True)
class Job:
    """A command that records runs; `log` is kept when it fails, the folders `scratch` are removed when it is stopped."""

    name: str
    command: Sequence[str]
    log: Path
    scratch: Sequence[Path]


def run_jobs(todo: Sequence[Job], at_a_time: int) -> list[str]:
    """The names of the jobs that failed."""
    children = _Children()
    with ThreadPoolExecutor(at_a_time) as pool:
        try:
            return [name for name in pool.map(children.train, todo) if name]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            children.stop()
            raise


class _Children:
    """The processes that train, so that all of them can be stopped."""

    def __init__(self) -> None:
        self.stopped = Event()
        self.alive: set[subprocess.Popen[bytes]] = set()

    def train(self, job: Job) -> str | None:
        """One job in a process of its own; its name when it failed."""
        job.log.parent.mkdir(parents=True, exist_ok=True)
        if self.stopped.is_set():
            return None
        with job.log.open("wb") as log:
            # a session of its own: Ctrl-C reaches this process alone, which then ends the others
            child = subprocess.Popen(job.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=child_environment(), start_new_session=True)  # fmt: skip
            self.alive.add(child)
            if self.stopped.is_set():
                child.terminate()
            assert child.stdout is not None
            for line in child.stdout:
                log.write(line)
                log.flush()
                if line.startswith(TOLD):
                    print(line[len(TOLD) :].decode(errors="replace").rstrip(), flush=True)
            code = child.wait()
            self.alive.discard(child)
        if code == 0 or self.stopped.is_set():
            job.log.unlink()
        if self.stopped.is_set():
            for folder in job.scratch:
                shutil.rmtree(folder, ignore_errors=True)
            return None
        print(f"{job.name}: " + ("done" if code == 0 else f"failed, see {job.log}"), flush=True)
        return None if code == 0 else job.name

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

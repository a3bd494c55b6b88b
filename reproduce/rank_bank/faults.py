"""The job under faults: four real processes, signals at random points, and what is read from it afterwards."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RANKS, STEP_S, SEQUENCES, TOKENS = 4, 0.5, 8, 64
WITHIN_STEPS = 3


@dataclass(frozen=True)
class Arm:
    """Faults of one kind, one after the other in one job."""

    name: str
    signal: str  # "stop" or "kill"
    collective: bool  # does the trainer have a collective a step?
    num_faults: int
    pause_s: float = 0.0


ARMS = (
    Arm("free_5", "stop", False, 15, 5.0),
    Arm("collective_5", "stop", True, 15, 5.0),
    Arm("kill", "kill", False, 20),
    Arm("free_60", "stop", False, 5, 60.0),
    Arm("collective_60", "stop", True, 5, 60.0),
)
QUICK = (Arm("free_quick", "stop", False, 1, 4.0), Arm("kill_quick", "kill", False, 1))


class Job:
    """Four ranks; `watched` ones open a run."""

    def __init__(self, folder: Path, arm: Arm, *, watched: bool) -> None:
        folder.mkdir(parents=True)
        self.folder, self.arm = folder, arm
        spec = {
            "folder": str(folder), "ranks": RANKS, "watched": watched, "collective": arm.collective, "step_s": STEP_S,
        }  # fmt: skip
        (folder / "spec.json").write_text(json.dumps(spec))
        self.children = [self._start(rank) for rank in range(RANKS)]

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        }
        command = [
            sys.executable,
            "-m",
            "reproduce.rank_bank.rank_loop",
            str(self.folder / "spec.json"),
            str(rank),
        ]
        with (self.folder / f"log.{rank}").open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)

    def stop(self, rank: int) -> None:
        self.children[rank].send_signal(signal.SIGSTOP)

    def go_on(self, rank: int) -> None:
        self.children[rank].send_signal(signal.SIGCONT)

    def restart(self, rank: int) -> None:
        self.children[rank].kill()
        self.children[rank].wait()
        self.children[rank] = self._start(rank)

    def times(self, rank: int) -> list[tuple[int, float]]:
        path = self.folder / f"times.{rank}.jsonl"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for(self, done: Callable[[], bool], limit_s: float = 120.0) -> None:
        deadline = time.monotonic() + limit_s
        while not done():
            if time.monotonic() > deadline or any(child.poll() for child in self.children):
                logs = "".join((self.folder / f"log.{rank}").read_text()[-500:] for rank in range(RANKS))
                raise RuntimeError(f"{self.folder}: the job does not go on: {logs}")
            time.sleep(0.05)

    def finish(self) -> None:
        last = max(self.times(rank)[-1][0] for rank in range(RANKS)) + 4
        half = self.folder / "stop.part"
        half.write_text(str(last))
        half.rename(self.folder / "stop")
        for child in self.children:
            child.wait(timeout=600)  # a rank that was paused is behind, and steps on to the same last step

    def end(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()
                child.wait()


def run_arm(arm: Arm, folder: Path, seed: int = 0) -> dict[str, Any]:
    """Run the watched job and its unwatched twin at once, with the same faults at the same moments."""
    rng = random.Random(f"{arm.name} {seed}")
    jobs = [Job(folder / name, arm, watched=name == "watched") for name in ("watched", "twin")]
    faults: list[dict[str, Any]] = []
    try:
        for job in jobs:
            job.wait_for(lambda job=job: all(len(job.times(rank)) >= 6 for rank in range(RANKS)))
        for _ in range(arm.num_faults):
            time.sleep(rng.uniform(4.0, 4.0 + 2 * STEP_S) if arm.signal == "stop" else rng.uniform(2.0, 3.0))
            rank = rng.randrange(RANKS)
            faults.append(_fault(arm, jobs, rank))
        for job in jobs:
            job.wait_for(lambda job=job: time.time() - job.times(0)[-1][1] < 2 * STEP_S + 1)
        time.sleep(4 * STEP_S)
        for job in jobs:
            job.finish()
        return {"arm": asdict(arm), "seed": seed, "faults": _read(arm, jobs, faults), **_counts(jobs[0])}
    finally:
        for job in jobs:
            job.end()


def _fault(arm: Arm, jobs: list[Job], rank: int) -> dict[str, Any]:
    judge = 0 if rank else 1  # the leading rank names the others; the lowest other one names it
    fault = {
        "rank": rank,
        "judge": judge,
        "at": time.time(),
        "own_step": jobs[0].times(rank)[-1][0],  # where no collective keeps ranks in step, each has its own
        "steps": [job.times(judge)[-1][0] for job in jobs],
    }
    if arm.signal == "stop":
        for job in jobs:
            job.stop(rank)
        time.sleep(arm.pause_s)
        for job in jobs:
            job.go_on(rank)
    else:
        before = [len(job.times(rank)) for job in jobs]
        for job in jobs:
            job.restart(rank)
        for job, count in zip(jobs, before, strict=True):
            job.wait_for(lambda job=job, count=count: len(job.times(rank)) >= count + 3)
    return fault | {"until": time.time()}


def _read(arm: Arm, jobs: list[Job], faults: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the monitor added to the longest step of the other ranks, and how many steps until it named the rank."""
    from trimtab.runs import RunReader

    reader = RunReader(jobs[0].folder / "run")
    fired = [
        row for session in range(reader.num_sessions) for rank in reader.ranks
        for row in reader.file("alarms", rank, session).rows
        if row["rule"] == "rank_silent" and row["event"] == "fired"
    ]  # fmt: skip
    read = []
    for fault in faults:
        watched, twin = (_longest(job, fault) for job in jobs)
        name, step = f"rank/{fault['rank']}", fault["steps"][0]
        named = [
            row["step"] - step
            for row in fired
            if row["slice"] == name and 0 <= row["since"] - fault["own_step"] <= 2 and row["step"] >= step
        ]
        read.append({
            "rank": fault["rank"], "step": step, "longest_s": round(watched, 3), "twin_s": round(twin, 3),
            "added_s": round(watched - twin, 3), "named_after": min(named, default=None),
        })  # fmt: skip
    return (
        read
        if arm.signal == "stop"
        else [{key: one[key] for key in ("rank", "step", "longest_s", "twin_s", "added_s")} for one in read]
    )


def _longest(job: Job, fault: dict[str, Any]) -> float:
    """The longest step of the other ranks that overlaps the fault."""
    longest = 0.0
    for rank in range(RANKS):
        times = [at for _, at in job.times(rank)]
        if rank != fault["rank"]:
            pairs = pairwise(times)
            longest = max([longest, *(b - a for a, b in pairs if b > fault["at"] and a < fault["until"])])
    return longest


def _counts(job: Job) -> dict[str, Any]:
    """Steps and windows that count more than four ranks wrote, in the views and in what was judged live."""
    from trimtab.report.run_view import load_view

    view = load_view(job.folder / "run")
    full = RANKS * SEQUENCES
    twice = sum(row["slices"]["all"]["n_trajectories"] > full for row in view.steps)
    windows = [
        row
        for row in view.reader.rows("readings", 0)
        if row["slice"] == "all" and "total/p95" in row["values"]
    ]
    most = [(row["last"] - row["first"] + 1) * full * TOKENS for row in windows]
    live = sum(row["n_tokens"] > limit for row, limit in zip(windows, most, strict=True))
    merge = [row["merge"] for row in view.reader.rows("steps", 0) if "merge" in row]
    return {
        "num_steps": len(view.steps), "num_windows": len(windows), "steps_twice": twice, "windows_twice": live,
        "merge": merge[-1] if merge else {}, "monitor_failures": view.num_failures,
    }  # fmt: skip

"""kill -9 at 50 random moments: every flushed step is readable and the resumed run continues it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

from tests.support import running
from trimtab.report.run_view import load_view

WRITER = r"""
import os, sys
import numpy as np
import trimtab
from tests.support import make_batch

def write(start, count, folder=sys.argv[1]):
    rng = np.random.default_rng(start)
    with trimtab.open_run(folder, strict=True, state_every=1) as run:
        for step in range(start, start + count):
            run.observe(make_batch(rng, sequences=32, step=step))
            run.flush(step, {"reward": 1.0})
            os.write(1, f"{step}\n".encode())

write(0, 30, sys.argv[1] + "-of-the-parent")  # imports what a run imports late
for line in sys.stdin:  # each writer is a process of its own, forked here, which spares its imports
    pid = os.fork()
    if pid == 0:
        write(*map(int, line.split()))
        os._exit(0)
    os.write(1, f"pid {pid}\n".encode())
    os.waitpid(pid, 0)
    os.write(1, b"ended\n")
"""


def run_and_kill(parent: subprocess.Popen[str], start: int, delay: float | None, count: int = 100_000) -> int:
    """Last step the writer said it had flushed before it was killed; start - 1 when none."""
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(f"{start} {count}\n")
    parent.stdin.flush()
    pid, last = 0, start - 1
    for line in parent.stdout:
        if line == "ended\n":
            break
        if line.startswith("pid"):
            pid = int(line.split()[1])
            continue
        last = int(line)
        if delay is not None and pid:  # opening is not interesting; kill among the writes
            time.sleep(delay)
            os.kill(pid, signal.SIGKILL)
            delay = None
    return last


def test_kill_9_at_fifty_random_moments(tmp_path):
    rng, folder, start = random.Random(0), tmp_path / "run", 0
    with running(
        [sys.executable, "-c", WRITER, str(folder)], 240, stdin=subprocess.PIPE, stderr=None
    ) as parent:
        for _ in range(50):
            last = run_and_kill(parent, start, rng.uniform(0.0, 0.06))
            view = load_view(folder)
            steps = [row["step"] for row in view.steps]
            assert steps[: last + 1] == list(range(last + 1)), "a flushed step is missing"
            assert view.reader.num_malformed == 0
            start = len(steps)  # a step may have been committed before it could be announced
        last = run_and_kill(parent, start, None, count=15)
    view = load_view(folder)
    assert [row["step"] for row in view.steps] == list(range(last + 1))
    assert view.reader.num_sessions == 51
    assert view.series("drift/p99", "post_tool")
    assert (
        len(view.blocks) >= len(view.steps) - 51
    )  # at most the state of the step under way is lost at each kill
    assert not view.errors

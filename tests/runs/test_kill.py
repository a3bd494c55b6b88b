"""kill -9 at 50 random moments: every flushed step is readable and the resumed run continues it."""

from __future__ import annotations

import random
import signal
import sys
import time
from pathlib import Path

from tests.support import running
from trimtab.report.run_view import load_view

WRITER = """
import sys
import numpy as np
import trimtab
from tests.support import make_batch

folder, start, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(start)
with trimtab.open_run(folder, strict=True, state_every=1) as run:
    for step in range(start, start + count):
        run.observe(make_batch(rng, sequences=32, step=step))
        run.flush(step, {"reward": 1.0})
        print(step, flush=True)
"""


def run_and_kill(folder: Path, start: int, delay: float | None, count: int = 100_000) -> int:
    """Last step the writer said it had flushed before it was killed; start - 1 when none."""
    command = [sys.executable, "-c", WRITER, str(folder), str(start), str(count)]
    last = start - 1
    with running(command, 60, stderr=None) as process:
        assert process.stdout is not None
        if delay is not None:
            first = process.stdout.readline()  # import time is not interesting; kill among the writes
            last = int(first)
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        for line in process.stdout:
            if line.endswith("\n"):
                last = int(line)
        process.wait()
    return last


def test_kill_9_at_fifty_random_moments(tmp_path):
    rng, folder, start = random.Random(0), tmp_path / "run", 0
    for _ in range(50):
        last = run_and_kill(folder, start, rng.uniform(0.0, 0.06))
        view = load_view(folder)
        steps = [row["step"] for row in view.steps]
        assert steps[: last + 1] == list(range(last + 1)), "a flushed step is missing"
        assert view.reader.num_malformed == 0
        start = len(steps)  # a step may have been committed before it could be announced
    last = run_and_kill(folder, start, None, count=15)
    view = load_view(folder)
    assert [row["step"] for row in view.steps] == list(range(last + 1))
    assert view.reader.num_sessions == 51
    assert view.series("drift/p99", "post_tool")
    assert (
        len(view.blocks) >= len(view.steps) - 51
    )  # at most the state of the step under way is lost at each kill
    assert not view.errors

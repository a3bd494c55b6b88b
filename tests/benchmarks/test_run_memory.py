"""A live run's memory, in bytes and objects: it does not grow with the steps (issue 17.14)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from benchmarks.run_memory import held_bytes

import trimtab
from trimtab.monitor.seen_episodes import REMEMBERED, SeenEpisodes


def test_a_live_run_grows_by_little_a_trajectory(tmp_path):
    """Issue 17.14: until the bound of remembered trajectories is reached, each takes 16 bytes, not two hundred."""
    sizes: dict[int, int] = {}
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        for step in range(30):
            run.observe(loss_mask=np.ones((2_000, 1), bool), logprobs=np.full((2_000, 1), -1.0))
            run.flush(step, {"loss": float(step % 7), "reward": float(step % 5)})
            if step + 1 in (10, 30):  # ends of stored blocks: no batch waits
                sizes[step + 1] = held_bytes(run)
    assert (sizes[30] - sizes[10]) / (20 * 2_000) < 30


def test_the_detectors_of_a_live_run_stop_growing(tmp_path):
    """Issue 17.14: 2,400 steps of metrics: the sums of a detector are let go in time."""
    sizes: dict[int, int] = {}
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        for step in range(2_401):
            run.flush(step, {"loss": float(step % 7), "reward": float(step % 5), "grad_norm": 1.0 + step % 3})
            if step + 1 in (1_201, 2_401):  # at the same place of the detectors' cycle
                sizes[step + 1] = held_bytes(run.pipeline.detectors)
    assert sizes[2_401] < 1.02 * sizes[1_201]


def test_remembered_trajectories_are_bounded_and_exact():
    seen = SeenEpisodes()
    assert seen.add(np.arange(10_000)).all()
    assert not seen.add(np.arange(10_000)).any()
    for first in range(10_000, 200_000, 10_000):
        assert seen.add(np.arange(first, first + 10_000)).all()
    assert not seen.add(np.arange(200_000 - REMEMBERED, 200_000)).any()
    assert held_bytes(seen) < 30 * REMEMBERED


def test_the_benchmark_runs_as_written():
    script = Path(__file__).parents[2] / "benchmarks" / "run_memory.py"
    done = subprocess.run(
        [sys.executable, str(script), "--quick", "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    figures = json.loads(done.stdout.splitlines()[-1])["figures"]
    assert {"live_growth_bytes_per_step", "load_10k_s"} <= figures.keys()

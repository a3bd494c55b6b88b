"""Two live processes of one rank are kept apart, and the rank is taken from the environment."""

from __future__ import annotations

import logging
import sys

import numpy as np
import pytest

import trimtab
from tests.support import cli, make_batch, running
from trimtab.report.run_view import load_view

WRITER = """
import sys
import numpy as np
import trimtab
from tests.support import make_batch

run = trimtab.open_run(sys.argv[1])
run.flush(0, {"reward": 1.0})
print(run.writer.rank, flush=True)
sys.stdin.readline()
rng = np.random.default_rng(1)
for step in range(1, 40):
    run.observe(make_batch(rng, sequences=64, step=step))
    run.flush(step, {"reward": 1.0, "grad_norm": float("nan") if step == 20 else 1.0})
"""


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)


def test_a_second_live_writer_is_kept_apart_and_hides_no_alarm(tmp_path, caplog):
    """Issue 17.9: the second session superseded the first, with its critical alarm."""
    folder, command = tmp_path / "run", [sys.executable, "-c", WRITER, str(tmp_path / "run")]
    with running(command, 120, stdin=-1) as other:
        assert other.stdout.readline().strip() == "0"
        with caplog.at_level(logging.WARNING):
            run = trimtab.open_run(folder)
        assert run.writer.rank == 1
        assert f"process {other.pid} on" in caplog.text
        assert "Give each process its own rank" in caplog.text
        _, err = other.communicate("go\n")
        assert other.returncode == 0, err
    rng = np.random.default_rng(0)
    for step in range(40):
        run.observe(make_batch(rng, sequences=64, step=step))
        run.flush(step, {"reward": 1.0, "grad_norm": 1.0})
    run.close()
    view = load_view(folder)
    assert view.reader.ranks == [0, 1]
    assert any(alarm.rule == "nonfinite" and alarm.step == 20 for alarm in view.alarms)
    done = cli("diagnose", folder, "--verbose")
    assert done.returncode == 1
    assert "writes as rank 1" in done.stdout


def test_a_killed_writer_leaves_its_rank_to_the_next(tmp_path):
    """Issue 17.9: the lock ends with the process, so a resume after kill -9 writes as the same rank."""
    with running([sys.executable, "-c", WRITER, str(tmp_path / "run")], 60, stdin=-1) as other:
        other.stdout.readline()
        other.kill()
        other.wait()
    with trimtab.open_run(tmp_path / "run") as run:
        assert (run.writer.rank, run.writer.session) == (0, 1)
    with trimtab.open_run(tmp_path / "run") as run, trimtab.open_run(tmp_path / "run") as again:
        assert (run.writer.rank, again.writer.rank) == (0, 0)  # one process, as a notebook does


@pytest.mark.parametrize(
    "environment",
    [{"RANK": "3", "WORLD_SIZE": "4", "SLURM_PROCID": "1"}, {"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}],
)
def test_rank_and_world_size_come_from_the_launcher(tmp_path, monkeypatch, environment):
    """Issue 17.9: torchrun with `open_run` and no `rank=`."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with trimtab.open_run(tmp_path / "run") as run:
        run.flush(0)
        assert run.writer.rank == 3
        assert run.writer.header["config"]["world_size"] == 4
    with trimtab.open_run(tmp_path / "given", rank=0) as run:
        assert run.writer.rank == 0
        assert "world_size" not in run.writer.header["config"]


def test_missing_ranks_of_the_launcher_are_a_gap_where_more_than_one_wrote(tmp_path, monkeypatch):
    """Issue 17.9: a loop that opens the run on rank 0 alone is not blind for it."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        with trimtab.open_run(tmp_path / "run") as run:
            run.flush(0)
        reason = load_view(tmp_path / "run").verdict.reason
        assert ("2 of 4 ranks have written nothing" in reason) == (rank == 1)

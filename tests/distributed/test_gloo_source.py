"""Steps through a gloo group of our own, with a rank that stops and one that is killed: nobody waits, nothing counts twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch.distributed", reason="needs the torch extra")

import torch.distributed as dist

from tests.distributed.dealt_sequences import EVERY, SEQUENCES
from tests.distributed.gloo_ranks import do_steps
from trimtab.distributed import MergeOptions
from trimtab.errors import RunError
from trimtab.report.run_view import load_view
from trimtab.runs import RunReader

RANKS = 3
BOUND_S = 1.5  # of one flush; the group's deadline is 2 s


class Rank:
    """A process of the job. All start from one server that has loaded torch."""

    def __init__(self, folder: Path, port: int, rank: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.distributed.gloo_ranks"])
        self.connection, other = context.Pipe()
        arguments = (str(folder), port, rank, RANKS, other)
        self.process = context.Process(target=do_steps, args=arguments, daemon=True)
        self.process.start()
        other.close()

    def heard(self) -> dict[str, Any]:
        assert self.connection.poll(90)
        return dict(self.connection.recv())

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def exit_code(self) -> int | None:
        self.process.join(60)
        return self.process.exitcode


def steps(ranks: Sequence[Rank], number: int = 1) -> list[dict[str, Any]]:
    """Let ranks do steps together; returns what each says of its last one."""
    said: list[dict[str, Any]] = []
    for _ in range(number):
        for rank in ranks:
            rank.connection.send("step")
        said = [rank.heard() for rank in ranks]
        assert max(one["took_s"] for one in said) < BOUND_S
        time.sleep(0.05)
    return said


@pytest.fixture
def started() -> Iterator[list[Rank]]:
    ranks: list[Rank] = []
    yield ranks
    for rank in ranks:
        rank.process.kill()
        rank.process.join(10)


@pytest.mark.parametrize("fault", [signal.SIGSTOP, signal.SIGKILL])
def test_a_stopped_or_killed_rank_ends_the_group_and_nothing_else(
    tmp_path: Path, fault: signal.Signals, started: list[Rank]
) -> None:
    folder = tmp_path / "run"
    store = dist.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)
    )
    started += [Rank(folder, store.port, rank) for rank in range(RANKS)]
    ranks = started
    assert [rank.heard() for rank in ranks] == [{"ready": True}] * RANKS
    done = EVERY
    steps(ranks, done)
    deadline = time.monotonic() + 30
    gathered = 0
    while gathered < (RANKS - 1) * EVERY and time.monotonic() < deadline:
        gathered = steps(ranks)[0]["gathered"]
        done += 1
    assert gathered >= (RANKS - 1) * EVERY
    victim, others = ranks[2], ranks[:2]
    victim.signal(fault)
    over, stopped_at = False, done
    while not over and time.monotonic() < deadline:
        said = steps(others)
        over = all(one["over"] for one in said)
        done += 1
        time.sleep(0.3)
    assert over
    assert done - stopped_at < 4 * EVERY
    steps(others, 2)
    done += 2
    if fault == signal.SIGSTOP:
        victim.signal(signal.SIGCONT)
        steps([victim], done - stopped_at)
        steps(ranks, 2)
        done += 2
    stopped = fault == signal.SIGSTOP
    for rank in [victim, *reversed(others)] if stopped else reversed(others):  # the leading rank last
        rank.connection.send(None)
        assert rank.exit_code() == 0
    assert stopped or victim.exit_code() == -signal.SIGKILL
    reader = RunReader(folder)
    counts = {
        row["step"]: sum(
            r["slices"]["all"]["n_tokens"]
            for k in range(RANKS)
            for r in reader.rows("steps", k)
            if r["step"] == row["step"]
        )
        for row in reader.rows("steps", 0)
    }
    merge = reader.rows("steps", 0)[-1]["merge"]
    assert not {"repeated", "lost", "damaged", "superseded", "late", "failure"} & merge.keys()
    blocks = {
        row["step"]: row["n_tokens"]
        for row in reader.rows("readings", 0)
        if row["slice"] == "all" and "total/p95" in row["values"]
    }
    whole = 60 * SEQUENCES * EVERY
    assert len(blocks) == done // EVERY
    for last, num_tokens in blocks.items():
        of_ranks = sum(counts[step] for step in range(last - EVERY + 1, last + 1))
        assert num_tokens == of_ranks or (fault == signal.SIGKILL and stopped_at <= last + 1)
        assert num_tokens == whole or fault == signal.SIGKILL
    (error,) = reader.rows("errors", 0)  # said once
    assert "given up" in error["error"]
    assert not reader.rows("errors", 1)
    assert load_view(folder).num_failures == 1


def test_without_a_group_to_join_the_refusal_says_what_to_do(tmp_path: Path) -> None:
    import trimtab

    with pytest.raises(RunError, match="init_process_group"):
        trimtab.open_run(tmp_path / "run", rank=0, merge=MergeOptions(way="gloo", ranks=2))
    with pytest.raises(RunError, match="deadline_s"):
        MergeOptions(way="gloo", deadline_s=0.0)

"""Shards and decisions through a real TCPStore, whose server may end, hang or never have been told of a rank."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch.distributed", reason="needs the torch extra")

import torch.distributed as dist

import trimtab
from tests.distributed.dealt_sequences import EVERY, OPEN, arrays, metrics
from tests.distributed.test_merger import shard
from tests.support import running
from trimtab.distributed import Decision, MergeOptions, store_source
from trimtab.distributed.store_source import MAX_KEPT, StoreDecisions, StoreSource, StoreThread
from trimtab.report.run_view import load_view
from trimtab.runs import RunReader

ROOT = Path(__file__).parents[2]
SERVER = """
import sys
from datetime import timedelta
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
print(store.port, flush=True)
sys.stdin.readline()
"""


def until(condition: Callable[[], Any], limit_s: float = 30.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def store() -> Any:
    return dist.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=20)
    )


def test_shards_arrive_once_in_order_and_leave_the_store_empty(store: Any) -> None:
    leader = StoreSource(StoreThread(store), own=0, leader=0, ranks=3)
    until(lambda: len(leader._next) == 2)
    others = [StoreSource(StoreThread(store), own=rank, leader=0, ranks=3) for rank in (1, 2, 1_000_003)]
    before = store.num_keys()
    for step in range(5):
        for source in others:
            source.put(shard(source.own, step))
    arrived: list[tuple[int, int]] = []

    def all_there() -> bool:
        arrived.extend((one.rank, one.step) for one in leader.poll())
        return len(arrived) == 15

    until(all_there)
    assert sorted(arrived) == [(rank, step) for rank in (1, 2, 1_000_003) for step in range(5)]
    assert [step for rank, step in arrived if rank == 2] == list(range(5))
    assert store.num_keys() - before <= 8  # counters alone
    for source in (leader, *others):
        assert source.failure() == ""
        source.close()


def test_what_nobody_takes_is_bounded(store: Any) -> None:
    source = StoreSource(StoreThread(store), own=1, leader=0, ranks=2)
    for step in range(3 * MAX_KEPT):
        source.put(shard(1, step))
        until(lambda: not source.thread._calls)
    source.close()
    assert store.num_keys() <= MAX_KEPT + 4


def test_decisions_reach_all_and_those_of_an_earlier_session_do_not(store: Any) -> None:
    old, leader = StoreDecisions(StoreThread(store), 0, leads=True), None
    old.write(Decision(0, 1, 3, "old"))
    old.thread.close()
    leader = StoreDecisions(StoreThread(store), 1, leads=True)
    leader.write(Decision(0, 7, 9, "new"))
    leader.thread.close()
    other = StoreDecisions(StoreThread(store), 0, leads=False)
    read: list[Decision] = []
    until(lambda: read.extend(other.poll()) or read)
    assert read == [Decision(0, 7, 9, "new")]
    other.thread.close()


def test_a_job_over_a_store_judges_the_same_and_names_the_leading_rank(tmp_path: Path, store: Any) -> None:
    ranks = 3
    merge = MergeOptions(way="store", ranks=ranks, store=store, lag=50, end_wait_s=20.0)
    runs = [
        trimtab.open_run(tmp_path / "run", rank=rank, merge=merge, strict=True, **OPEN)
        for rank in range(ranks)
    ]
    until(lambda: len(runs[0]._merge.source._next) == 2)  # type: ignore[union-attr]
    fired = []
    for number in range(6 * EVERY):
        for rank, run in enumerate(runs):
            if rank == 0 and number >= 2 * EVERY:
                continue
            run.observe(**arrays(number, rank, ranks))
            fired += [(rank, a.slice) for a in run.flush(number, metrics(number)) if a.rule == "rank_silent"]
            time.sleep(0.03)
    for run in reversed(runs):
        run.close()
    assert (1, "rank/0") in fired
    reader = RunReader(tmp_path / "run")
    blocks = [
        row for row in reader.rows("readings", 0) if row["slice"] == "all" and "total/p95" in row["values"]
    ]
    assert [row["n_tokens"] for row in blocks][:2] == [32 * 60 * EVERY] * 2
    assert not {"missing", "late", "lost", "failure"} & reader.rows("steps", 0)[-1]["merge"].keys()


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_store_that_dies_or_hangs_costs_no_step_anything_and_is_recorded(
    tmp_path: Path, fault: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_source, "_QUIET_S", 1.0)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with running([sys.executable, "-c", SERVER], 200, stdin=-1, env=environment) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=20))
        merge = MergeOptions(way="store", ranks=2, store=store, lag=2, end_wait_s=0.1)
        run = trimtab.open_run(tmp_path / "run", rank=0, merge=merge, strict=True, **OPEN)
        until(lambda: len(run._merge.source._next) == 1)  # type: ignore[union-attr]
        server.send_signal(fault)
        for number in range(2 * EVERY):
            run.observe(**arrays(number, 0, 2))
            run.flush(number, metrics(number))
        until(run._merge.source.failure)  # type: ignore[union-attr]
        run.observe(**arrays(99, 0, 2))
        run.flush(99, metrics(99))
        run.close()
    rows = RunReader(tmp_path / "run").rows("steps", 0)
    assert "the store" in rows[-1]["merge"]["failure"]
    assert rows[-1]["merge"]["missing"]["1"] >= EVERY
    assert not any(row["failed"] for row in rows)
    assert max(row["costs_s"].get("merge", 0.0) for row in rows) < 1.0


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_store_that_dies_makes_no_rank_silent_and_is_named_once(
    tmp_path: Path, fault: signal.Signals, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_source, "_QUIET_S", 1.0)
    monkeypatch.setattr(store_source, "_RETRY_S", 0.02)
    folder, environment = tmp_path / "run", {**os.environ, "OMP_NUM_THREADS": "1"}
    with running([sys.executable, "-c", SERVER], 200, stdin=-1, env=environment) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=20))
        merge = MergeOptions(way="store", ranks=2, store=store, lag=2, end_wait_s=0.1)
        runs = [trimtab.open_run(folder, rank=rank, merge=merge, strict=True) for rank in (0, 1)]

        def flush(number: int) -> None:
            for run in runs:
                run.flush(number, {"reward": 0.5})
            time.sleep(0.02)

        source = runs[0]._merge.source  # type: ignore[union-attr]
        number = 0
        while len(runs[0]._merge._last_steps) == 0 or number < 12:  # type: ignore[union-attr]
            flush(number)
            number += 1
            assert number < 1_000
        server.send_signal(fault)
        for number in range(number, number + 20):  # noqa: B020
            flush(number)
        until(source.failure)
        flush(number + 1)
        flush(number + 2)
        assert not [alarm for run in runs for alarm in run.alarms if alarm.rule == "rank_silent"]
        (gap,) = load_view(folder).integrity.gaps
        assert gap.startswith("the store ")
        assert "; rank 0 could not judge the other ranks while it ran, since step " in gap
        for run in reversed(runs):
            run.close()
    messages = [r for r in caplog.records if "Until it answers, other ranks are not judged" in r.getMessage()]
    assert 1 <= len(messages) <= 2  # once a process; here two ranks are in one
    view = load_view(folder)
    assert not view.integrity.gaps  # all rows are in the folder
    assert any("could not judge the other ranks" in text for text in view.integrity.losses)


def test_a_store_that_fails_is_called_less_and_less(
    store: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_source, "_RETRY_S", 0.01)
    thread = StoreThread(store)
    calls = []

    def call(own: Any) -> None:
        calls.append(0)
        if len(calls) < 6:
            own.wait(["nobody sets this"], timedelta(milliseconds=1))

    thread.do(call)
    until(lambda: len(calls) == 5)
    assert thread._pause_s >= 0.01 * 2**4
    assert "the store failed" in thread.failure()
    until(lambda: thread.failure() == "")
    thread.close()
    assert [record.getMessage().count("the store failed") for record in caplog.records] == [1, 0]

"""Heartbeats of real processes: one that is stopped has a name, one that ends has none."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import running
from trimtab.distributed import heartbeats
from trimtab.distributed.heartbeats import Heartbeats
from trimtab.distributed.silent_ranks import SilentRanks

ROOT = Path(__file__).parents[2]
CHILD = """
import sys, time
from trimtab.distributed.heartbeats import Heartbeats
beats = Heartbeats(sys.argv[1], 1, [])
print("beats", flush=True)
sys.stdin.readline()
beats.close()
print("done", flush=True)
sys.stdin.readline()
"""


def until(condition: Callable[[], bool], limit_s: float = 30.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_stopped_process_is_named_and_one_that_ends_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits = {"rank_beat_s": 0.05, "rank_stopped_s": 1.0}
    monkeypatch.setattr(heartbeats, "bound", limits.__getitem__)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with running([sys.executable, "-c", CHILD, str(tmp_path)], 100, stdin=-1, env=environment) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "beats\n"
        watcher = Heartbeats(tmp_path, 0, [1, 2])
        until(lambda: (tmp_path / ".beat.r0").exists() and (tmp_path / ".beat.r1").exists())
        assert watcher.take_stopped() == set()  # rank 2 was never there
        child.send_signal(signal.SIGSTOP)
        until(lambda: watcher.take_stopped() == {1})
        child.send_signal(signal.SIGCONT)
        until(lambda: watcher.take_stopped() == set())
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "done\n"
        assert not (tmp_path / ".beat.r1").exists()
        assert watcher.take_stopped() == set()
        watcher.close()
    assert [record.args for record in caplog.records] == [(1,)]
    assert not (tmp_path / ".beat.r0").exists()


def test_a_rank_that_stopped_between_two_steps_is_named_at_the_next() -> None:
    ranks = SilentRanks([1])
    assert ranks.close({1: 4}, now=0.0) == []
    assert ranks.close({1: 5}, now=1.0) == []
    (event,) = ranks.close({1: 6}, now=60.0, stopped={1})  # a collective held all ranks up for a minute
    assert (event.rank, event.began, event.since) == (1, True, 6)
    assert ranks.silent == {1: 6}
    (event,) = ranks.close({1: 7}, now=61.0)
    assert (event.began, event.since) == (False, 6)
    assert ranks.silent == {}


def test_ranks_of_another_pace_are_not_silent() -> None:
    ranks = SilentRanks([1, 2])
    steps = range(60)
    events = [ranks.close({1: step, 2: step // 3}, now=float(step)) for step in steps]
    assert [event for some in events[6:] for event in some] == []


def test_a_rank_that_never_came_is_silent_after_a_minute() -> None:
    ranks = SilentRanks([1])
    events = [ranks.close({}, now=10.0 * step) for step in range(9)]
    assert [len(some) for some in events] == [0, 0, 0, 0, 0, 0, 0, 1, 0]
    assert events[7][0].since == 0

"""The merger folds each step once, in order, whatever is late, missing, repeated or started over."""

from __future__ import annotations

import gc
import random
import tracemalloc
from typing import Any

import pytest

from trimtab.distributed import MergeOptions, Merger, Shard
from trimtab.distributed.merged_step import MergedStep
from trimtab.distributed.shard import Block
from trimtab.errors import RunError, SummaryError
from trimtab.measure.state.blocks import compress_states, pack_states
from trimtab.measure.state.slice_state import SliceState


def row(step: int, tokens: int = 10) -> dict[str, Any]:
    return {
        "step": step, "time": 1.0, "metrics": {}, "columns": ["reward"], "nonfinite": {}, "failed": False,
        "slices": {"all": {"n_tokens": tokens, "n_trajectories": 1}},
    }  # fmt: skip


def shard(rank: int, step: int, session: int = 0, number: int | None = None, tokens: int = 10) -> Shard:
    states = pack_states({"all": SliceState(n_tokens=tokens, n_trajectories=1)})
    number = step if number is None else number
    return Shard(rank, session, number, step, row(step, tokens), None, (), (Block(step, step, states),))


def tokens(step: MergedStep) -> int:
    (block,) = step.blocks
    assert block.states["all"].n_tokens == step.row["slices"]["all"]["n_tokens"]  # type: ignore[index]
    return step.row["slices"]["all"]["n_tokens"]


def test_a_step_waits_for_all_ranks() -> None:
    merger = Merger(range(3))
    merger.add_all([shard(0, 0), shard(1, 0), shard(0, 1)])
    assert merger.fold() == []
    merger.add(shard(2, 0))
    (step,) = merger.fold()
    assert (step.step, step.ranks, step.missing, tokens(step)) == (0, (0, 1, 2), (), 30)
    assert merger.num_pending == 1


def test_any_order_of_ranks_gives_the_same_steps() -> None:
    shards = [shard(rank, step, tokens=rank + 10 * step) for rank in range(4) for step in range(6)]
    for seed in range(20):
        rng = random.Random(seed)
        queues = [[s for s in shards if s.rank == rank] for rank in range(4)]
        merger, steps = Merger(range(4), lag=10), []
        while any(queues):
            merger.add(rng.choice([q for q in queues if q]).pop(0))
            steps += merger.fold()
        assert [s.step for s in steps] == list(range(6))
        assert [tokens(s) for s in steps] == [6 + 40 * step for step in range(6)]
        assert merger.status() == {}


def test_a_silent_rank_is_not_waited_for_beyond_the_lag() -> None:
    merger = Merger(range(2), lag=3)
    steps = []
    for number in range(10):
        merger.add(shard(0, number))
        if number < 2:
            merger.add(shard(1, number))
        steps += merger.fold()
    assert [s.step for s in steps] == list(range(7))
    assert [s.missing for s in steps] == [()] * 2 + [(1,)] * 5
    assert merger.status() == {"missing": {"1": 5}}
    late = [merger.add(shard(1, number)) for number in range(2, 10)]
    assert late == [False] * 5 + [True] * 3
    assert merger.num_late == 5
    steps = merger.fold()
    assert [(s.step, s.ranks) for s in steps] == [(7, (0, 1)), (8, (0, 1)), (9, (0, 1))]


def test_a_rank_that_skips_a_step_is_not_waited_for() -> None:
    merger = Merger(range(2))
    merger.add_all([shard(0, 0), shard(0, 1), shard(1, 1, number=0)])
    assert [(s.step, s.missing) for s in merger.fold()] == [(0, (1,)), (1, ())]


def test_nothing_counts_twice_after_a_restart() -> None:
    merger = Merger(range(2), lag=10)
    merger.add_all([shard(1, step) for step in range(6)])
    merger.add_all([shard(0, step) for step in range(3)])
    folded = merger.fold()
    assert [s.step for s in folded] == [0, 1, 2]
    # killed after step 5, started again from a checkpoint before step 2
    again = [shard(1, step, session=1, number=i, tokens=99) for i, step in enumerate(range(2, 7))]
    assert [merger.add(one) for one in again] == [False, True, True, True, True]
    assert (merger.num_late, merger.num_superseded) == (1, 3)
    assert not merger.add(shard(1, 6, session=0))  # what the dead process had under way
    assert merger.num_superseded == 4
    merger.add_all([shard(0, step) for step in range(3, 7)])
    steps = merger.fold()
    assert [(s.step, tokens(s)) for s in steps] == [(3, 109), (4, 109), (5, 109), (6, 109)]


def test_a_repeated_shard_and_a_gap_are_counted() -> None:
    merger = Merger([0, 1])
    assert merger.add(shard(0, 0))
    assert not merger.add(shard(0, 0))
    assert merger.add(shard(0, 4, number=4))
    assert merger.status() == {"repeated": 1, "lost": 3}


def test_memory_is_bounded_by_the_lag() -> None:
    merger = Merger(range(4), lag=5)

    def run(first: int, last: int) -> None:
        for step in range(first, last):
            merger.add_all(shard(rank, step) for rank in range(3))  # rank 3 never comes
            merger.fold()
            assert merger.num_pending <= 15

    tracemalloc.start()
    try:
        run(0, 100)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        run(100, 400)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 20_000


def test_the_budget_leaves_the_rest_to_the_next_call() -> None:
    merger = Merger(range(200))
    merger.add_all(shard(rank, 0) for rank in range(200))
    calls = 1
    while not (steps := merger.fold(budget_s=0.0)):
        calls += 1
    assert calls == 4  # 200 states in pieces of 64
    assert tokens(steps[0]) == 2_000


def test_everything_is_folded_at_the_end() -> None:
    merger = Merger(range(2))
    merger.add_all([shard(0, 0), shard(0, 1), shard(1, 0)])
    assert [(s.step, s.missing) for s in merger.fold(everything=True)] == [(0, ()), (1, (1,))]


def test_workers_outside_the_group_are_taken_and_not_waited_for() -> None:
    merger = Merger(range(2))
    merger.add_all([shard(1_000_003, 0, tokens=5), shard(0, 0), shard(1, 0)])
    merger.add(shard(0, 1))
    (step,) = merger.fold()
    assert (step.ranks, tokens(step)) == ((0, 1, 1_000_003), 25)


def test_damaged_states_are_counted_and_the_others_merged() -> None:
    merger = Merger(range(2))
    bad = Shard(1, 0, 0, 0, row(0), {"step": 0, "names": [], "slices": []}, (), (Block(0, 0, "!"),))
    merger.add_all([shard(0, 0), bad])
    (step,) = merger.fold()
    assert step.blocks[0].states["all"].n_tokens == 10  # type: ignore[index]
    assert merger.num_damaged == 2
    assert step.series is None


def test_bytes_of_a_shard() -> None:
    one = shard(3, 7)
    packed = {"all": SliceState(n_tokens=4)}
    two = Shard(3, 1, 2, 7, {"x": float("inf")}, None, ({"name": "t"},), (Block(6, 7, packed),))
    assert Shard.from_bytes(one.to_bytes()) == one
    back = Shard.from_bytes(two.to_bytes())
    assert (back.row, back.tools, back.number) == (two.row, two.tools, 2)
    assert back.blocks == (Block(6, 7, compress_states(packed)),)
    data = one.to_bytes()
    for bad in (data[:-1], data[1:], b"", b"x" * 40, data[:9] + b"?" + data[10:]):
        with pytest.raises(SummaryError, match="damaged"):
            Shard.from_bytes(bad)


@pytest.mark.parametrize(
    "wrong",
    [{"way": "fax"}, {"way": "store"}, {"lag": 0}, {"ranks": 0}, {"delay": True}, {"budget_s": 3.0}],
)
def test_options_that_cannot_be_meant(wrong: dict[str, Any]) -> None:
    with pytest.raises(RunError, match="merge: "):
        MergeOptions(**wrong)

"""Broken episodes give no vote: advantages equal, to the last bit, those of a batch without them."""

from __future__ import annotations

from collections import Counter

import anyio
import numpy as np
import pytest
import torch

from trimtab.errors import ToolError
from trimtab.objectives.advantages import group_advantages
from trimtab.tools.batch_budget import BudgetOptions, DataFailure, collect_batch
from trimtab.tools.exclusion import Exclusion, excluded_advantages, voting_rows
from trimtab.traces.core.tool_call import ToolCall


def advantages(rewards: np.ndarray, group: np.ndarray) -> np.ndarray:
    return group_advantages(torch.from_numpy(rewards), torch.from_numpy(group), std=True).numpy()


@pytest.mark.parametrize("seed", range(20))
def test_advantages_equal_those_without_the_broken_rows_to_the_last_bit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups, size = 16, 8
    group = np.repeat(np.arange(groups), size)
    rewards = rng.normal(size=groups * size) * rng.choice([1e-3, 1.0, 1e3], groups * size)
    broken = np.zeros(groups * size, bool)
    for one in range(groups):  # k = 0 .. 7 failures in a group, wherever they fall
        broken[one * size + rng.permutation(size)[: one % size]] = True
    poisoned = np.where(broken, rng.choice([np.nan, np.inf, 0.0, 1e9], groups * size), rewards)
    result = excluded_advantages(poisoned, group, ~broken, advantages)
    votes = np.array([np.count_nonzero(~broken[group == one]) for one in range(groups)])
    rows = ~broken & (votes[group] >= 2)
    assert result[rows].tobytes() == advantages(rewards[rows], group[rows]).tobytes()
    assert not result[~rows].any()
    assert np.count_nonzero(votes < 2) == 2


def test_a_group_of_one_valid_row_gives_no_signal() -> None:
    assert voting_rows(np.array([5, 5, 9]), np.array([True, False, True])).size == 0
    assert voting_rows(np.zeros(0, int), np.zeros(0, bool)).size == 0
    with pytest.raises(ToolError, match="must both be"):
        voting_rows(np.zeros(3, int), np.zeros(2, bool))


def test_what_breaks_an_episode() -> None:
    calls = [
        ToolCall("a", error="x", blame=blame, kind=kind)
        for blame, kind in (("policy", "refused"), ("tool", "timeout"))
    ]
    assert Exclusion().valid(calls)
    assert not Exclusion(kinds=frozenset({"timeout"})).valid(calls)
    assert not Exclusion().valid(
        [*calls, ToolCall("a", error="x", blame="infrastructure", kind="connection")]
    )
    assert Exclusion().valid([])


def collect(fail: dict[int, list[Exception]], tasks: int, **options: object) -> object:
    left = {task: list(errors) for task, errors in fail.items()}

    async def play(task: int) -> str:
        if left.get(task):
            raise left[task].pop(0)
        return f"episode {task}"

    async def main() -> object:
        return await collect_batch(play, range(tasks), BudgetOptions(**options), spare=range(100, 103))  # type: ignore[arg-type]

    return anyio.run(main)


def test_budgets_of_infrastructure_and_data_are_apart() -> None:
    down = ConnectionRefusedError("down")
    bad = DataFailure("no file")
    batch = collect({0: [down] * 4, 1: [bad], 2: [bad, bad], 3: [down] * 5}, 10)
    assert batch.failures == Counter(infrastructure=9, data=3)
    assert [task for task, _ in batch.rows] == [0, 1, 100, 101, 4, 5, 6, 7, 8, 9] or [
        task for task, _ in batch.rows
    ] == [0, 1, 101, 100, 4, 5, 6, 7, 8, 9]
    assert dict(batch.dropped) == {2: "data: no file", 3: "infrastructure: connection"}


def test_a_batch_shrinks_to_its_floor_and_no_further() -> None:
    bad = DataFailure("no file")
    batch = collect({0: [bad] * 2}, 10, on_dropped="shrink")
    assert len(batch.rows) == 9
    with pytest.raises(ToolError, match=r"batch below its floor: 8 of 10 episodes, 0.9 wanted"):
        collect({0: [bad] * 2, 1: [bad] * 2}, 10, on_dropped="shrink")


def test_errors_of_the_loop_itself_are_raised() -> None:
    with pytest.raises(Exception, match=r"a bug|unhandled errors"):
        collect({0: [KeyError("a bug")]}, 2)

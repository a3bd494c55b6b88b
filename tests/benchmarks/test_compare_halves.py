"""The benchmark of `compare` on logs in which nothing differs: how pairs are made, and what is counted."""

from __future__ import annotations

import numpy as np

from benchmarks import compare_halves as halves


def test_halves_share_nothing_and_miss_nothing():
    rng = np.random.default_rng(0)
    log = halves.simulated(rng, tasks=12, each=3)
    for split, whole in ((halves.by_episode, False), (halves.by_task, True)):
        a, b = split(log, rng)
        assert sorted(one.id for one in [*a, *b]) == sorted(one.id for one in log)
        assert len(a) == len(b) == 18
        assert {one.task for one in a}.isdisjoint(one.task for one in b) is whole


def test_what_is_called_different_is_counted():
    rng = np.random.default_rng(1)
    same = halves.simulated(rng, tasks=12, each=2)
    better = [halves.simulated(rng, 12, 2, gain) for gain in (-1.0, 1.0)]
    count = halves.fired(iter([(same, same), tuple(better)]))
    assert (count["pairs"], count["different"], count["outcome"]) == (2, 1, 1)
    figures = halves.rates("x", count)
    assert (figures["compare_x_different"], figures["compare_x_pairs"]) == (0.5, 2)
    assert figures["compare_x_different_low"] < 0.5 < figures["compare_x_different_high"]


def test_without_the_log_only_simulated_pairs_are_made():
    assert list(halves.series([], 1)) == ["null", "planted"]
    assert list(halves.series(halves.simulated(np.random.default_rng(0), 2, 1), 1)) == [
        "halves",
        "task_halves",
        "null",
        "planted",
    ]

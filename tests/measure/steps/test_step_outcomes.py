"""Groups and parts of the reward of one step, against a loop over groups."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest

from trimtab import token_batch
from trimtab.measure.steps.step_outcomes import part_columns, settled_columns


@pytest.mark.parametrize("bar", [None, 0.25, 1.0])
def test_solved_and_hopeless_groups_against_a_loop(bar: float | None) -> None:
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(12), 3)[rng.permutation(36)]
    flat = np.repeat([0.0, 0.5, 1.0, math.nan], 3)
    reward = np.where(group < 9, flat[np.minimum(group, 11)], rng.choice([0.0, 0.5, 1.0], 36))
    reward[rng.integers(0, 36, 3)] = math.nan
    by_group = defaultdict(list)
    for g, r in zip(group.tolist(), reward.tolist(), strict=True):
        if not math.isnan(r):
            by_group[g].append(r)
    counted = [rewards for rewards in by_group.values() if len(rewards) > 1]
    flats = [rewards[0] for rewards in counted if len(set(rewards)) == 1]
    limit = 0.5 if bar is None else bar
    columns: dict = {}
    settled_columns(group, reward, columns, bar)
    for name, hits in (
        ("solved", sum(r >= limit for r in flats)),
        ("hopeless", sum(r < limit for r in flats)),
    ):
        slices, of = columns[f"groups/{name}_frac"]
        frac = hits / len(counted)
        assert (slices, of.values.tolist()) == (("all",), [pytest.approx(frac)])
        assert of.errors.tolist() == [pytest.approx(math.sqrt(frac * (1 - frac) / (len(counted) - 1)))]
    assert 0 < len(flats) < len(counted)


def test_no_group_of_two_has_no_fraction() -> None:
    columns: dict = {}
    settled_columns(np.arange(4), np.ones(4), columns, None)
    assert columns == {}


def test_the_error_of_a_part_is_that_of_its_mean() -> None:
    parts = np.array([0.0, 1.0, 0.5, math.nan, 2.0, 0.25])
    batches = [
        token_batch(np.ones((3, 2), bool), reward_parts={"format": parts[at], "other": np.ones(3)})
        for at in (slice(0, 3), slice(3, 6))
    ]
    columns: dict = {}
    part_columns(batches, columns)
    slices, of = columns["reward_part/mean"]
    known = parts[~np.isnan(parts)]
    assert slices == ("reward/format", "reward/other")
    assert of.values.tolist() == pytest.approx([known.mean(), 1.0])
    assert of.errors.tolist() == pytest.approx([known.std() / math.sqrt(5), 0.0])

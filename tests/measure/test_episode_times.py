"""Order of policies, and the split of loads that leaves both sides enough episodes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from trimtab.catalog import bound
from trimtab.measure.traces.episode_times import high_load, version_ranks

NAN = float("nan")


def ranks(versions: list[str], version: list[int], time: list[float]) -> list[int]:
    table = SimpleNamespace(
        versions=versions, version=np.array(version), time=np.array(time), num_episodes=len(version)
    )
    return version_ranks(table).tolist()


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (["10", "9", "1e3"], [1, 0, 2]),
        (["step-10", "step-9", "step-2"], [2, 1, 0]),
        (["v1.10", "v1.9", "v0.99"], [2, 1, 0]),
    ],
)
def test_versions_that_differ_in_numbers_go_by_number(versions, expected) -> None:
    assert ranks(versions, [0, 1, 2], [3.0, 1.0, 2.0]) == expected


def test_other_versions_go_by_the_median_time_and_without_times_as_they_came() -> None:
    versions, version = ["base", "tuned", "never"], [0, 0, 0, 1, 1]
    assert ranks(versions, version, [50.0, 10.0, 60.0, 5.0, 40.0]) == [1, 0, 2]
    assert ranks(versions, version, [50.0, 10.0, NAN, 5.0, 40.0]) == [0, 1, 2]


def test_a_load_is_not_split_where_one_side_has_too_few_episodes() -> None:
    few = int(bound("trace_split_min")) - 1
    load = np.repeat([1.0, 2.0, 500.0], [30, 30, few])
    assert high_load(load) == 1.0
    assert high_load(np.append(load, 500.0)) == 2.0
    assert high_load(np.array([1.0, 1.0, 1.0, 7.0])) == 1.0  # no split leaves enough: any will do

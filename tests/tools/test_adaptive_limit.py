"""Steps of the adaptive limit, one round at a time, and where it settles on a target that refuses above its capacity."""

from __future__ import annotations

import pytest

from trimtab.tools.adaptive_limit import AdaptiveLimit, AdaptiveOptions
from trimtab.tools.limits import Limiter


def adaptive(initial: int) -> AdaptiveLimit:
    return AdaptiveLimit(Limiter(initial), AdaptiveOptions(initial=initial))


@pytest.mark.parametrize(
    ("num_failed", "limit"),
    [(2, 21), (3, 17), (5, 15), (20, 14)],  # of 24: too few, 0.875 -> 0.85, 1 - 5/24, at most 0.7
)
def test_a_round_with_more_failures_is_cut_deeper(num_failed: int, limit: int) -> None:
    one = adaptive(20)
    one.limiter.saturated = True
    one._growing = False
    for number in range(24):
        one.done(1.0, 1.1, congested=number < num_failed)
    assert one.limiter.limit == limit


def test_a_refusal_cuts_at_once_and_calls_of_the_old_limit_do_not_cut_again() -> None:
    one = adaptive(20)
    one.done(1.0, 2.0, congested=True, refused=True)
    assert one.limiter.limit == 17
    for _ in range(10):
        one.done(1.5, 2.5, congested=True, refused=True)  # sent before the cut
    assert one.limiter.limit == 17
    one.done(2.5, 3.0, congested=True, refused=True)
    assert one.limiter.limit == 14


@pytest.mark.parametrize("capacity", [5, 9, 16, 40])
def test_a_target_that_refuses_above_its_capacity_is_used_to_nine_tenths(capacity: int) -> None:
    """Each round asks `limit` calls at a time of a target that refuses what is above its capacity; the mean limit served is what counts."""
    one, now, served = adaptive(8), 0.0, []
    for _ in range(2000):
        limit = one.limiter.limit
        served.append(min(limit, capacity))
        one.limiter.saturated = True
        for number in range(limit):
            one.done(now, now + 0.1, congested=number >= capacity, refused=number >= capacity)
        now += 0.2
    assert max(served) == capacity
    assert sum(served[200:]) / len(served[200:]) >= 0.9 * capacity


def test_growth_after_an_outage_is_fast_up_to_the_first_cut_and_slow_beyond() -> None:
    """A breaker opens in an overload as well: fast growth past the level that failed would only fail again."""
    one = adaptive(20)
    one._growing = False
    now = 0.0

    def clean_round() -> int:
        nonlocal now
        now += 1.0
        one.limiter.saturated = True
        for _ in range(max(24, one.limiter.limit)):
            one.done(now, now + 0.1)
        return one.limiter.limit

    for _ in range(3):  # a series of cuts, the first one from 20 to 14
        now += 1.0
        for _ in range(24):
            one.done(now, now + 0.1, congested=True)
    assert one.limiter.limit == 6
    one.restart(now)
    assert [clean_round() for _ in range(5)] == [10, 14, 15, 16, 17]


def test_the_first_growth_is_fast_until_something_fails() -> None:
    one = adaptive(8)
    limits, now = [], 0.0
    for _ in range(4):
        now += 1.0
        one.limiter.saturated = True
        for _ in range(max(24, one.limiter.limit)):
            one.done(now, now + 0.1)
        limits.append(one.limiter.limit)
    assert limits == [12, 18, 27, 40]

"""ClusterTail: does the interval cover, when tokens of one trajectory move together?"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from trimtab.errors import SummaryError
from trimtab.stats import ClusterTail, ratio_interval
from trimtab.stats.histograms.bootstrap import factors


def tail_of(x: npt.ArrayLike, ids: npt.ArrayLike) -> ClusterTail:
    tail = ClusterTail()
    tail.update(np.asarray(x, dtype=np.float32), ids=ids)
    return tail


def coverage(
    groups: int, tokens: int, q: float, between: float, replicates: int = 400
) -> tuple[float, float]:
    """How often do the 95 % intervals of a quantile, and of a ratio of quantiles, hold the truth?

    log|x| is normal with a random mean for each trajectory; lengths vary.
    """
    rng = np.random.default_rng(7)
    truth = math.exp(-3.0 + math.hypot(1.0, between) * NormalDist().inv_cdf(q))
    hits = np.zeros(2)
    for _ in range(replicates):
        ids = np.repeat(np.arange(groups), rng.poisson(tokens, groups).clip(5))
        means = rng.normal(0.0, between, groups)[ids] - 3.0
        x, y = (np.exp(means + shift + rng.normal(size=ids.size)) for shift in (0.0, -0.5))
        a, b = tail_of(x, ids), tail_of(y, ids)
        low, high = a.abs_quantile_interval(q)
        point = np.quantile(x, q)
        hits[0] += point * low <= truth <= point * high
        low, high = ratio_interval(a, b, q)
        ratio = point / np.quantile(y, q)
        hits[1] += ratio * low <= math.exp(0.5) <= ratio * high
    return float(hits[0] / replicates), float(hits[1] / replicates)


@pytest.mark.parametrize(
    ("groups", "tokens", "between"),
    [(30, 60, 0.3), (30, 60, 0.5), (60, 60, 0.7), (64, 150, 0.5), (200, 40, 0.7)],
)
def test_intervals_cover_on_clustered_data(groups: int, tokens: int, between: float) -> None:
    one, ratio = coverage(groups, tokens, 0.95, between)
    assert 0.88 <= one <= 0.99
    assert 0.88 <= ratio <= 0.99


def test_one_case_of_coverage_in_every_run() -> None:
    one, ratio = coverage(40, 60, 0.95, 0.5, replicates=120)
    assert 0.87 <= one <= 1.0
    assert 0.87 <= ratio <= 1.0


def test_dependence_within_trajectories_widens_the_interval() -> None:
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(60), 100)
    free = tail_of(np.exp(rng.normal(-2.0, 1.0, ids.size)), ids)
    tied = tail_of(np.exp(rng.normal(-2.0, 1.0, 60)[ids]), ids)
    assert tied.log_se(0.95) > 3.0 * free.log_se(0.95)


def test_log_se_matches_the_spread_over_samples() -> None:
    rng = np.random.default_rng(2)
    ids = np.repeat(np.arange(60), 80)
    logs, errors = [], []
    for _ in range(60):
        x = np.exp(rng.normal(-2.0, 0.4, 60)[ids] + rng.normal(0.0, 1.0, ids.size))
        logs.append(math.log(np.quantile(x, 0.95)))
        errors.append(tail_of(x, ids).log_se(0.95))
    assert np.mean(errors) == pytest.approx(np.std(logs), rel=0.3)


def test_factors_surround_one_and_are_deterministic() -> None:
    rng = np.random.default_rng(1)
    tail = tail_of(rng.lognormal(-3.0, 1.0, 3_000), rng.integers(0, 10**12, 3_000))
    low, high = tail.abs_quantile_interval(0.99)
    assert low < 1.0 < high
    assert tail.abs_quantile_interval(0.99) == (low, high)
    narrow = tail.abs_quantile_interval(0.99, level=0.5)
    assert low < narrow[0] < narrow[1] < high
    assert ratio_interval(tail, tail, 0.9) == (1.0, 1.0)


def test_nothing_to_resample_is_nan() -> None:
    one = tail_of(np.linspace(0.1, 1.0, 50), np.full(50, 3))
    empty, tiny = ClusterTail(), tail_of(np.full(50, 1e-6), np.arange(50))
    for tail in (one, empty, tiny):
        assert all(math.isnan(v) for v in tail.abs_quantile_interval(0.9))
    assert math.isnan(one.log_se(0.9))
    assert math.isnan(empty.log_se(0.9))
    assert all(math.isnan(v) for v in ratio_interval(one, empty, 0.9))


def test_rows_ids_and_non_finite() -> None:
    table = ClusterTail(rows=3, clusters=8)
    x = np.array([0.5, np.nan, 2.0, np.inf, -1.0], dtype=np.float32)
    table.update(x, np.array([0, 1, 1, 2, 2]), np.array([-1, 5, 8, 8, 16]))
    both = table.select([1, 2])
    assert (both.count, both.num_clusters) == (2, 1)
    assert table.select([0]).num_clusters == 1
    assert table._non_finite.tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    for rows, ids in (([0], None), ([0], [0.5]), ([5], [1]), ([0], [1, 2])):
        with pytest.raises(SummaryError):
            table.update(np.ones(1, dtype=np.float32), rows, ids)
    with pytest.raises(SummaryError, match="one row"):
        table.count  # noqa: B018
    for ask in (
        lambda: both.abs_quantile_interval(1.0),
        lambda: both.abs_quantile_interval(0.9, level=0.0),
        lambda: ratio_interval(both, ClusterTail(), 0.9),
    ):
        with pytest.raises(SummaryError):
            ask()


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.uint64])
@pytest.mark.parametrize("clusters", [300, 512])
def test_ids_of_any_integer_type_fall_in_the_same_cluster(kind: type, clusters: int) -> None:
    ids = np.arange(200)
    want, got = ClusterTail(clusters=clusters), ClusterTail(clusters=clusters)
    want.update(np.ones(200, dtype=np.float32), ids=ids)
    got.update(np.ones(200, dtype=np.float32), ids=ids.astype(kind))
    assert got == want


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_few_trajectories_widen_the_interval_as_student_s_t_does(level: float) -> None:
    """Against numpy's quantile and scipy's t over normal quantile; the correction is of first order in 1/groups."""
    logs = np.append(0.5, 0.5 + np.random.default_rng(4).normal(size=500))
    logs[7] = math.nan
    tails = ((1 - level) / 2, (1 + level) / 2)
    for groups in (20, 60, 1000):
        ratio = stats.t.ppf(tails[1], groups - 1) / stats.norm.ppf(tails[1])
        expected = np.nanquantile(logs[1:] - 0.5, tails) * math.sqrt(groups / (groups - 1)) * ratio
        assert np.log(factors(logs, groups, level)) == pytest.approx(expected, rel=0.01)

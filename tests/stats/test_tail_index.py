"""Tail indices against scipy and closed forms; do their intervals cover, when tokens of one trajectory move together?"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats as scipy_stats

from trimtab.errors import SummaryError
from trimtab.stats import (
    ClusterTail,
    LogSketch,
    hill,
    mean_exp_factor,
    pareto_khat,
    pareto_tail_size,
    tail_replicates,
)
from trimtab.stats.generalized_pareto import gpd_shapes
from trimtab.stats.tail_index import hill_sweep

Float64 = npt.NDArray[np.float64]


def top(x: Float64) -> Float64:
    return np.sort(x)[::-1][: pareto_tail_size(x.size) + 1]


def test_hill_is_the_mean_excess_of_logs_over_its_sweep():
    logs = np.sort(np.random.default_rng(3).exponential(size=5_000))[::-1]
    each = [np.mean([logs[i] - logs[m] for i in range(m)]) for m in hill_sweep(5_000)]
    fit = hill(logs[: pareto_tail_size(5_000) + 1], 5_000)
    assert fit.hill == pytest.approx(np.median(each), rel=1e-12)
    assert (fit.minimum, fit.maximum) == (pytest.approx(min(each)), pytest.approx(max(each)))


@pytest.mark.parametrize("index", [0.2, 0.5, 1.0, 1.5])
def test_hill_recovers_the_index_of_a_pareto(index: float):
    found = [
        hill(top(index * np.random.default_rng(s).exponential(size=10_000)), 10_000).hill for s in range(60)
    ]
    assert np.mean(found) == pytest.approx(index, rel=0.04)
    assert np.std(found) < 1.5 * index / math.sqrt(150)


def test_hill_has_an_answer_for_every_odd_tail():
    assert "25" in hill(np.zeros(10), 24).reason
    assert hill([0.0] * 60, 300).reason == "equal values"
    ties = hill([2.0] * 30 + [1.0] * 40, 300)  # sweep 13..52: the first cutoffs are ties, the rest are not
    assert 0.0 < ties.hill < 1.0
    assert "unstable" in hill([8.0] * 5 + list(np.linspace(1.0, 0.0, 60)), 300).reason
    zeros = hill([1.0] * 4 + [-math.inf] * 50, 300)
    assert math.isnan(zeros.hill)
    assert "only 4 tail values above 0" in zeros.reason
    assert hill([3.0, 2.5, 2.0, 1.5, 1.0, 0.5], 25).tail_size == 5
    assert hill([3.0, 2.5, 2.0, 1.5, 1.0], 25).reason == "only 5 tail values above 0, an estimate needs 6"
    assert hill_sweep(0).tolist() == []
    for bad in ([1.0, 2.0], [math.nan], [math.inf], [1.0] * 50):
        with pytest.raises(SummaryError):
            hill(bad, 40)


@pytest.mark.parametrize("shape", [-0.2, 0.0, 0.3, 0.8])
def test_gpd_shape_against_scipy_maximum_likelihood(shape: float):
    x = np.sort(scipy_stats.genpareto.rvs(shape, size=3_000, random_state=1))
    mle = scipy_stats.genpareto.fit(x, floc=0.0)[0]
    assert gpd_shapes(x, np.ones((1, x.size)))[0] == pytest.approx(mle, abs=0.02)


def test_weights_of_the_gpd_are_repetitions():
    x = np.sort(scipy_stats.genpareto.rvs(0.4, size=400, random_state=2))
    times = np.random.default_rng(0).integers(0, 3, 400)
    once, weighted = gpd_shapes(x, np.stack((np.ones(400), times.astype(float))))
    assert weighted == pytest.approx(gpd_shapes(np.repeat(x, times), np.ones((1, times.sum())))[0], abs=0.01)
    assert once != weighted


def clustered(rng: np.random.Generator, between: float) -> tuple[Float64, npt.NDArray[np.int64]]:
    """Laplace x of scale 0.08, so w is Pareto of index 0.08, in 50 trajectories of 60 with a factor each."""
    ids = np.repeat(np.arange(50), 60)
    return rng.laplace(0.0, 0.08, ids.size) * np.exp(between * rng.normal(size=50)[ids]), ids


def summaries(x: Float64, ids: npt.NDArray[np.int64]) -> tuple[LogSketch, ClusterTail, ClusterTail]:
    sketch, sizes, rises = LogSketch(), ClusterTail(), ClusterTail()
    sketch.update(x)
    sizes.update(x, ids=ids)
    rises.update(x[x > 0], ids=ids[x > 0])
    return sketch, sizes, rises


def test_the_margins_are_the_spread_of_repeated_experiments():
    """The standard deviation of an estimate over 150 independent clustered samples, against its bootstrap margin."""
    rng, points, margins = np.random.default_rng(5), [], []
    for _ in range(150):
        x, ids = clustered(rng, 0.3)
        sketch, sizes, rises = summaries(x, ids)
        size, signed = np.abs(x), tail_replicates(sketch, sizes, rises)
        plain, low = tail_replicates(sketch, sizes), signed.mirrored()
        points.append((
            math.log(hill(top(np.log(size)), x.size).hill), pareto_khat(top(np.log(size)), x.size).khat,
            math.log(hill(top(x), x.size).hill), math.log(hill(top(-x), x.size).hill),
            pareto_khat(top(x), x.size).khat, math.log(np.mean(np.exp(2 * x))),
        ))  # fmt: skip
        margins.append((
            math.log(plain.hill_factor(np.log(plain.values))), plain.gpd_margin(plain.values),
            math.log(signed.hill_factor(signed.values)), math.log(low.hill_factor(low.values)),
            signed.gpd_margin(np.exp(signed.values - signed.values[0])),
            math.log(mean_exp_factor(sketch, 2.0, sizes, rises)),
        ))  # fmt: skip
    ratio = np.median(margins, axis=0) / 2.0 / np.std(points, axis=0)
    assert ratio == pytest.approx(np.full(6, 1.0), abs=0.35)  # the GPD shape of |x| is the narrow one: 0.68


def test_each_side_of_a_signed_stream_is_resampled_as_if_it_were_alone():
    x, ids = clustered(np.random.default_rng(9), 0.3)
    signed = tail_replicates(*summaries(x, ids))
    low, high = (tail_replicates(*summaries(x[side], ids[side])[:2]) for side in (x <= 0, x > 0))
    assert low.groups == high.groups == signed.groups == 50
    np.testing.assert_allclose(signed.factors, np.hstack([low.factors, high.factors]))


def test_a_burst_in_one_trajectory_widens_the_interval():
    rng = np.random.default_rng(6)
    x, ids = clustered(rng, 0.0)
    burst = np.sort(np.abs(x))[-60:]
    alone, spread = x.copy(), x.copy()
    alone[ids == 7] = burst
    spread[rng.permutation(x.size)[:60]] = burst
    wide, narrow = (tail_replicates(*summaries(values, ids)[:2]) for values in (alone, spread))
    wider, narrower = (math.log(t.hill_factor(np.log(t.values))) for t in (wide, narrow))
    assert wider > 1.15 * narrower


def test_one_cluster_and_nothing_at_all_have_no_interval():
    x = np.random.default_rng(1).normal(size=300)
    one = tail_replicates(*summaries(x, np.zeros(300, np.int64)))
    assert math.isnan(one.hill_factor(one.values))
    assert math.isnan(one.gpd_margin(np.exp(one.values)))
    empty = tail_replicates(LogSketch(), ClusterTail(), ClusterTail())
    assert math.isnan(empty.hill_factor(empty.values))
    assert math.isnan(empty.gpd_margin(empty.values))
    assert math.isnan(mean_exp_factor(LogSketch(), 2.0, ClusterTail(), ClusterTail()))


def test_a_tail_narrower_than_the_coarse_buckets_has_no_interval():
    """All of it in one bucket: every replicate would be the same, and the interval falsely of no width."""
    x = np.random.default_rng(2).uniform(0.9, 1.0, 3_000)
    thin = tail_replicates(*summaries(x, np.arange(3_000) % 50)[:2])
    assert math.isnan(thin.hill_factor(np.log(thin.values)))
    assert math.isnan(thin.gpd_margin(thin.values))

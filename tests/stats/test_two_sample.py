"""Two-sample statistics of histograms against scipy on the values themselves; the level of the clustered KS test."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats as scipy_stats

from trimtab.errors import SummaryError
from trimtab.stats import ClusterTail, LogSketch, design_effect, ks_critical, ks_distance, wasserstein1

Float64 = npt.NDArray[np.float64]


def counts_of(x: Float64) -> tuple[npt.NDArray[np.int64], Float64]:
    sketch = LogSketch()
    sketch.update(x)
    return sketch.abs_counts()


CASES = {
    "shifted": lambda rng: (rng.lognormal(-3, 1, 4_000), rng.lognormal(-2.8, 1, 5_000)),
    "stretched": lambda rng: (rng.normal(0, 0.1, 4_000), 0.1 * rng.standard_t(2, 4_000)),
    "crossing": lambda rng: (rng.uniform(0, 2, 4_000), rng.uniform(0.8, 1.2, 4_000)),
    "zeros": lambda rng: (np.zeros(3_000), rng.choice([0.0, 0.5], 4_000)),
    "beyond the grid": lambda rng: (rng.uniform(60, 300, 4_000), rng.uniform(60, 300, 4_000)),
    "same": lambda rng: (rng.lognormal(-3, 1, 4_000), rng.lognormal(-3, 1, 4_000)),
}


@pytest.mark.parametrize("case", CASES)
def test_distances_against_scipy(case: str):
    one, two = CASES[case](np.random.default_rng(2))
    (a, edges), (b, more) = counts_of(one), counts_of(two)
    exact = scipy_stats.ks_2samp(np.abs(one), np.abs(two)).statistic
    assert ks_distance(a, b) <= exact + 1e-12
    if case != "beyond the grid":  # one bucket there
        assert ks_distance(a, b) == pytest.approx(exact, abs=0.01)
    size = float(np.mean(np.abs(np.concatenate((one, two)))))
    area = scipy_stats.wasserstein_distance(np.abs(one), np.abs(two))
    tolerance = 0.3 if case == "beyond the grid" else 0.02
    assert wasserstein1(a, b, np.maximum(edges, more)) == pytest.approx(area, rel=0.03, abs=tolerance * size)


def test_critical_value_against_scipy():
    assert ks_critical(500, 800) == pytest.approx(
        scipy_stats.kstwobign.isf(0.05) * math.sqrt(1300 / 400_000), rel=0.001
    )
    assert math.isnan(ks_critical(0, 10))


def test_design_effect_of_a_random_intercept_is_one_plus_its_intraclass_correlation():
    """deff = 1 + (m - 1) rho for clusters of m, rho the correlation of the indicators of one bucket end."""
    rng, m = np.random.default_rng(3), 40
    z = rng.normal(size=(20_000, 2)) * math.sqrt(0.8) + rng.normal(size=(20_000, 1)) * math.sqrt(0.2)
    rho = np.corrcoef((z < 0).T)[0, 1]
    z = rng.normal(size=(3_000, m)) * math.sqrt(0.8) + rng.normal(size=(3_000, 1)) * math.sqrt(0.2)
    low = (z < 0).sum(axis=1)
    assert design_effect(np.stack((low, m - low), axis=1)) == pytest.approx(1 + (m - 1) * rho, rel=0.12)
    independent = rng.binomial(m, 0.3, 3_000)
    assert design_effect(np.stack((independent, m - independent), axis=1)) == pytest.approx(1.0, abs=0.06)


def test_design_effect_of_two_opposite_clusters():
    """All of 10 tokens below, all of 10 above: the variance between two clusters has one degree of freedom."""
    assert design_effect(np.array([[10, 0], [0, 10]])) == pytest.approx(20.0)


def test_empty_and_single_clusters():
    empty, some = np.zeros(3, np.int64), np.array([1, 0, 2])
    assert math.isnan(ks_distance(empty, some))
    assert math.isnan(wasserstein1(empty, some, np.arange(4.0)))
    assert math.isnan(design_effect(some[None]))
    assert math.isnan(design_effect(np.array([[5, 0], [7, 0]])))
    with pytest.raises(SummaryError):
        ks_distance(some, np.zeros(4, np.int64))
    with pytest.raises(SummaryError):
        wasserstein1(some, some, np.array([0.0, 1.0, 2.0, math.inf]))


@pytest.mark.parametrize(("groups", "tokens", "between"), [(40, 60, 0.0), (40, 60, 0.4), (200, 30, 0.4)])
def test_the_level_holds_for_clustered_tokens(groups: int, tokens: int, between: float):
    """Two windows of the same process: the share of KS levels above 1 is near 5 %, where the naive test has far more."""
    rng, hits, naive, repeats = np.random.default_rng(4), 0, 0, 250
    ids = np.repeat(np.arange(groups), tokens)
    for _ in range(repeats):
        both = []
        for _window in range(2):
            x = np.exp(rng.normal(size=ids.size) + between * rng.normal(size=groups)[ids] - 3.0)
            tail = ClusterTail()
            tail.update(x, ids=ids)
            both.append((counts_of(x)[0], ids.size / design_effect(tail.cluster_counts())))
        (a, n_a), (b, n_b) = both
        hits += ks_distance(a, b) > ks_critical(n_a, n_b)
        naive += ks_distance(a, b) > ks_critical(ids.size, ids.size)
    assert hits / repeats <= 0.09
    assert naive >= hits
    if between:
        assert naive / repeats > 0.2
        assert hits > 0

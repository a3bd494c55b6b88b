"""LogMoments, Moments, TopK and CategoryCounts: closed forms, numpy as the oracle, edges."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.stats.distributions import MAKERS, stream
from trimtab.errors import SummaryError
from trimtab.stats import CategoryCounts, LogMoments, Moments, TopK


def log_moments(x: object) -> LogMoments:
    out = LogMoments()
    out.update(x)  # type: ignore[arg-type]
    return out


@pytest.mark.parametrize("s", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("shift", [0.0, -5e3, 5e3, 1e6])
def test_lognormal_ess_is_exp_minus_s_squared(s: float, shift: float) -> None:
    weights = log_moments(np.random.default_rng(1).normal(shift, s, 400_000))
    assert weights.ess_frac() == pytest.approx(math.exp(-(s**2)), rel=0.03)
    assert weights.log_mean() - shift == pytest.approx(s**2 / 2, abs=0.01)
    assert weights.log_mean_square() - 2 * shift == pytest.approx(2 * s**2, abs=0.05)


def test_ess_of_equal_and_of_dominated_weights() -> None:
    assert log_moments(np.full(7, -800.0)).ess() == pytest.approx(7.0)
    assert log_moments([0.0] * 99 + [900.0]).ess() == pytest.approx(1.0)
    assert log_moments([3.0]).ess_frac() == 1.0


def test_ess_is_not_floored_by_a_clamp() -> None:
    """50 of 100,000 weights of e^2..e^8: a clamped ESS reads 0.999 (facts/diagnostics.md 2.2)."""
    logs = np.zeros(100_000)
    logs[:50] = np.linspace(2.0, 8.0, 50)
    assert log_moments(logs).ess_frac() < 0.02


@pytest.mark.parametrize("make", [LogMoments, Moments, TopK])
def test_empty_is_nan_and_non_finite_counted_apart(make: type) -> None:
    summary = make()
    summary.update(stream("nan and inf"))
    x = stream("nan and inf")
    assert summary.count == np.isfinite(x).sum()
    assert summary.num_nan == np.isnan(x).sum()
    assert summary.num_posinf == np.isposinf(x).sum()
    assert summary.num_neginf == np.isneginf(x).sum()
    with pytest.raises(SummaryError, match="shape"):
        summary.update(np.ones((2, 2)))
    with pytest.raises(SummaryError, match="shape"):
        summary.update(np.array(["a"]))


def test_empty_values_are_nan() -> None:
    weights, plain = LogMoments(), Moments()
    for value in (
        weights.ess(),
        weights.ess_frac(),
        weights.log_mean(),
        weights.log_mean_square(),
        weights.max,
    ):
        assert math.isnan(value)
    for value in (plain.mean(), plain.variance(), plain.max, plain.min, weights.min):
        assert math.isnan(value)
    assert TopK().values().size == 0


@pytest.mark.parametrize("name", MAKERS)
def test_moments_match_numpy(name: str) -> None:
    x = stream(name).astype(np.float64)
    summary = Moments()
    summary.update(x)
    x = x[np.isfinite(x)]
    if x.size:
        assert summary.mean() == pytest.approx(x.mean(), rel=1e-12, abs=1e-12 * np.abs(x).max())
        assert summary.variance() == pytest.approx(x.var(), rel=1e-9, abs=1e-12 * np.square(x).mean())
        assert (summary.min, summary.max) == (x.min(), x.max())


@pytest.mark.parametrize("name", MAKERS)
def test_top_k_is_exact(name: str) -> None:
    x = np.tile(stream(name), 5)
    rows = np.arange(x.size) * 3 % 4
    one, table = TopK(k=60), TopK(rows=4, k=60)
    for start in range(0, x.size, 700):
        part = slice(start, start + 700)
        one.update(x[part])
        table.update(x[part], rows[part])
    finite = np.sort(x[np.isfinite(x)])[::-1]
    assert one.values().tolist() == finite[:60].tolist()
    assert one.count == table.select(range(4)).count == finite.size
    assert table.select(range(4)).values().tolist() == finite[:60].tolist()
    row = x[rows == 2]
    assert table.select([2]).values().tolist() == np.sort(row[np.isfinite(row)])[::-1][:60].tolist()


def test_top_k_refuses_what_it_cannot_answer() -> None:
    with pytest.raises(SummaryError, match="one row"):
        TopK(rows=2).values()
    with pytest.raises(SummaryError, match="k must be"):
        TopK(k=0)
    with pytest.raises(SummaryError, match="row 2"):
        TopK(rows=2).update([1.0], [2])


def test_categories_are_counted_in_their_own_rows() -> None:
    rng = np.random.default_rng(3)
    codes, rows = rng.integers(0, 4, 500), rng.integers(0, 3, 500)
    counts = CategoryCounts(3, 4)
    counts.update(codes, rows)
    for row in range(3):
        assert counts.select([row]).counts().tolist() == np.bincount(codes[rows == row], minlength=4).tolist()
    alone = CategoryCounts(1, 4)
    alone.update(codes)
    assert alone.counts().tolist() == np.bincount(codes, minlength=4).tolist()

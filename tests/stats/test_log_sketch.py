"""LogSketch against exact order statistics, exact sums and closed forms."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stats.distributions import stream
from trimtab.errors import SummaryError
from trimtab.stats import LogSketch

QUANTILES = (0.01, 0.1, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0)
IN_RANGE = ("constant", "lognormal", "student-t 2", "uniform", "blow-ups", "sorted", "alternating", "bimodal")


def sketch_of(x: npt.ArrayLike) -> LogSketch:
    sketch = LogSketch()
    sketch.update(x)
    return sketch


def order_statistic(x: npt.NDArray[np.floating], q: float) -> float:
    return float(np.sort(x)[max(1, math.ceil(q * x.size * (1 - 1e-15))) - 1])


@pytest.mark.parametrize("name", IN_RANGE)
@pytest.mark.parametrize("seed", [0, 1])
def test_quantiles_are_within_1_6_percent_of_the_order_statistic(name: str, seed: int) -> None:
    x = stream(name, seed)
    sketch = sketch_of(x)
    for q in QUANTILES:
        assert sketch.abs_quantile(q) == pytest.approx(order_statistic(np.abs(x), q), rel=0.016, abs=2.0**-24)
        assert sketch.quantile(q) == pytest.approx(order_statistic(x, q), rel=0.016, abs=2.0**-24)


@given(st.lists(st.floats(2.0**-23, 63.0, width=32), min_size=1, max_size=60), st.floats(0.0, 1.0))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_quantile_error_bound_holds_for_any_values(values: list[float], q: float) -> None:
    x = np.array(values, dtype=np.float32) * np.where(np.arange(len(values)) % 2, -1, 1).astype(np.float32)
    sketch = sketch_of(x)
    assert sketch.abs_quantile(q) == pytest.approx(order_statistic(np.abs(x), q), rel=0.016)
    assert sketch.quantile(q) == pytest.approx(order_statistic(x, q), rel=0.016)
    assert sketch.min <= sketch.quantile(q) <= sketch.max


@pytest.mark.parametrize("name", [*IN_RANGE, "cauchy", "huge", "tiny", "zeros", "integers", "ties"])
def test_ends_are_exact(name: str) -> None:
    x = stream(name)
    sketch = sketch_of(x)
    assert (sketch.quantile(0.0), sketch.quantile(1.0)) == (x.min(), x.max())
    assert (sketch.min, sketch.max) == (x.min(), x.max())
    assert sketch.abs_quantile(1.0) == sketch.abs_max == np.abs(x).max()


@pytest.mark.parametrize("name", [*IN_RANGE, "tiny", "zeros", "integers", "ties"])
def test_sums_match_float64(name: str) -> None:
    x = stream(name)
    sketch, wide = sketch_of(x), x.astype(np.float64)
    assert sketch.mean() == pytest.approx(wide.mean(), abs=2e-7 * np.abs(wide).mean())
    assert sketch.variance() == pytest.approx(wide.var(), abs=3e-7 * np.square(wide).mean())
    for power in (1, 2, -1):
        assert sketch.log_mean_exp(power) == pytest.approx(
            np.log(np.exp(power * wide).mean()), rel=1e-6, abs=2e-7
        )


@pytest.mark.parametrize("size", [1e-5, 1e-4, 1e-3])
def test_a_tiny_k3_is_not_drowned_by_rounding(size: float) -> None:
    x = np.random.default_rng(0).normal(0.0, size, 100_000).astype(np.float32)
    sketch = sketch_of(x)
    k3 = math.expm1(sketch.log_mean_exp(1)) - sketch.mean()
    assert k3 == pytest.approx(size**2 / 2, rel=0.02)


@pytest.mark.parametrize("centre", [-1e4, -400.0, -31.0, 0.0, 31.0, 44.0, 89.0, 400.0, 1e4])
def test_log_means_of_any_magnitude_are_finite_and_right(centre: float) -> None:
    x = (centre + np.linspace(-2.0, 2.0, 501)).astype(np.float32)
    sketch, wide = sketch_of(x), x.astype(np.float64)
    for power in (1, 2, -1):
        top = (power * wide).max()
        want = top + np.log(np.exp(power * wide - top).mean())
        assert sketch.log_mean_exp(power) == pytest.approx(want, rel=1e-6, abs=1e-6)


def test_shift_moves_with_the_stream() -> None:
    parts = [np.full(100, value, dtype=np.float32) for value in (-1e4, 0.0, 250.0, 1e4, -500.0)]
    forth, back = LogSketch(), LogSketch()
    for part in parts:
        forth.update(part)
    for part in reversed(parts):
        back.update(part)
    for power, want in ((1, 1e4 - math.log(5)), (2, 2e4 - math.log(5)), (-1, 1e4 - math.log(5))):
        assert forth.log_mean_exp(power) == pytest.approx(want, rel=1e-12)
        assert back.log_mean_exp(power) == pytest.approx(want, rel=1e-12)


def test_lognormal_weights_have_the_closed_form_ess() -> None:
    s = 0.8
    sketch = sketch_of(np.random.default_rng(3).normal(0.0, s, 400_000))
    assert 2 * sketch.log_mean_exp(1) - sketch.log_mean_exp(2) == pytest.approx(-(s**2), abs=0.02)


def test_shares_match_counting() -> None:
    x = stream("lognormal", 4)
    sketch = sketch_of(x)
    for bound in (0.0, 0.01, 0.05, 0.3, 2.0):
        assert sketch.abs_exceedance(bound) == pytest.approx((np.abs(x) > bound).mean(), abs=0.004)
        assert sketch.share_below(bound) == pytest.approx((x < bound).mean(), abs=0.004)
        assert sketch.share_below(-bound) == pytest.approx((x < -bound).mean(), abs=0.004)


def test_shares_at_atoms_and_beyond_the_ends() -> None:
    sketch = sketch_of([0.0, -0.0, 1.0, -1.0])
    assert [sketch.abs_exceedance(t) for t in (-1.0, 0.0, 1.0, 9.0)] == [1.0, 0.5, 0.0, 0.0]
    assert sketch.share_below(-1.0) == 0.0
    assert sketch.share_below(5.0) == 1.0
    assert sketch_of([1.0, 1.0]).share_below(1.0) == 0.0


def test_cdf_ends_at_one_and_follows_the_empirical_one() -> None:
    x = np.abs(stream("student-t 2", 1))
    edges, share = sketch_of(x).abs_cdf()
    assert share[-1] == 1.0
    assert edges[-1] == x.max()
    assert np.all(np.diff(edges) > 0)
    assert share == pytest.approx([(x <= e).mean() for e in edges], abs=1e-3)


@pytest.mark.parametrize("name", ["lognormal", "uniform", "student-t 2"])
def test_top_share_of_mass(name: str) -> None:
    x = np.sort(np.abs(stream(name)).astype(np.float64))[::-1]
    for fraction in (0.01, 0.1, 0.5, 1.0):
        want = x[: math.ceil(fraction * x.size)].sum() / x.sum()
        assert sketch_of(x).abs_mass_top_share(fraction) == pytest.approx(want, rel=0.016)


@pytest.mark.parametrize("name", ["lognormal", "student-t 2", "integers", "bimodal"])
def test_tail_values_are_near_the_real_ones(name: str) -> None:
    x = np.sort(stream(name).astype(np.float64))
    sketch = sketch_of(x)
    for k in (1, 5, 95):
        assert sketch.tail_values("upper", k) == pytest.approx(x[::-1][:k], rel=0.032, abs=1e-6)
        assert sketch.tail_values("lower", k) == pytest.approx(x[:k], rel=0.032, abs=1e-6)
    assert sketch.tail_values("upper", 10_000).size == x.size
    assert sketch.tail_values("upper", 0).size == 0


def test_empty_is_nan_not_zero() -> None:
    sketch = sketch_of([])
    values = [sketch.mean(), sketch.variance(), sketch.max, sketch.min, sketch.abs_max]
    values += [
        sketch.quantile(0.5),
        sketch.abs_quantile(1.0),
        sketch.abs_exceedance(0.1),
        sketch.share_below(0.0),
    ]
    values += [sketch.log_mean_exp(p) for p in (1, 2, -1)] + [sketch.abs_mass_top_share(0.1)]
    assert sketch.count == 0
    assert all(math.isnan(v) for v in values)
    assert sketch.tail_values("upper", 5).size == 0
    assert [a.size for a in sketch.abs_cdf()] == [0, 0]


def test_non_finite_values_are_counted_apart() -> None:
    x = stream("nan and inf")
    sketch, finite = sketch_of(x), x[np.isfinite(x)]
    assert sketch.num_nan == np.isnan(x).sum()
    assert sketch.num_posinf == np.isposinf(x).sum()
    assert sketch.num_neginf == np.isneginf(x).sum()
    assert sketch.count == finite.size
    assert sketch == _with_non_finite(sketch_of(finite), sketch)


def _with_non_finite(sketch: LogSketch, other: LogSketch) -> LogSketch:
    sketch._non_finite[...] = other._non_finite
    return sketch


def test_chunks_rows_and_input_kinds_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(0.0, 1.0, 300_001).astype(np.float32)
    x[rng.integers(0, x.size, 50)] = np.nan
    for num_rows in (2, 20, 300):
        rows = rng.integers(0, num_rows, x.size)
        table = LogSketch(rows=num_rows)
        table.update(x, rows)
        for row in (0, num_rows - 1):
            alone = sketch_of(x[rows == row])
            assert np.array_equal(table.select([row])._counts, alone._counts)
            assert table.select([row])._sums == pytest.approx(alone._sums, rel=1e-6, abs=1e-7 * alone.count)
            assert table.select([row]).num_nan == alone.num_nan
        assert table.select(range(num_rows)).count == np.isfinite(x).sum()
    strided, fortran = np.repeat(x, 2)[::2], x.astype(np.float64)
    assert sketch_of(strided) == sketch_of(x) == sketch_of(fortran)


def test_bad_input_is_named_and_adds_nothing() -> None:
    sketch = LogSketch(rows=3)
    one = np.ones(1, dtype=np.float32)
    for rows, text in (
        ([3], "row 3"),
        ([-1], "row -1"),
        ([0, 1], "shape"),
        ([0.0], "integers"),
        (None, "needs the row"),
    ):
        with pytest.raises(SummaryError, match=text):
            sketch.update(one, rows)
    with pytest.raises(SummaryError, match="ravel"):
        sketch.update(np.ones((2, 2)), [[0, 0], [0, 0]])
    assert sketch.select([0, 1, 2]).count == 0
    with pytest.raises(SummaryError, match="one row"):
        sketch.mean()
    with pytest.raises(SummaryError, match="row 7"):
        sketch.select([7])
    with pytest.raises(SummaryError, match="twice"):
        sketch.select([1, 1])


def test_bad_questions_are_refused() -> None:
    sketch = sketch_of([1.0])
    for ask in (
        lambda: sketch.quantile(1.5),
        lambda: sketch.log_mean_exp(3),
        lambda: sketch.tail_values("left", 3),
        lambda: sketch.tail_values("upper", -1),
        lambda: sketch.abs_mass_top_share(2.0),
        lambda: LogSketch(mantissa_bits=9),
        lambda: LogSketch(rows=0),
        lambda: LogSketch(lowest_exponent=3, highest_exponent=3),
    ):
        with pytest.raises(SummaryError):
            ask()


def test_sizes_stay_within_their_budget() -> None:
    assert LogSketch(rows=20).nbytes <= 400_000
    x = np.random.default_rng(0).lognormal(-6.0, 1.0, 1_000) * np.tile([-1, 1], 500)
    assert len(sketch_of(x).to_bytes()) <= 600
    assert len(sketch_of([]).to_bytes()) <= 80


EARLIER = (
    "54534c53019a388adf78da63e1d2e761fdc82ab0887d117b032318b0303003492646460630f8620fa1ff4269410730256000a21bb28e"
    "88826807dd2a0d10bd20fd2533885678fdc11b2c6fe6bb1cccffd5f812aaffc17e087d01caff00a5051c00d62f1760"
)
"""A sketch of two rows, written on 23 November 2026: 1, -0.5, nan and 0.75; 0.25, 4, nan, nan, inf and -inf."""


def test_bytes_that_were_written_earlier_read_the_same() -> None:
    sketch = LogSketch.from_bytes(bytes.fromhex(EARLIER))
    rows = [sketch.select([row]) for row in (0, 1)]
    assert [(r.count, r.num_nan, r.num_posinf, r.num_neginf, r.min, r.max) for r in rows] == [
        (3, 1, 0, 0, -0.5, 1.0), (2, 2, 1, 1, 0.25, 4.0),
    ]  # fmt: skip

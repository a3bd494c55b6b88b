"""k-hat against arviz-stats, and how much a thinner or a reconstructed tail moves it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from trimtab.errors import SummaryError
from trimtab.stats import LogSketch, ParetoFit, TopK, khat_bound, pareto_khat, pareto_tail_size

arviz = pytest.importorskip("arviz_stats.base", reason="arviz-stats is the oracle")
if not hasattr(arviz.array_stats, "psislw"):
    pytest.skip("this arviz-stats (Python 3.10's) has no psislw to compare with", allow_module_level=True)

Float64 = npt.NDArray[np.float64]


def log_weights(kind: str, n: int, seed: int = 0) -> Float64:
    rng = np.random.default_rng(seed)
    if kind.startswith("pareto"):
        return float(kind.split()[1]) * rng.exponential(size=n)
    if kind.startswith("normal"):
        return rng.normal(0.0, float(kind.split()[1]), n)
    bulk = rng.normal(0.0, 0.01, n)  # a mismatch: tight bulk, fat 3 %
    fat = rng.random(n) < 0.03
    bulk[fat] = rng.laplace(0.0, 0.5, int(fat.sum()))
    return bulk


KINDS = (
    "pareto 0.2",
    "pareto 0.5",
    "pareto 0.9",
    "pareto 1.5",
    "normal 0.3",
    "normal 1",
    "normal 3",
    "mismatch",
)


def full_fit(x: Float64) -> ParetoFit:
    return pareto_khat(np.sort(x)[::-1], x.size)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [25, 60, 300, 1_000, 20_000])
def test_same_number_as_arviz_on_the_same_tail(kind: str, n: int) -> None:
    x = log_weights(kind, n)
    tail = int(min(0.2 * n, 3 * math.sqrt(n)))  # arviz rounds down, loo and we round up
    fit = pareto_khat(np.sort(x)[::-1], n, tail_size=tail)
    assert fit.khat == pytest.approx(float(arviz.array_stats.psislw(-x)[1]), abs=1e-9)
    assert full_fit(x).khat == pytest.approx(fit.khat, abs=0.08)


@pytest.mark.parametrize("shape", [0.3, 0.5, 0.7, 1.0, 1.5])
def test_recovers_the_shape_of_a_pareto(shape: float) -> None:
    """The asymptotic standard error is (1 + k) / sqrt(M); the prior pulls by 10 draws at 0.5."""
    fits = [full_fit(log_weights(f"pareto {shape}", 20_000, seed)) for seed in range(20)]
    tail = fits[0].tail_size
    want = (tail * shape + 10 * 0.5) / (tail + 10)
    assert np.mean([fit.khat for fit in fits]) == pytest.approx(
        want, abs=3 * (1 + shape) / math.sqrt(20 * tail)
    )


def test_a_shift_of_any_size_changes_nothing() -> None:
    x = np.sort(log_weights("normal 1", 2_000))[::-1]
    want = pareto_khat(x, x.size).khat
    for shift in (-1e4, 700.0, 1e4):
        assert pareto_khat(x + shift, x.size).khat == pytest.approx(want, rel=1e-6)


def test_weights_that_underflow_each_other_still_have_a_khat() -> None:
    fit = full_fit(np.random.default_rng(0).normal(0.0, 3_000.0, 1_000))
    assert fit.khat > 5.0
    assert fit.reason == ""


# n -> limits of |mean| and of the worst |khat - full khat| over seeds. Measured on 20 seeds of every kind (8 at 10^6):
# top 512 at 10^5: mean up to .034, worst .244; at 10^6: .078, .160. Rebuilt: mean up to .009 everywhere, worst .086,
# .071, .024, .016 from 10^3 up: from 30,000 draws on the rebuilt tail is the better one.
TOP_512 = {10**3: (0.0, 0.0), 10**4: (0.0, 0.0), 10**5: (0.1, 0.25), 10**6: (0.15, 0.2)}
REBUILT = {10**3: (0.03, 0.1), 10**4: (0.03, 0.08), 10**5: (0.015, 0.03), 10**6: (0.01, 0.02)}


def _errors(kind: str, n: int, how: str) -> Float64:
    out = []
    for seed in range(6 if n < 10**6 else 2):
        x = log_weights(kind, n, seed)
        x32 = x.astype(np.float32)
        want = full_fit(x32.astype(np.float64)).khat
        if how == "top":
            top = TopK(k=512)
            top.update(x32)
            values = top.values().astype(np.float64)
        else:
            sketch = LogSketch()
            sketch.update(x32)
            values = sketch.tail_values("upper", pareto_tail_size(n) + 1)
        out.append(pareto_khat(values, n).khat - want)
    return np.array(out)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", TOP_512)
def test_a_fit_of_the_top_512_stays_near_the_full_one(kind: str, n: int) -> None:
    errors = _errors(kind, n, "top")
    mean, worst = TOP_512[n]
    assert abs(errors.mean()) <= mean
    assert np.abs(errors).max() <= worst


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", REBUILT)
def test_a_fit_of_the_rebuilt_tail_stays_near_the_full_one(kind: str, n: int) -> None:
    errors = _errors(kind, n, "rebuilt")
    mean, worst = REBUILT[n]
    assert abs(errors.mean()) <= mean
    assert np.abs(errors).max() <= worst


def test_a_truncated_tail_says_so() -> None:
    x = np.sort(log_weights("normal 1", 100_000))[::-1]
    fit = pareto_khat(x[:512], 100_000)
    assert (fit.tail_size, fit.reason) == (511, "truncated: 511 of 949 tail values")
    assert pareto_khat(x[:3], 100_000).reason == "2 tail values, a fit needs 5"


def test_equal_weights_are_healthy_not_an_error() -> None:
    for x in (np.zeros(1_000), np.full(30, 1e4)):
        fit = full_fit(x)
        assert math.isnan(fit.khat)
        assert fit.reason == "equal weights"


def test_ties_at_the_cutoff_are_left_out_and_named() -> None:
    few, more = np.zeros(1_000), np.zeros(1_000)
    few[:3], more[:40] = [1.0, 2.0, 3.0], np.random.default_rng(0).exponential(size=40)
    assert math.isnan(full_fit(few).khat)
    assert full_fit(few).reason == "ties: only 3 of 95 tail values are above the cutoff"
    fit = full_fit(more)
    assert fit.tail_size == 40
    assert 0.0 < fit.khat < 2.0
    assert fit.reason.startswith("ties: fitted on the 40 of 95")


@pytest.mark.parametrize("n", [0, 1, 24])
def test_too_few_draws_have_a_reason(n: int) -> None:
    fit = full_fit(np.arange(float(n)))
    assert math.isnan(fit.khat)
    assert fit.reason == f"{n} draws, a fit needs 25"


def test_bounds_are_those_of_loo() -> None:
    assert [round(khat_bound(n), 2) for n in (50, 100, 320, 1_000, 2_200)] == [0.41, 0.5, 0.6, 0.67, 0.7]
    assert math.isnan(khat_bound(1))
    assert [pareto_tail_size(n) for n in (25, 100, 1_000, 4_000)] == [5, 20, 95, 190]


def test_bad_tails_are_refused() -> None:
    for values, n in (([1.0, 2.0], 100), ([np.nan] * 9, 100), ([np.inf, 1.0], 100), ([2.0, 1.0], 1)):
        with pytest.raises(SummaryError):
            pareto_khat(values, n)
    x = np.sort(log_weights("normal 1", 50))[::-1]
    x[-5:] = -np.inf
    assert math.isfinite(pareto_khat(x, 50).khat)


@pytest.mark.parametrize("values", [[], [0.0]])
def test_a_tail_without_values_has_size_zero(values: list[float]) -> None:
    assert pareto_khat(values, 30).tail_size == 0
    assert pareto_khat(values, 30).reason.startswith("0 tail values, a fit needs")

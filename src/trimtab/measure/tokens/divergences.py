"""KL divergences with sampler, other and estimator in the name, and the second moments.

k1 = mean of -log r is unbiased and may be negative; k3 = mean of r - 1 - log r is >= 0 and dominated by r >>
1, where r = other / sampler (Schulman 2020). The direction matters: k3 is blind to the tokens the other
policy abandoned.

Chi-square of the sampler and the policy: by how much is the variance of a weighted mean inflated, a token?

chi2(pi || mu) = E_mu[w^2] - 1 needs E_mu[w] = 1. The plug-in here keeps the 1: it is not divided by the mean
weight, so where the observed mean is off 1 (a finite sample that misses the tail; a mu of other support) it
may be negative or low. Kish's ESS/n of the same weights is the self-normalised view: (E w)^2 / E w^2.
Token-level values multiply over a sequence: (1 + chi2)^T. Sums are shifted, so no log-ratio overflows them
before the value itself does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trimtab.measure.state.log_ratios import RATIOS
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.values import Value
from trimtab.stats import mean_exp_factor

_BEHAVIOUR = {"mismatch": "rollout_old", "total": "rollout_theta"}


def kl(state: SliceState) -> Iterator[Value]:
    """`kl/rollout_old/*`, `kl/rollout_theta/*`, `kl/theta_ref/*` in nats; `*/second_moment`,
    `drift/second_moment_ref`."""
    for name, pair in _BEHAVIOUR.items():
        sketch = state.summaries.get(f"{name}/sketch")
        if sketch is not None:
            mean, n = sketch.mean(), sketch.count
            yield Value(f"kl/{pair}/k1", -mean, n)
            yield Value(f"kl/{pair}/k3", _exp(sketch.log_mean_exp(1)) - 1.0 - mean, n)
            yield Value(f"{name}/second_moment", _exp(sketch.log_mean_exp(2)), n)
    drift = state.summaries.get("drift/sketch")
    if drift is not None:
        mean, n = drift.mean(), drift.count
        yield Value("kl/theta_ref/k1", mean, n)
        yield Value("kl/theta_ref/k3", _exp(drift.log_mean_exp(-1)) - 1.0 + mean, n)
        yield Value("drift/second_moment_ref", _exp(drift.log_mean_exp(1)), n)


def _exp(log_value: float) -> float:
    return math.exp(log_value) if log_value < 709.0 else math.inf if log_value == log_value else math.nan


def chi2(state: SliceState) -> Iterator[Value]:
    """`mismatch/chi2`, `total/chi2`: E_mu[w^2] - 1 of raw token weights."""
    yield from _chi2(state, interval=False)


def chi2_interval(state: SliceState) -> Iterator[Value]:
    """The same with an interval bootstrapped by trajectory, for the slices `MAIN_SLICES`."""
    yield from _chi2(state, interval=True)


def _chi2(state: SliceState, interval: bool) -> Iterator[Value]:
    for name, ratio in RATIOS.items():
        sketch = state.summaries.get(f"{name}/sketch")
        if sketch is None or "second_moment" not in ratio.valid:
            continue
        log_square, low, high = sketch.log_mean_exp(2), math.nan, math.nan
        rises = state.summaries.get(f"{name}/rises")
        if interval and rises is not None and sketch.count:
            margin = math.log(mean_exp_factor(sketch, 2.0, state.summaries[f"{name}/clusters"], rises))
            low, high = _expm1(log_square - margin), _expm1(log_square + margin)
        reason = "" if sketch.count else "no finite log-ratio"
        yield Value(f"{name}/chi2", _expm1(log_square), sketch.count, low, high, reason)


def _expm1(value: float) -> float:
    return math.expm1(value) if value < 709.0 else math.inf if value == value else math.nan

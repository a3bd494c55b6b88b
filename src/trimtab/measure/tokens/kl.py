"""KL divergences with sampler, other and estimator in the name, and the second moments.

k1 = mean of -log r is unbiased and may be negative; k3 = mean of r - 1 - log r is >= 0 and dominated by r >> 1, where
r = other / sampler (Schulman 2020). The direction matters: k3 is blind to the tokens the other policy abandoned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.types import Value

_BEHAVIOUR = {"mismatch": "rollout_old", "total": "rollout_theta"}


def kl(state: SliceState) -> Iterator[Value]:
    """`kl/rollout_old/*`, `kl/rollout_theta/*`, `kl/theta_ref/*` in nats; `*/second_moment`, `drift/second_moment_ref`."""
    for name, pair in _BEHAVIOUR.items():
        sketch = state.parts.get(f"{name}/sketch")
        if sketch is not None:
            mean, n = sketch.mean(), sketch.count
            yield Value(f"kl/{pair}/k1", -mean, n)
            yield Value(f"kl/{pair}/k3", _exp(sketch.log_mean_exp(1)) - 1.0 - mean, n)
            yield Value(f"{name}/second_moment", _exp(sketch.log_mean_exp(2)), n)
    drift = state.parts.get("drift/sketch")
    if drift is not None:
        mean, n = drift.mean(), drift.count
        yield Value("kl/theta_ref/k1", mean, n)
        yield Value("kl/theta_ref/k3", _exp(drift.log_mean_exp(-1)) - 1.0 + mean, n)
        yield Value("drift/second_moment_ref", _exp(drift.log_mean_exp(1)), n)


def _exp(log_value: float) -> float:
    return math.exp(log_value) if log_value < 709.0 else math.inf if log_value == log_value else math.nan

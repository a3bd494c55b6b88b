"""Streams that break summaries: 20 shapes of float32 values, with nan, infinities and nothing at all among them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
N = 900


def _blow_ups(rng: np.random.Generator) -> Float32:
    x = rng.normal(0.0, 0.01, N)
    x[rng.random(N) < 0.01] = 25.0
    return x.astype(np.float32)


def _non_finite(rng: np.random.Generator) -> Float32:
    x = rng.normal(0.0, 1.0, N)
    x[::7], x[1::11], x[2::13] = np.nan, np.inf, -np.inf
    return x.astype(np.float32)


MAKERS: dict[str, Callable[[np.random.Generator], npt.NDArray[np.floating]]] = {
    "constant": lambda rng: np.full(N, 0.37),
    "single value": lambda rng: np.array([-2.5]),
    "zeros": lambda rng: np.zeros(N),
    "tiny": lambda rng: rng.normal(0.0, 1e-9, N),
    "huge": lambda rng: rng.choice([-1e4, 1e4], N) * rng.random(N),
    "all at 1e4": lambda rng: np.full(N, 1e4),
    "all at -1e4": lambda rng: np.full(N, -1e4),
    "lognormal": lambda rng: rng.lognormal(-3.0, 1.5, N) * rng.choice([-1.0, 1.0], N),
    "student-t 2": lambda rng: rng.standard_t(2, N),
    "cauchy": lambda rng: rng.standard_cauchy(N),
    "pareto": lambda rng: rng.pareto(1.1, N),
    "uniform": lambda rng: rng.uniform(-1.0, 1.0, N),
    "blow-ups": _blow_ups,
    "sorted": lambda rng: np.sort(rng.normal(0.0, 2.0, N)),
    "alternating": lambda rng: np.where(np.arange(N) % 2, 0.5, -0.5),
    "subnormal": lambda rng: rng.uniform(-1.0, 1.0, N) * 1e-40,
    "all nan": lambda rng: np.full(N, np.nan),
    "nan and inf": _non_finite,
    "empty": lambda rng: np.zeros(0),
    "integers": lambda rng: rng.integers(-5, 6, N),
    "bimodal": lambda rng: np.concatenate((rng.normal(-8.0, 0.1, N // 2), rng.normal(3.0, 0.1, N // 2))),
    "ties": lambda rng: rng.choice([0.0, -0.0, 0.25, -3.0], N),
}


def stream(name: str, seed: int = 0) -> Float32:
    """The values of one distribution."""
    return np.asarray(MAKERS[name](np.random.default_rng(seed)), dtype=np.float32)

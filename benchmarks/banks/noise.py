"""Noise of unit variance, by family. The tuning half and the test half of the bank share no family.

T steps. Every generator takes a seeded `Generator`, T and phi, the wanted lag-1 autocorrelation in 0..0.95.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, float], Float]
_BURN = 200


def _filtered(innovations: Float, phi: float) -> Float:
    """x_t = phi x_(t-1) + sqrt(1 - phi^2) e_t, after a burn-in."""
    out, x, gain = np.empty(innovations.size), 0.0, np.sqrt(1.0 - phi * phi)
    for t, e in enumerate(innovations.tolist()):
        x = phi * x + gain * e
        out[t] = x
    return out[_BURN:]


def ar_gauss(rng: np.random.Generator, size: int, phi: float) -> Float:
    """Gaussian AR(1)."""
    return _filtered(rng.normal(size=size + _BURN), phi)


def ar_t5(rng: np.random.Generator, size: int, phi: float) -> Float:
    """AR(1) with Student-t innovations of 5 degrees of freedom."""
    return _filtered(rng.standard_t(5, size=size + _BURN) / np.sqrt(5.0 / 3.0), phi)


def ar_contaminated(rng: np.random.Generator, size: int, phi: float) -> Float:
    """Gaussian AR(1) of which 2 % of the values carry an outlier of four standard deviations on top."""
    x = ar_gauss(rng, size, phi)
    x += 4.0 * rng.normal(size=size) * (rng.random(size) < 0.02)
    return np.asarray(x / np.sqrt(1.0 + 0.02 * 16.0))


def ar_laplace(rng: np.random.Generator, size: int, phi: float) -> Float:
    """AR(1) with Laplace innovations."""
    return _filtered(rng.laplace(size=size + _BURN) / np.sqrt(2.0), phi)


def ar_t3(rng: np.random.Generator, size: int, phi: float) -> Float:
    """AR(1) with Student-t innovations of 3 degrees of freedom: no finite fourth moment."""
    return _filtered(rng.standard_t(3, size=size + _BURN) / np.sqrt(3.0), phi)


def ar_skewed(rng: np.random.Generator, size: int, phi: float) -> Float:
    """AR(1) with centred gamma(2) innovations: a one-sided tail, like gradient norms."""
    return _filtered((rng.gamma(2.0, size=size + _BURN) - 2.0) / np.sqrt(2.0), phi)


def arma(rng: np.random.Generator, size: int, phi: float) -> Float:
    """ARMA(1,1), theta -0.3: a slow component under measurement noise, whose lag-1 correlation understates its memory."""
    e = rng.normal(size=size + _BURN)
    e[1:] -= 0.3 * e[:-1].copy()
    x = _filtered(e, phi)
    return np.asarray(x / np.sqrt(1.09 - 0.6 * phi))


def burst(rng: np.random.Generator, size: int, phi: float) -> Float:
    """AR(1) whose scatter itself wanders (log-scale AR(1) of 0.95): quiet and loud stretches."""
    loud = np.exp(0.4 * _filtered(rng.normal(size=size + 2 * _BURN), 0.95) - 0.16)
    return _filtered(rng.normal(size=size + _BURN) * loud, phi)


TUNING: dict[str, Noise] = {"ar_gauss": ar_gauss, "ar_t5": ar_t5, "ar_contaminated": ar_contaminated}
TEST: dict[str, Noise] = {
    "ar_laplace": ar_laplace, "ar_t3": ar_t3, "ar_skewed": ar_skewed, "arma": arma, "burst": burst,
}  # fmt: skip

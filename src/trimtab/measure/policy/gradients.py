"""Does the update rest on many trajectories or on one, and is its mean more than noise?

n trajectories with gradients g_i in R^d (of all weights, or of a small head). Everything is a function of the
Gram matrix G = (g_i . g_j), and of sums that a stream can keep. Pure NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trimtab.errors import BatchError
from trimtab.measure.state.values import Value
from trimtab.typing import Float64


def total_variance(square_sum: float, sum_square: float, n: int) -> float:
    """tr cov(g) = (sum |g_i|^2 - |sum g_i|^2 / n) / (n - 1), never below 0; nan for n < 2.

    >>> total_variance(2.0, 0.0, 2)  # g = +1, -1
    2.0
    """
    return max(0.0, square_sum - sum_square / n) / (n - 1) if n > 1 else math.nan


def snr(gram: Float64) -> float:
    """|mean g|^2 / (tr cov(g) / n): pure noise gives about 1, n equal gradients infinity; nan for n < 2 or
    all zero."""
    n = len(gram)
    noise = total_variance(float(np.trace(gram)), float(gram.sum()), n) / max(n, 1)
    signal = max(0.0, float(gram.sum())) / max(n, 1) ** 2
    if not noise > 1e-12 * signal:  # rounding of two equal sums
        return math.inf if signal > 0 and n > 1 else math.nan
    return signal / noise


def shares(squares: Float64) -> tuple[float, float]:
    """(top share, participation ratio) of |g_i|^2 (n,): the largest over the sum, (sum)^2 / sum of squares;
    nan when zero.

    >>> shares(np.array([1.0, 1.0, 2.0]))[0]
    0.5
    """
    total = float(squares.sum())
    if not total > 0:
        return math.nan, math.nan
    part = squares / total
    return float(part.max()), 1.0 / float(np.square(part).sum())


def gram_of(name: str, raw: Any, gram: bool) -> Float64:
    """(n, n) Gram matrix of vectors (n, d), or the matrix itself; BatchError on another shape."""
    array = np.asarray(raw, dtype=np.float64)
    if array.ndim != 2 or not array.size or (gram and array.shape[0] != array.shape[1]):
        kind = "a Gram matrix (n, n)" if gram else "gradients (n, d), one row a trajectory"
        raise BatchError(f"{name} has shape {array.shape}, expected {kind}")
    return array if gram else array @ array.T


def gradient_values(
    parts: Mapping[str, Any], tokens: Mapping[str, int] | None = None, gram: bool = False
) -> Iterator[tuple[str, Value, dict[str, int]]]:
    """(slice, value, excluded) of `gradient/*` for each of `parts`: slice -> (n, d), or Gram matrices with
    `gram`.

    `all` is the sum of the others where they are vectors and it is not given. A part's variance share is its
    total variance over the sum of those of all parts but `all`; its token share likewise, of `tokens`.
    Trajectories with a gradient that is not finite are left out and counted.
    """
    if not parts:
        raise BatchError("no gradients were given: pass at least one slice")
    vectors = dict(parts)
    slices = [name for name in parts if name != "all"]
    if "all" not in vectors and not gram:
        if len({np.shape(parts[name]) for name in slices}) > 1:
            raise BatchError("the gradients of the slices differ in shape: give one row a trajectory in each")
        vectors["all"] = np.sum([np.asarray(parts[name], dtype=np.float64) for name in slices], axis=0)
    matrices = {name: gram_of(name, raw, gram) for name, raw in vectors.items()}
    if len({len(matrix) for matrix in matrices.values()}) > 1:
        raise BatchError(
            "the slices hold different numbers of trajectories: give one row a trajectory in each"
        )
    finite = np.all([np.isfinite(np.diagonal(matrix)) for matrix in matrices.values()], axis=0)
    matrices = {name: matrix[np.ix_(finite, finite)] for name, matrix in matrices.items()}
    excluded = {"gradient: not finite": int((~finite).sum())} if not finite.all() else {}
    spread = {
        name: total_variance(float(np.trace(m)), float(m.sum()), len(m)) for name, m in matrices.items()
    }
    whole = math.fsum(spread[name] for name in slices)
    counted = sum((tokens or {}).get(name, 0) for name in slices)
    for name, matrix in matrices.items():
        for value in _of_one(matrix):
            yield name, value, excluded
        if name != "all":
            yield name, _share("gradient/variance_share", spread[name], whole, len(matrix)), excluded
            if counted:
                count = (tokens or {}).get(name, 0)
                yield name, _share("gradient/token_share", count, counted, counted), excluded


def _of_one(matrix: Float64) -> Iterator[Value]:
    n, few = len(matrix), "fewer than two trajectories"
    top, effective = shares(np.diagonal(matrix))
    zero = "" if math.isfinite(top) else "every gradient is zero"
    yield Value("gradient/snr", snr(matrix), n, reason=few if n < 2 else zero)
    yield Value("gradient/top_trajectory_frac", top, n, reason=zero)
    yield Value("gradient/effective_trajectories", effective, n, reason=zero)


def _share(key: str, part: float, whole: float, n: int) -> Value:
    share = part / whole if whole > 0 else math.nan
    return Value(key, share, n, reason="" if math.isfinite(share) else "no variance to share")

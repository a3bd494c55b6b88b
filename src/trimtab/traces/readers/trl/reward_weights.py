"""The weights under which TRL added up its rewards, read off the advantages of the log.

Within a group the advantages are the weighted sums, centred and perhaps scaled: a_g is parallel to X_g w, with X_g (n, k) the group's rewards,
centred. So w makes small what of X_g w is not along a_g, measured by what it has in all: a generalised eigenvalue problem of size k. Only the direction
of w is told: the largest is taken to be 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.typing import Float64

_DIGITS = 3
_TINY = 1e-9


def fitted(groups: Sequence[tuple[Float64, Float64]], num_rewards: int) -> tuple[float, ...] | None:
    """Weights (k,), the largest of size 1, of groups of rewards (n, k) and advantages (n,); None where they tell none.

    >>> x = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> fitted([(x, 5.0 * (x @ [0.1, 1.0]))], 2)
    (0.1, 1.0)
    """
    across, inside = (np.zeros((num_rewards, num_rewards)) for _ in range(2))
    turn = np.zeros(num_rewards)
    for rewards, advantages in groups:
        x, a = rewards - rewards.mean(0), advantages - advantages.mean()
        size = float(a @ a)
        if not np.isfinite(x).all() or size <= _TINY or not x.any():
            continue
        on = a @ x
        across += x.T @ x - np.outer(on, on) / size
        inside += x.T @ x
        turn += on
    moves = np.sqrt(np.diag(inside))
    used = np.flatnonzero(moves > _TINY)
    if not used.size:
        return None
    scale = np.outer(moves[used], moves[used])
    values, vectors = np.linalg.eigh(inside[np.ix_(used, used)] / scale)
    kept = values > 1e-6  # rewards that always move together have no weight each
    root = vectors[:, kept] / np.sqrt(values[kept])
    _, best = np.linalg.eigh(root.T @ (across[np.ix_(used, used)] / scale) @ root)
    weights = np.zeros(num_rewards)
    weights[used] = root @ best[:, 0] / moves[used]
    weights *= np.sign(weights @ turn) or 1.0
    largest = np.abs(weights).max()
    if largest <= _TINY:
        return None
    return tuple(float(f"{w / largest:.{_DIGITS}g}") if abs(w) > 1e-3 * largest else 0.0 for w in weights)

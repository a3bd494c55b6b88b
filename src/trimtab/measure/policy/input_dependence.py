"""Do outputs depend on their inputs? Cross-input distinguishability, which entropy cannot see (RAGEN-2, arXiv
2604.06268).

Every response is scored under every prompt of the batch: S[i, j] = mean log p(response_i | prompt_j) a token,
in nats. R responses, P prompts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.errors import BatchError
from trimtab.measure.state.values import Value

EMA_DECAY = 0.9
"""Weight of the past in the running standard deviation (RAGEN-2's own)."""

_FLOOR = 1e-3  # nats, added to the standard deviation (RAGEN-2's own)
_TIE = 1e-9


@dataclass(frozen=True)
class Scores:
    """What one batch's matrix says; `excluded` counts responses whose row is not finite."""

    accuracy: float
    information: float
    marginal_std: float
    n: int
    num_prompts: int
    excluded: int


def distinguish(scores: Any, own: Any) -> Scores:
    """Retrieval accuracy and mutual information of `scores` S (R, P), nats a token; `own` (R,) each
    response's prompt.

    Accuracy: share of responses whose own prompt scores best; where t prompts tie it counts 1 / t, so
    responses that do not depend on the prompt give exactly chance, 1 / P. Information: mean of S[i, own] -
    logmeanexp_j S[i, j], at most log P. Prompts must differ from each other: equal ones tie by nature.
    BatchError on wrong shapes or fewer than two prompts.

    >>> found = distinguish([[-1.0, -1.0], [-2.0, -2.0]], [0, 1])
    >>> found.accuracy, found.information
    (0.5, 0.0)
    """
    matrix, mine = np.asarray(scores, dtype=np.float64), np.asarray(own)
    if matrix.ndim != 2 or matrix.shape[1] < 2:
        raise BatchError(
            f"scores have shape {matrix.shape}, expected (responses, prompts) with two prompts or more"
        )
    if mine.shape != matrix.shape[:1] or mine.dtype.kind not in "iu":
        raise BatchError(
            f"own must be whole numbers of shape {matrix.shape[:1]}, got {mine.dtype} {mine.shape}"
        )
    if mine.size and not 0 <= int(mine.min()) <= int(mine.max()) < matrix.shape[1]:
        raise BatchError(
            f"own names prompt {int(mine.max())} of {matrix.shape[1]}: prompts are counted from 0"
        )
    finite = np.isfinite(matrix).all(axis=1)
    scores_finite, mine = matrix[finite], mine[finite]
    if not mine.size:
        return Scores(math.nan, math.nan, math.nan, 0, matrix.shape[1], int((~finite).sum()))
    best = scores_finite.max(axis=1, keepdims=True)
    matched = scores_finite[np.arange(mine.size), mine]
    tied = (scores_finite >= best - _TIE).sum(axis=1)
    hits = np.where(matched >= best[:, 0] - _TIE, 1.0 / tied, 0.0)
    marginal = best[:, 0] + np.log(np.exp(scores_finite - best).mean(axis=1))
    return Scores(
        accuracy=float(hits.mean()),
        information=float((matched - marginal).mean()),
        marginal_std=float(marginal.std()),
        n=int(mine.size),
        num_prompts=matrix.shape[1],
        excluded=int((~finite).sum()),
    )


@dataclass
class Distinguish:
    """Keeps the running standard deviation of the marginal term, so that z-scores of different steps
    compare."""

    std: float = math.nan

    def update(self, scores: Any, own: Any) -> Iterator[tuple[Value, dict[str, int]]]:
        """(value, excluded) of `distinguish/*` for one matrix, as in `distinguish`."""
        result = distinguish(scores, own)
        if result.n:
            old = result.marginal_std if math.isnan(self.std) else self.std
            self.std = EMA_DECAY * old + (1.0 - EMA_DECAY) * result.marginal_std
        excluded = {"distinguish: score not finite": result.excluded} if result.excluded else {}
        empty = "" if result.n else "no response has finite scores"
        chance = f"chance {1.0 / result.num_prompts:.3g}, {result.num_prompts} prompts"
        accuracy = Value("distinguish/retrieval_accuracy", result.accuracy, result.n, reason=empty or chance)
        information = Value("distinguish/mutual_information", result.information, result.n, reason=empty)
        z = result.information / (self.std + _FLOOR)
        for value in (
            accuracy,
            information,
            information._replace(key="distinguish/mutual_information_z", value=z),
        ):
            yield value, excluded

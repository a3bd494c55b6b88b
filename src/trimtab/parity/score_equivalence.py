"""Paired scores of two sides: different, equivalent within a margin, or too few (two one-sided tests)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from trimtab.catalog import bound
from trimtab.stats.student_t import t_quantile
from trimtab.traces.core.episode import Episode
from trimtab.traces.table.stop_reasons import is_limit
from trimtab.typing import Float64

MARGIN = bound("parity_margin")
MIN_TASKS = 5


@dataclass(frozen=True)
class PairedTest:
    """Mean of evaluation minus training over tasks that both have."""

    name: str
    num_tasks: int
    train: float
    eval: float
    low: float  # interval of the difference at the level of its test: 97.5 % for scores
    high: float
    state: str  # equivalent, different, undecided
    num_needed: int  # tasks for the equivalence test to pass in nine of ten equal pairs

    @property
    def difference(self) -> float:
        """Evaluation minus training."""
        return self.eval - self.train


def paired_test(
    name: str, train: Float64, evaluation: Float64, margin: float = MARGIN, level: float = 0.025
) -> PairedTest:
    """Test means by task for equivalence, then for a difference.

    Equivalent: the 90 % interval lies within +-margin; sides that differ by the margin pass at most at rate
    0.05. Different: not equivalent, and the 1 - `level` interval leaves out zero, which happens at rate
    `level` between equal sides. Undecided otherwise.

    Args:
        train: (N,) means of N tasks.
        evaluation: (N,) of the same tasks.
        level: of the test for a difference; scores and stop reasons share the stated 5 %.

    Reference:
        Schuirmann 1987 (two one-sided tests).
    """
    apart = evaluation - train
    count = apart.size
    means = (float(train.mean()), float(evaluation.mean())) if count else (math.nan, math.nan)
    if count < 2:
        return PairedTest(name, count, *means, math.nan, math.nan, "undecided", MIN_TASKS)
    mean, spread = float(apart.mean()), float(apart.std(ddof=1))
    error = spread / math.sqrt(count)
    wide, narrow = (t_quantile(tail, count - 1) * error for tail in (level / 2, 0.05))
    state = "undecided"
    if count >= MIN_TASKS and -margin < mean - narrow and mean + narrow < margin:
        state = "equivalent"
    elif count >= MIN_TASKS and abs(mean) > wide:
        state = "different"
    z = 2 * NormalDist().inv_cdf(0.95)
    needed = max(MIN_TASKS, math.ceil((z * spread / margin) ** 2)) if spread else MIN_TASKS
    return PairedTest(name, count, *means, mean - wide, mean + wide, state, needed)


def compared_episodes(
    train: Sequence[Episode], evaluation: Sequence[Episode], margin: float = MARGIN
) -> tuple[PairedTest | None, list[PairedTest]]:
    """Return the test of scores, and the stop reasons whose shares differ beyond noise.

    Args:
        train: episodes with `task`, and a reward or success.
        evaluation: the same tasks under the other set-up.

    Returns:
        None where no task is in both; the stop reasons with intervals that hold for all of them at once.
    """
    score = _paired(train, evaluation, _score)
    test = paired_test("score", *score, margin) if score[0].size else None
    reasons = sorted({e.stop_reason for e in (*train, *evaluation) if e.stop_reason})
    mix: list[PairedTest] = []
    checks: list[tuple[str, Callable[[Episode], float | None]]] = [("cut by a limit", _cut)]
    checks += [(reason, _is_reason(reason)) for reason in reasons]
    for name, value in checks:
        a, b = _paired(train, evaluation, value)
        if a.size:
            one = paired_test(name, a, b, bound("parity_share"), 0.025 / len(checks))
            if one.state == "different":
                mix.append(one)
    return test, mix


def _score(episode: Episode) -> float | None:
    if episode.reward is not None:
        return episode.reward
    return None if episode.success is None else float(episode.success)


def _cut(episode: Episode) -> float | None:
    return None if not episode.stop_reason else float(is_limit(episode.stop_reason))


def _is_reason(reason: str) -> Callable[[Episode], float | None]:
    return lambda episode: None if not episode.stop_reason else float(episode.stop_reason == reason)


def _paired(
    train: Sequence[Episode], evaluation: Sequence[Episode], value: Callable[[Episode], float | None]
) -> tuple[Float64, Float64]:
    """Means by task on both sides, for tasks that both have."""
    sides = []
    for episodes in (train, evaluation):
        by_task: dict[str, list[float]] = defaultdict(list)
        for episode in episodes:
            number = value(episode)
            if episode.task is not None and number is not None and math.isfinite(number):
                by_task[episode.task].append(number)
        sides.append({task: float(np.mean(values)) for task, values in by_task.items()})
    tasks = sorted(set(sides[0]) & set(sides[1]))
    return np.array([sides[0][t] for t in tasks]), np.array([sides[1][t] for t in tasks])

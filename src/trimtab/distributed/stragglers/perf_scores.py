"""Performance scores of ranks and sections as NVIDIA's resiliency extension defines them.

A score is a reference median over the median of the rank's own seconds: 1 is the reference's speed, 0.5 is
half of it. The reference of the relative score is the smallest median of all ranks, that of the individual
score the smallest median of the rank's own reports so far.

They are scores, not tests: with few measurements or uneven work a healthy rank scores 0.9. `StragglerJudge`
states a false-alarm rate.

Reference:
    nvidia_resiliency_ext 0.4.1, straggler/reporting.py, ReportGenerator._compute_sections_perf_scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

Times = Mapping[str, Sequence[float]]
Scores = dict[str, dict[int, float]]

THRESHOLD = 0.75
"""Score under which the extension names a straggler by default (`Report.identify_stragglers`)."""


def lower_median(values: Sequence[float]) -> float:
    """Return the median; of an even number of values the lower of the two in the middle, as torch does.

    >>> lower_median([4.0, 1.0, 3.0, 2.0]), lower_median([])
    (2.0, nan)
    """
    ordered = np.sort(np.asarray(values, np.float64))
    return float(ordered[(ordered.size - 1) // 2]) if ordered.size else math.nan


def relative_scores(ranks: Mapping[int, Times]) -> Scores:
    """Compare each rank with the fastest one, section by section.

    Args:
        ranks: rank -> section -> seconds of each time it ran, in any one unit.

    Returns:
        Section -> rank -> score in (0, 1]; NaN for a section that a rank lacks, on all ranks.

    Example:
        >>> relative_scores({0: {"forward": [1.0, 1.1]}, 1: {"forward": [2.0, 2.0]}})
        {'forward': {0: 1.0, 1: 0.5}}
    """
    sections = sorted({name for times in ranks.values() for name in times})
    scores: Scores = {}
    for name in sections:
        medians = {rank: lower_median(times.get(name, ())) for rank, times in ranks.items()}
        reference = math.nan if any(map(math.isnan, medians.values())) else min(medians.values())
        scores[name] = {rank: _ratio(reference, median) for rank, median in medians.items()}
    return scores


def individual_scores(reports: Sequence[Mapping[int, Times]]) -> list[Scores]:
    """Compare each rank with its own best past, section by section.

    Args:
        reports: in order, each rank -> section -> seconds since the report before.

    Returns:
        For each report section -> rank -> score in (0, 1].

    Example:
        >>> individual_scores([{0: {"forward": [1.0]}}, {0: {"forward": [1.25]}}])[1]
        {'forward': {0: 0.8}}
    """
    best: dict[tuple[str, int], float] = {}
    answers = []
    for report in reports:
        scores: Scores = {}
        for rank, times in report.items():
            for name, seconds in times.items():
                median = lower_median(seconds)
                key = (name, rank)
                best[key] = min(best.get(key, math.inf), median)
                scores.setdefault(name, {})[rank] = _ratio(best[key], median)
        answers.append(scores)
    return answers


def slow_ranks(scores: Scores, threshold: float = THRESHOLD) -> dict[str, set[int]]:
    """Return section -> ranks whose score is under `threshold`; sections without one are left out."""
    named = {name: {rank for rank, one in of.items() if one < threshold} for name, of in scores.items()}
    return {name: ranks for name, ranks in named.items() if ranks}


def _ratio(reference: float, median: float) -> float:
    return reference / median if median > 0 else math.nan

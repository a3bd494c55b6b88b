"""Readings of single steps: the series that rules judge at every step, live and from a stored run."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.reading_columns import ReadingColumn
from trimtab.detect.rules.rule import Rule
from trimtab.measure.steps.series_history import SeriesArrays
from trimtab.measure.steps.step_series import SeriesValue, StepSeries
from trimtab.types import Reading, Window

MAIN = ("all", "text", "post_tool")
"""Slices whose steps are judged in most series."""
_TOOLS = "post_tool/"
_WIDEST = 300.0  # standard error of a logarithm; wider intervals overflow


class _Source(NamedTuple):
    """Series a reading is taken from, the first that there is, and the slices in which it is judged."""

    names: tuple[str, ...]
    slices: tuple[str, ...] = ("all",)
    prefix: str = ""  # slices that begin so are judged as well

    def covers(self, name: str) -> bool:
        return name in self.slices or bool(self.prefix and name.startswith(self.prefix))


_SERIES = {
    "step/total/p95": _Source(("total/p95", "mismatch/p95", "staleness/p95"), MAIN),
    "step/total/sequence_ess_frac": _Source(("total/sequence_ess_frac", "mismatch/sequence_ess_frac"), MAIN),
    "step/support/below_5_frac": _Source(("support/below_5_frac",), ("post_tool",), _TOOLS),
    "step/tools/error_frac": _Source(("tools/error_frac",), (), _TOOLS),
    "step/mismatch/p95": _Source(("mismatch/p95",), prefix="rank/"),
} | {
    f"step/{name}": _Source((name,))
    for name in (
        "mismatch/above_3_frac", "mismatch/shifted_frac", "update/p95", "lag/mean",
        "mask/result_frac", "mask/silent_frac", "groups/solved_frac", "groups/hopeless_frac",
        "reward_part/opposed",
    )
}  # fmt: skip
"""Reading -> series it is taken from. Without log-probabilities of the trainer at the sampling weights the
total ratio is the mismatch; without those of the sampler it is known only as staleness."""


def step_readings(series: StepSeries) -> list[Reading]:
    """Return the readings of one step that rules judge.

    Args:
        series: the step's series.

    Returns:
        One reading a key and slice. With fewer than `step_trajectories` trajectories its value is NaN, which
        detectors skip and count. Its interval is 1.96 standard errors of its logarithm on each side;
        `reference` names the series it is.
    """
    readings = []
    for key, taken in _SERIES.items():
        for name in filter(taken.covers, series.slices):
            points = ((source, series.get(source, name)) for source in taken.names)
            source, point = next(((s, p) for s, p in points if p is not None), ("", None))
            if point is not None:
                readings.append(_reading(key, series.step, name, source, point))
    return readings


def _reading(key: str, step: int, name: str, source: str, point: SeriesValue) -> Reading:
    enough = point.num_trajectories >= bound("step_trajectories")
    value = point.value if enough else math.nan
    width = math.exp(1.96 * min(point.error / value, _WIDEST)) if value > 0 else math.nan
    return Reading(
        key, step, Window(step, step), name, value, point.num_tokens, point.num_trajectories,
        value / width, value * width, reference=source,
        excluded={} if enough else {"few trajectories": point.num_trajectories},
    )  # fmt: skip


def of_series(key: str) -> bool:
    """Is this a reading of a step's series, which is stored with the series?"""
    return key in _SERIES


@dataclass(eq=False)
class StepColumn(ReadingColumn):
    """Step readings of one key and slice over a whole run; a `Reading` is made when shown."""

    series: SeriesArrays = field(kw_only=True)
    sources: Sequence[str] = field(kw_only=True)

    def reading(self, i: int) -> Reading:
        """Return the reading of value i."""
        point = SeriesValue(*(column[i].item() for column in self.series[1:]))
        return _reading(self.key, int(self.steps[i]), self.slice, self.sources[i], point)

    def errors(self, rule: Rule) -> list[float] | None:
        """Return the standard errors in the detector's unit."""
        if rule.transform == "identity":
            return list(self.series.errors.tolist())
        with np.errstate(divide="ignore", invalid="ignore"):
            width = np.exp(1.96 * np.minimum(self.series.errors / self.values, _WIDEST))
            high, low = np.log(self.values * width + rule.floor), np.log(self.values / width + rule.floor)
            return list(np.where(self.values > 0, (high - low) / (2 * 1.96), math.nan).tolist())


def step_columns(series: Mapping[tuple[str, str], SeriesArrays], steps: Collection[int]) -> list[StepColumn]:
    """Return the readings of a stored run as columns: what `step_readings` gives at each of `steps`.

    Args:
        series: (series, slice) -> its arrays over steps.
        steps: steps of the run that count.
    """
    wanted, columns = np.array(sorted(steps), np.int64), []
    slices = sorted({name for _, name in series})
    for key, origin in _SERIES.items():
        for name in filter(origin.covers, slices):
            of_slice = [(source, series[source, name]) for source in origin.names if (source, name) in series]
            if not of_slice:
                continue
            joined = [
                np.concatenate(parts) for parts in zip(*(arrays for _, arrays in of_slice), strict=True)
            ]
            sources = np.concatenate([np.full(one.steps.size, source) for source, one in of_slice])
            first = np.unique(joined[0], return_index=True)[1]  # the first series that has the step
            rows = first[np.isin(joined[0][first], wanted)]
            if rows.size:
                taken = SeriesArrays(*(column[rows] for column in joined))
                enough = taken.num_trajectories >= bound("step_trajectories")
                values = np.where(enough, taken.values, np.nan)
                column = StepColumn(
                    key, name, taken.steps, values, series=taken, sources=sources[rows].tolist()
                )
                columns.append(column)
    return columns

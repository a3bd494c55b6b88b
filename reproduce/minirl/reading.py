"""What the recorded runs say: late and best scores, collapses, and differences between arms with intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reproduce.charts import Line
from reproduce.minirl.arms import Experiment
from reproduce.minirl.bank import check_bank, read_result, run_folders, state_of
from trimtab.stats.student_t import t_quantile

__all__ = ["WINDOW", "Interval", "Outcome", "collapses", "load_runs", "paired", "spread"]

LATE = 0.25  # of a run's steps
WINDOW = 10  # steps of the mean that says whether the reward fell
LEAST = 3  # seeds of an interval


@dataclass(frozen=True)
class Interval:
    """Mean over `n` seeds and its 95 % t interval; None for fewer than three."""

    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, eq=False)
class Outcome:
    """One run. `series` and `held_out` are steps and values."""

    arm: str
    seed: int
    steps: int
    config: dict[str, Any]
    alarms: dict[str, int]
    verdict: str
    seconds: int
    held_out: Line
    series: dict[str, Line]

    @property
    def collapsed(self) -> int | None:
        """The step at which the mean reward of the last `WINDOW` steps is at most half its highest so far.

        A window is in optimizer steps, so that it holds as many responses off policy, where each batch has one reward for several steps.
        """
        steps, values = self.series["reward"]
        highest = -math.inf
        for step in steps[steps >= WINDOW]:
            mean = float(values[(steps > step - WINDOW) & (steps <= step)].mean())
            if mean <= 0.5 * highest:
                return int(step)
            highest = max(highest, mean)
        return None

    def late(self, name: str, end: int | None = None) -> float:
        """Mean over the last quarter of the steps, or of the first `end`; nan when nothing was recorded there."""
        last = end or self.steps
        steps, values = self.series[name] if name in self.series else (np.zeros(0), np.zeros(0))
        kept = values[(steps > last * (1 - LATE)) & (steps <= last)]
        return float(kept.mean()) if kept.size else math.nan

    @property
    def score(self) -> float:
        """Late mean reward. Questions are fresh, so this is a score of questions never trained on, of many more answers than `held_out`."""
        return self.late("reward")

    @property
    def late_held_out(self) -> float:
        """Mean of the held-out scores of the last quarter."""
        steps, values = self.held_out
        return float(values[steps > self.steps * (1 - LATE)].mean())

    @property
    def best(self) -> float:
        """Highest held-out score."""
        return self.best_by(self.steps)

    def best_by(self, end: int) -> float:
        """Highest held-out score of the first `end` steps."""
        steps, values = self.held_out
        return float(values[steps <= end].max())


def load_runs(bank: Path, experiment: Experiment) -> list[Outcome]:
    """Every finished run of one experiment, in the order of its arms; unfinished ones are not read."""
    check_bank(bank, experiment)
    folders = [path for path in run_folders(bank, experiment) if state_of(path, experiment) == "finished"]
    found = [_outcome(read_result(folder, experiment)) for folder in folders]
    order = list(experiment.arms)
    return sorted(found, key=lambda run: (order.index(run.arm), run.seed))


def _outcome(result: dict[str, Any]) -> Outcome:
    return Outcome(
        arm=result["arm"], seed=result["seed"], steps=result["steps"], config=result["config"], alarms=result["alarms"],
        verdict=str(result.get("verdict", "")), seconds=result["seconds"], held_out=_line(result["held_out"]),
        series={name: _line(series) for name, series in result["series"].items()},
    )  # fmt: skip


def _line(series: dict[str, list[float]]) -> Line:
    return np.array(series["step"], float), np.array(series["value"], float)


def collapses(runs: Sequence[Outcome], arm: str) -> tuple[int, int]:
    """(collapsed, all) runs of an arm."""
    mine = [run for run in runs if run.arm == arm]
    return sum(run.collapsed is not None for run in mine), len(mine)


def spread(values: Sequence[float]) -> Interval:
    """Mean and interval over seeds of the finite values.

    >>> [round(x, 3) for x in (spread([1.0, 2.0, 3.0]).low, spread([1.0, 2.0, 3.0]).high)]
    [-0.484, 4.484]
    """
    kept = [value for value in values if math.isfinite(value)]
    if not kept:
        return Interval(math.nan, None, None, 0)
    mean = float(np.mean(kept))
    if len(kept) < LEAST:
        return Interval(mean, None, None, len(kept))
    half = t_quantile(0.025, len(kept) - 1) * float(np.std(kept, ddof=1)) / math.sqrt(len(kept))
    return Interval(mean, mean - half, mean + half, len(kept))


def paired(runs: Sequence[Outcome], arm: str, base: str, of: Callable[[Outcome], float]) -> Interval:
    """`of` in an arm less `of` in another at the same seed: they share the cold start and the questions."""
    other = {run.seed: of(run) for run in runs if run.arm == base}
    return spread([of(run) - other[run.seed] for run in runs if run.arm == arm and run.seed in other])

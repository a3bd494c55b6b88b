"""Do learning curves over episodes coincide over batch sizes? Spread, its part that noise makes, and intervals over seeds.

Shapes: S seeds, F factors (batch sizes), K evaluations after the start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reproduce.invariance.arms import ARMS, BATCH, FACTORS, UPDATES, Cell
from trimtab.detect.student import t_quantile

__all__ = ["LEAST", "Interval", "areas", "curves", "effect_p", "figures_of", "gaps", "interval", "noise_range", "noise_scale", "spread_of_means", "spreads", "tables"]  # fmt: skip

LEAST = 2  # seeds of an interval
RANGE_OF_THREE = 3 / math.sqrt(math.pi)
"""Expected largest minus smallest of three independent normals, in standard deviations (Tippett 1925: 1.6926)."""

Curves = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Interval:
    """Mean over n seeds and its 95 % t interval; no ends with fewer than two seeds."""

    mean: float
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        ends = "no interval" if self.low is None else f"95 % {self.low:.3g} to {self.high:.3g}"
        return f"{self.mean:.3g} ({ends}; n = {self.n})"


def interval(values: Sequence[float] | np.ndarray, level: float = 0.05) -> Interval | None:
    """None of no values.

    >>> interval([1.0, 2.0, 3.0])  # 2 +- 4.303 / sqrt(3)
    Interval(mean=2.0, low=-0.484, high=4.484, n=3)
    """
    found = np.asarray(values, float)
    if not found.size:
        return None
    mean = float(found.mean())
    if found.size < LEAST:
        return Interval(mean, None, None, found.size)
    half = t_quantile(level / 2, found.size - 1) * float(found.std(ddof=1)) / math.sqrt(found.size)
    return Interval(mean, round(mean - half, 3), round(mean + half, 3), found.size)


def curves(runs: Sequence[dict[str, Any]], name: str = "reward") -> dict[str, np.ndarray]:
    """arm -> (S, F, K + 1) of the seeds that have every batch size in every arm that has runs, so that seeds pair over arms."""
    by = {(run["arm"], run["factor"], run["seed"]): [row[name] for row in run["curve"]] for run in runs}

    def of(arm: str, factor: float, seed: int) -> list[float] | None:
        cell = Cell(arm, factor, seed).recorded
        return by.get((cell.arm, cell.factor, cell.seed))

    seeds = sorted({run["seed"] for run in runs})
    whole = {
        arm: {seed for seed in seeds if all(of(arm, factor, seed) for factor in FACTORS)} for arm in ARMS
    }
    shared = set.intersection(*(found for found in whole.values() if found)) if any(whole.values()) else set()
    return {
        arm: np.array([[of(arm, factor, seed) for factor in FACTORS] for seed in sorted(shared)])
        for arm in ARMS
        if whole[arm] and shared
    }


def spreads(values: np.ndarray) -> np.ndarray:
    """(S,): largest minus smallest reward over batch sizes at equal episodes, mean over the evaluations after the start."""
    return np.asarray(np.ptp(values[:, :, 1:], axis=1).mean(axis=1))


def spread_of_means(values: np.ndarray) -> float:
    """The same of the curves averaged over seeds: what seeds disagree about cancels."""
    return float(np.ptp(values[:, :, 1:].mean(axis=0), axis=0).mean())


def noise_range(values: np.ndarray, *, of_means: bool = False) -> float:
    """The spread that is expected if the batch size had no effect: of a seed, or of the mean over seeds.

    From the residual of rewards after effects of seed and of batch size (two-way layout, a value a cell) at each evaluation.
    NaN with fewer than two seeds.
    """
    seeds = values.shape[0]
    if seeds < LEAST:
        return math.nan
    squares = [residual_square(values[:, :, at]) for at in range(1, values.shape[2])]
    return RANGE_OF_THREE * float(np.mean(np.sqrt(squares))) / (math.sqrt(seeds) if of_means else 1.0)


def residual_square(cells: np.ndarray) -> float:
    """Residual mean square of an (S, F) layout, (S - 1)(F - 1) degrees of freedom."""
    rest = cells - cells.mean(axis=1, keepdims=True) - cells.mean(axis=0, keepdims=True) + cells.mean()
    return float((rest**2).sum() / ((cells.shape[0] - 1) * (cells.shape[1] - 1)))


def areas(values: np.ndarray) -> np.ndarray:
    """(S, F): area under the reward curve over the length of the run, by trapezoids: a mean reward."""
    return np.asarray((values[:, :, 1:] + values[:, :, :-1]).mean(axis=2) / 2)


def effect_p(cells: np.ndarray) -> float:
    """p of "the batch size has no effect" on an (S, 3) layout, seeds as blocks: P(F(2, d) > f) = (1 + 2 f / d)^(-d / 2).

    NaN with fewer than two seeds, or where nothing varies.
    """
    seeds, sizes = cells.shape
    if seeds < LEAST or sizes != 3:
        return math.nan
    between = seeds * float(np.var(cells.mean(axis=0), ddof=1))
    rest, freedom = residual_square(cells), 2 * (seeds - 1)
    if rest == 0:
        return math.nan if between == 0 else 0.0
    return float((1 + 2 * between / rest / freedom) ** (-freedom / 2))


def gaps(cells: np.ndarray) -> dict[tuple[float, float], Interval]:
    """Paired differences of areas between every two batch sizes (larger minus smaller), intervals of 95 % together (Bonferroni)."""
    pairs = [(a, b) for a in range(len(FACTORS)) for b in range(a + 1, len(FACTORS))]
    found = {}
    for a, b in pairs:
        each = interval(cells[:, b] - cells[:, a], 0.05 / len(pairs))
        if each is not None:
            found[FACTORS[a], FACTORS[b]] = each
    return found


def tables(runs: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """A row an arm: seeds, spread of a seed, what noise alone gives, spread of the means, its noise, spread of areas, p."""
    rows = []
    for arm, values in curves(runs).items():
        cells = areas(values)
        rows.append([
            arm, values.shape[0], interval(spreads(values)), noise_range(values), spread_of_means(values),
            noise_range(values, of_means=True), interval(np.ptp(cells, axis=1)), effect_p(cells),
        ])  # fmt: skip
    return rows


def noise_scale(runs: Sequence[dict[str, Any]]) -> float:
    """Episodes of a step at which noise and signal of the gradient are equal: trace / |G|^2 of E |g|^2 = |G|^2 + trace / episodes.

    Least squares over batch sizes on the mean |g|^2 up to the first evaluation, runs with the rules alone, whose policies differ least
    (arXiv 1812.06162 appendix A.1). The rules hold below it. NaN where no batch sizes differ or the fit gives no signal.
    """
    ruled = [run for run in runs if run["arm"].endswith("_rules") or run["factor"] == 1.0]
    if len({run["factor"] for run in ruled}) < 2:
        return math.nan
    inverse = np.array([UPDATES / (BATCH * run["factor"]) for run in ruled])
    squares = np.array([run["curve"][1]["grad_square"] for run in ruled])
    trace, signal = np.polyfit(inverse, squares, 1)
    return float(trace / signal) if signal > 0 and trace > 0 else math.nan


def figures_of(runs: Sequence[dict[str, Any]]) -> dict[str, float | int | None]:
    """What --json prints: of each arm the spread with its interval, what noise gives, p; None where it cannot be told."""
    found: dict[str, float | int | None] = {"num_runs": len(runs), "noise_scale_episodes": noise_scale(runs)}
    for arm, seeds, spread, noise, of_means, _, area, p in tables(runs):
        found |= {
            f"{arm}_num_seeds": seeds, f"{arm}_spread": spread.mean, f"{arm}_spread_low": spread.low, f"{arm}_spread_high": spread.high,
            f"{arm}_spread_noise": noise, f"{arm}_spread_of_means": of_means, f"{arm}_area_spread": area.mean, f"{arm}_p": p,
        }  # fmt: skip
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in found.items()
    }

"""Do learning curves over episodes coincide over batch sizes? Their spread, and the part of it that noise makes.

Shapes: S seeds, F factors (batch sizes), K evaluations after the start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from reproduce.invariance.arms import ARMS, BATCH, FACTORS, UPDATES, Cell
from reproduce.invariance.intervals import LEAST, effect_p, interval, residual_square

__all__ = [
    "areas",
    "curves",
    "figures_of",
    "noise_range",
    "noise_scale",
    "spread_of_means",
    "spreads",
    "tables",
]

RANGE_OF_THREE = 3 / math.sqrt(math.pi)
"""Expected largest minus smallest of three independent normals, in standard deviations (Tippett 1925: 1.6926)."""


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


def areas(values: np.ndarray) -> np.ndarray:
    """(S, F): area under the reward curve over the length of the run, by trapezoids: a mean reward."""
    return np.asarray((values[:, :, 1:] + values[:, :, :-1]).mean(axis=2) / 2)


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
    """What --json prints: of each arm the spread with its interval, what noise gives, p; None where it is undecided."""
    found: dict[str, float | int | None] = {"num_runs": len(runs), "noise_scale_episodes": noise_scale(runs)}
    for arm, seeds, spread, noise, of_means, _, area, p in tables(runs):
        found |= {
            f"{arm}_num_seeds": seeds, f"{arm}_spread": spread.mean, f"{arm}_spread_low": spread.low, f"{arm}_spread_high": spread.high,
            f"{arm}_spread_noise": noise, f"{arm}_spread_of_means": of_means, f"{arm}_area_spread": area.mean, f"{arm}_p": p,
        }  # fmt: skip
    return {name: _told(value) for name, value in found.items()}


def _told(value: float | int | None) -> float | int | None:
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else round(value, 4)

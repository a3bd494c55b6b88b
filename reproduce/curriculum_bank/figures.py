"""What the runs show: score, oscillation and waste of each arm, paired by seed, with bootstrap intervals over seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import RunError

__all__ = ["Summary", "figures_of", "load_records", "summarise", "table_of"]

Floats = NDArray[np.float64]
Record = Mapping[str, Any]
Summary = dict[str, float]
MEASURES = ("reward", "area", "oscillation", "wasted_groups_frac", "empty_updates_frac", "updates")
DRAWS = 4000


def load_records(path: Path) -> list[Record]:
    """Return the records of a file of one JSON object a line; none where there is no file."""
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text().splitlines() if line]
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}; delete its last line and run again") from error


def summarise(record: Record) -> Summary:
    """Return the measures of one run.

    reward: mean held-out score of the evaluations in the last third of the rollouts. area: mean score over rollouts, by trapezoids, of the
    whole run. oscillation: standard deviation of the last third's scores around their straight line. wasted_groups_frac: groups without
    gradient over sampled groups. empty_updates_frac: updates of which no group had a gradient.
    """
    at = np.array([row["rollouts"] for row in record["evaluations"]], float)
    scores = np.array([np.mean(row["families"]) for row in record["evaluations"]])
    late = 3 * at >= 2 * at[-1]
    x, y = at[late], scores[late]
    residuals = y - np.polyval(np.polyfit(x, y, 1), x)
    return {
        "reward": float(y.mean()),
        "area": float(np.trapezoid(scores, at) / (at[-1] - at[0])),
        "oscillation": float(math.sqrt((residuals**2).sum() / (len(x) - 2))),
        "wasted_groups_frac": record["wasted_groups"] / record["groups"],
        "empty_updates_frac": record["empty_updates"] / record["updates"],
        "updates": float(record["updates"]),
    }


def complete_seeds(records: Sequence[Record], arms: Sequence[str]) -> list[int]:
    """Return the seeds that have a run of every arm."""
    runs = {(record["arm"], record["seed"]) for record in records}
    return sorted({seed for _, seed in runs if all((arm, seed) in runs for arm in arms)})


def figures_of(records: Sequence[Record], arms: Sequence[str]) -> dict[str, float]:
    """Return the figures of complete seeds: means of each arm, and paired comparisons with `uniform` and `dynamic`.

    A gain is a mean difference; a ratio is that of geometric means. `_low` and `_high`: 95 % by bootstrap over seeds.
    """
    seeds = complete_seeds(records, arms)
    if len(seeds) < 2:
        return {"num_seeds": float(len(seeds))}
    table = {arm: _columns(records, arm, seeds) for arm in arms}
    figures = {"num_seeds": float(len(seeds))}
    for other, suffix in (("uniform", ""), ("dynamic", "_over_dynamic")):
        mine, theirs = table["curriculum"], table[other]
        figures |= _interval(f"reward_gain{suffix}", mine["reward"] - theirs["reward"])
        figures |= _interval(f"area_gain{suffix}", mine["area"] - theirs["area"])
        logs = np.log(mine["oscillation"]) - np.log(theirs["oscillation"])
        ratio = _interval(f"oscillation_ratio{suffix}", logs)
        figures |= {name: math.exp(value) for name, value in ratio.items()}
    figures["wasted_groups_frac"] = float(table["curriculum"]["wasted_groups_frac"].mean())
    for arm, columns in table.items():
        figures |= {f"{arm}_{name}": float(values.mean()) for name, values in columns.items()}
    return {name: round(value, 5) for name, value in figures.items()}


def table_of(figures: Mapping[str, float], arms: Sequence[str]) -> str:
    """Return a Markdown table of the arms' means."""
    if figures["num_seeds"] < 2:
        return "no two complete seeds yet"
    head = "| arm | score, last third | area | oscillation | wasted groups | empty updates | updates |\n|---|---|---|---|---|---|---|"
    rows = [
        "| {} | {:.3f} | {:.3f} | {:.4f} | {:.1%} | {:.1%} | {:.0f} |".format(
            arm, *(figures[f"{arm}_{name}"] for name in MEASURES)
        )
        for arm in arms
    ]
    return "\n".join([head, *rows])


def _columns(records: Sequence[Record], arm: str, seeds: Sequence[int]) -> dict[str, Floats]:
    by_seed = {record["seed"]: summarise(record) for record in records if record["arm"] == arm}
    return {name: np.array([by_seed[seed][name] for seed in seeds]) for name in MEASURES}


def _interval(name: str, values: Floats) -> dict[str, float]:
    """Return the mean and its 95 % interval: percentiles of the means of resampled seeds."""
    rows = np.random.default_rng(0).integers(0, values.size, (DRAWS, values.size))
    low, high = np.quantile(values[rows].mean(axis=1), (0.025, 0.975))
    return {name: float(values.mean()), f"{name}_low": float(low), f"{name}_high": float(high)}

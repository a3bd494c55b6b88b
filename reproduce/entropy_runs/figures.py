"""What the recorded runs say: late entropy, held-out reward and groups without a gradient, each against the baseline of the same seed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reproduce.entropy_runs.learner import ARMS
from reproduce.minirl.reading import Interval, spread
from reproduce.pilot.tables import table
from trimtab.errors import RunError

__all__ = ["CORE", "SEEDS", "STEPS", "figures_of", "read_records", "table_of"]

SEEDS, STEPS, EVERY = range(4), 60, 10
CORE = ("baseline", "bonus", "tasks", "both")
"""Arms of which every seed is recorded; of the others those that the clock allowed."""
LATE = 0.5  # of a run's steps
Record = dict[str, Any]
SERIES = ("reward", "entropy", "silent_frac", "clipped_high_frac", "bonus")


class Reading(NamedTuple):
    """A number of one run; `log`: arms are compared by their ratio."""

    title: str
    of: Callable[[Record], float]
    log: bool = False


def _late(name: str) -> Callable[[Record], float]:
    """Mean over the late steps of a series, or of what was read of held-out prompts."""

    def of(record: Record) -> float:
        first = record["steps"] * LATE
        if name in SERIES:
            return float(np.mean(record[name][int(first) :]))
        return float(np.mean([row[name] for row in record["held_out"] if row["step"] > first]))

    return of


READINGS = {
    "entropy": Reading("held-out entropy, nats", _late("held_out_entropy"), log=True),
    "reward": Reading("held-out reward", _late("held_out")),
    "silent": Reading("groups of one reward", _late("silent_frac")),
    "clipped_high": Reading("tokens clipped above", _late("clipped_high_frac")),
}


def read_records(store: Path) -> list[Record]:
    """Read the records of all runs; raises RunError for a line that is not one."""
    rows = []
    for number, line in enumerate(store.read_text().splitlines() if store.exists() else [], 1):
        try:
            row = json.loads(line)
            whole = row["arm"] in ARMS and all(len(row[name]) == row["steps"] for name in SERIES)
            whole = whole and {"step", "held_out", "held_out_entropy"} <= row["held_out"][-1].keys()
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            whole = False
        if not whole:
            raise RunError(
                f"{store}, line {number}, is damaged; restore the file (git restore), or remove the line and run again"
            )
        rows.append(row)
    return sorted(rows, key=lambda row: (list(ARMS).index(row["arm"]), row["seed"]))


def _values(records: Sequence[Record], arm: str, reading: Reading) -> dict[int, float]:
    return {row["seed"]: reading.of(row) for row in records if row["arm"] == arm}


def _against(records: Sequence[Record], arm: str, reading: Reading) -> Interval:
    """Difference to the baseline of the same seed, of logs where ratios are compared."""
    base, own = _values(records, "baseline", reading), _values(records, arm, reading)
    pairs = [(own[seed], base[seed]) for seed in sorted(own.keys() & base.keys())]
    if reading.log:
        return spread([math.log(one / other) if one > 0 and other > 0 else math.nan for one, other in pairs])
    return spread([one - other for one, other in pairs])


def figures_of(records: Sequence[Record]) -> dict[str, float | int | None]:
    """Return flat figures: means of the arms, and ratio or difference to the baseline with its interval; None where there are too few seeds."""
    figures: dict[str, float | int | None] = {"num_runs": len(records)}
    starts = [row["held_out"][0] for row in records if row["arm"] == "baseline"]
    for name in ("held_out", "held_out_entropy"):
        figures[f"start_{name}"] = _rounded(spread([row[name] for row in starts]).mean)
    for arm in ARMS:
        for name, reading in READINGS.items():
            figures[f"{arm}_{name}"] = _rounded(spread(list(_values(records, arm, reading).values())).mean)
            if arm == "baseline" or name == "clipped_high":
                continue
            gap, word = _against(records, arm, reading), "ratio" if reading.log else "gain"
            shown = [
                math.exp(x) if reading.log and x is not None else x for x in (gap.mean, gap.low, gap.high)
            ]
            for suffix, value in zip(("", "_low", "_high"), shown, strict=True):
                figures[f"{arm}_{name}_{word}{suffix}"] = _rounded(value)
    return figures


def table_of(records: Sequence[Record]) -> str:
    """Return the page's table: a row an arm, means and differences to the baseline."""
    figures, rows = figures_of(records), []
    for arm, settings in ARMS.items():
        number = sum(row["arm"] == arm for row in records)
        cells = [_cell(figures, arm, name, reading) for name, reading in READINGS.items()]
        rows.append([f"`{arm}`", settings.what, number, *cells])
    return table(["arm", "support", "seeds", *(reading.title for reading in READINGS.values())], rows)


def _cell(figures: dict[str, float | int | None], arm: str, name: str, reading: Reading) -> str:
    mean = figures[f"{arm}_{name}"]
    word, sign = ("ratio", "") if reading.log else ("gain", "+")
    ends = [figures.get(f"{arm}_{name}_{word}{suffix}") for suffix in ("", "_low", "_high")]
    text = "-" if mean is None else f"{mean:.3f}"
    if None in ends:
        return text
    middle, low, high = (f"{value:{sign}.2f}" for value in ends if value is not None)
    return f"{text}; {'x ' if reading.log else ''}{middle} ({low} to {high})"


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")

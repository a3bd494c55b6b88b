"""A metrics log as readings: one window a step, no tokens, so that the same rules judge it as a watched run."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import NamedTuple

from trimtab.records import Reading, Window
from trimtab.runs.metric_logs import MetricLog

__all__ = ["LogStep", "readings_of_log", "series_of_log"]

_CADENCE = 10  # a metric seen less often has no cadence by which its silence could be told


class LogStep(NamedTuple):
    """`nonfinite`: column -> 1 where its value is NaN or infinite. `columns`: what arrived, of metrics logged regularly."""

    step: int
    nonfinite: dict[str, int]
    columns: list[str]
    readings: list[Reading]


def readings_of_log(log: MetricLog, wanted: Collection[str] | None = None) -> Iterator[LogStep]:
    """Step by step what a pipeline takes: readings `aggregate/<name>` of the slice `all`, without tokens or interval.

    `wanted`: keys of the readings to make, all of them when None; the other fields tell of every metric all the same. Held-out metrics come when an evaluation is due, so their absence is no silence.
    """
    seen: dict[str, int] = {}
    for _, row in log.rows:
        for name in row:
            seen[name] = seen.get(name, 0) + 1
    regular = {name for name, count in seen.items() if count >= _CADENCE and not name.startswith("held_out")}
    keys = {name: (f"aggregate/{name}", f"metrics/{name}") for name in seen}
    made = [name for name, (key, _) in keys.items() if wanted is None or key in wanted]
    reference = {name: f"{log.framework}: {theirs}" for name, theirs in log.mapped.items()}
    columns: list[str] = []
    shape: tuple[str, ...] = ()
    for step, row in log.rows:
        window = Window(step, step)
        if tuple(row) != shape:
            shape = tuple(row)
            columns = [keys[name][1] for name in row if name in regular]
        calm = all(map(math.isfinite, row.values()))
        yield LogStep(
            step,
            {} if calm else {keys[n][1]: 1 for n, value in row.items() if not math.isfinite(value)},
            columns,
            [
                Reading(keys[name][0], step, window, "all", row[name], 0, 0, reference=reference[name])
                for name in made
                if name in row
            ],
        )


def series_of_log(log: MetricLog) -> dict[tuple[str, str], tuple[list[int], list[float]]]:
    """The same, by series: (reading key, slice) -> the steps it was logged at, and its values there, NaN included."""
    found: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for step, row in log.rows:
        for name, value in row.items():
            steps, values = found.setdefault((f"aggregate/{name}", "all"), ([], []))
            steps.append(step)
            values.append(value)
    return found

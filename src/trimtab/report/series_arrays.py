"""The series of a stored run, merged over ranks, as arrays."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable

import numpy as np

from trimtab.errors import SummaryError
from trimtab.measure.steps.rank_merge import merge_ranks
from trimtab.measure.steps.series_history import SeriesArrays
from trimtab.measure.steps.series_row import Layout, layout_of, row_bytes, series_from_row, tables_of
from trimtab.measure.steps.step_series import StepSeries
from trimtab.runs import RunReader

_FIELDS = ("values", "errors", "num_tokens", "num_trajectories")


def read_series(folder: str | os.PathLike[str] | RunReader) -> dict[tuple[str, str], SeriesArrays]:
    """Read the series of a run folder.

    Args:
        folder: a run folder, or its reader.

    Returns:
        (series, slice) -> steps, values, standard errors, tokens and trajectories, in the order of steps.
        Steps without a value are not among them. Empty for a folder of 0.1, which has no series.

    Raises:
        RunError: the folder is not a run.

    Example:
        level = read_series("runs/exp1")["total/p95", "post_tool"]
        print(level.steps, level.values, level.errors)
    """
    reader = folder if isinstance(folder, RunReader) else RunReader(folder, complete=True)
    return arrays_of_run(reader)


def step_series(reader: RunReader, ranks: Collection[int] | None = None) -> list[StepSeries]:
    """Return the series of each step, merged over `ranks` (all); a row that cannot be read is left out."""
    by_step: dict[int, dict[int, StepSeries]] = defaultdict(dict)
    for rank in reader.ranks if ranks is None else ranks:
        for row in reader.rows("series", rank):
            try:
                by_step[int(row["step"])][rank] = series_from_row(row)
            except SummaryError:
                continue
    return [
        merge_ranks([ranks[n] for n in sorted(ranks)], sorted(ranks)) for _, ranks in sorted(by_step.items())
    ]


def arrays_of_run(reader: RunReader) -> dict[tuple[str, str], SeriesArrays]:
    """Return the arrays of a run, merged over ranks; of one rank without a record a step."""
    if len(reader.ranks) != 1:
        return arrays_of(step_series(reader))
    layouts: dict[Layout, tuple[list[int], list[tuple[bytes, bytes]]]] = defaultdict(lambda: ([], []))
    for row in reader.rows("series", reader.ranks[0]):
        try:
            layout = layout_of(row)
            packed = row_bytes(row, layout)
        except SummaryError:
            continue
        steps, rows = layouts[layout]
        steps.append(int(row["step"]))
        rows.append(packed)
    tables = []
    for layout, (steps, rows) in layouts.items():
        numbers, counts = tables_of(layout, rows)
        both = [numbers[:, 0], numbers[:, 1], counts[:, 0], counts[:, 1]]
        tables.append((layout, np.array(steps, np.int64), both))
    return _stacked(tables)


def arrays_of(steps: Iterable[StepSeries]) -> dict[tuple[str, str], SeriesArrays]:
    """Turn steps into arrays of each series and slice; steps that have the same ones are stacked."""
    layouts: dict[Layout, list[StepSeries]] = defaultdict(list)
    for one in steps:
        layouts[one.names, one.slices].append(one)
    tables = []
    for layout, group in layouts.items():
        numbers = np.array([one.step for one in group], np.int64)
        tables.append(
            (layout, numbers, [np.stack([getattr(one, field) for one in group]) for field in _FIELDS])
        )
    return _stacked(tables)


def _stacked(
    layouts: Iterable[tuple[Layout, np.ndarray, list[np.ndarray]]],
) -> dict[tuple[str, str], SeriesArrays]:
    """Join tables (T, K, S) of several layouts into arrays of each series and slice, steps in order."""
    parts: dict[tuple[str, str], list[list[np.ndarray]]] = defaultdict(list)
    for (names, slices), numbers, tables in layouts:
        there = tables[3] > 0
        for i, j in np.argwhere(there.any(axis=0)).tolist():
            keep = there[:, i, j]
            parts[names[i], slices[j]].append([numbers[keep], *(table[keep, i, j] for table in tables)])
    series = {}
    for key, pieces in parts.items():
        columns = [np.concatenate(column) for column in zip(*pieces, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        series[key] = SeriesArrays(*(column[order] for column in columns))
    return series

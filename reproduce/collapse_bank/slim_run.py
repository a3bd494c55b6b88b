"""Make a recorded run small enough that 86 seeds of a cause fit into 3 MB: the main slices, the readings that rules and tables read.

Tokens are kept elsewhere, exact (`batches.py`), so nothing is lost that a later version could want: it records the run anew.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.measure.steps.series_row import series_from_row, series_row
from trimtab.measure.steps.step_series import StepSeries
from trimtab.runs.row_lines import Row, encode_row

__all__ = ["DROPPED", "SLICES", "slim_run"]

SLICES = ("all", "text", "post_tool")
PREFIXES = ("reward_part/",)
KEYS = ("mismatch/p95", "total/p95", "drift/p95", "lagged_drift/p95", "tail_ratio/p95", "entropy/mean")
SERIES = ("total/p95", "mismatch/p95", "total/sequence_ess_frac")
"""Series of steps that are kept, in float16."""
DROPPED = ("states", "exemplars")
"""Kinds of rows that are not kept at all."""
FILES = (".lock.*", "process.*")
PER_READING = ("values", "low", "high", "n", "reasons")
DIGITS = 4


def slim_run(folder: Path, whole: bool = False, dropped: Sequence[str] = DROPPED) -> None:
    """Rewrite a compressed run folder: kinds in `dropped` removed, readings of `SLICES` and rewards, step rows without costs.

    `whole`: readings and series stay as they are, so that other rules can be replayed over them.
    """
    for pattern in FILES:
        for path in folder.glob(pattern):
            path.unlink()
    removed: dict[str, list[int]] = {}
    for kind in dropped:
        for path in folder.glob(f"{kind}.*.gz"):
            removed[kind] = _rewrite(path, lambda _: None)
    for path in [] if whole else folder.glob("readings.*.gz"):
        removed["readings"] = _rewrite(path, _slim_reading)
    for path in [] if whole else folder.glob("series.*.gz"):
        _rewrite(path, _slim_series)
    for path in folder.glob("steps.*.gz"):
        _rewrite(path, lambda row: _slim_step(row, removed))


def _slim_reading(row: Row) -> Row | None:
    if row["slice"] not in SLICES and not row["slice"].startswith("reward/"):
        return None
    keys = [key for key in row["values"] if key in KEYS or key.startswith(PREFIXES)]
    if not keys:
        return None
    kept = {part: {key: _rounded(row[part][key]) for key in keys if key in row[part]} for part in PER_READING}
    return {**row, **kept, "excluded": {}, "reference": {}}


def _slim_series(row: Row) -> Row:
    step = series_from_row(row)
    names = [name for name in SERIES if name in step.names]
    slices = [name for name in SLICES if name in step.slices]
    index = np.ix_([step.names.index(name) for name in names], [step.slices.index(name) for name in slices])
    with np.errstate(over="ignore"):
        numbers = [table[index].astype(np.float16).astype(np.float64) for table in (step.values, step.errors)]
    counts = [step.num_tokens[index], step.num_trajectories[index]]
    kept = series_row(StepSeries(step.step, tuple(names), tuple(slices), *numbers, *counts))
    return {**row, **kept}


def _slim_step(row: Row, removed: dict[str, list[int]]) -> Row:
    counts = {
        kind: (count or 0) - sum(number < (count or 0) for number in removed.get(kind, ()))
        for kind, count in row["n"].items()
    }
    slices = {name: row["slices"][name] for name in SLICES if name in row["slices"]}
    return {
        **row,
        "n": counts,
        "slices": slices,
        "costs_s": {},
        "time": round(row["time"]),
        "clock": round(row["clock"]),
    }


def _rewrite(path: Path, change: Callable[[Row], Row | None]) -> list[int]:
    """Replace the rows of a file by what `change` makes of them; returns the numbers of those it drops."""
    dropped: list[int] = []
    data = b"".join(_lines(gzip.decompress(path.read_bytes()), change, dropped))
    half = path.with_name(f"{path.name}.part")
    half.write_bytes(gzip.compress(data, compresslevel=9, mtime=0))
    half.replace(path)
    return dropped


def _lines(data: bytes, change: Callable[[Row], Row | None], dropped: list[int]) -> Iterator[bytes]:
    number = 0
    for line in data.splitlines():
        row = json.loads(line)
        new = change(row)
        if new is None:
            dropped.append(row["q"])
            continue
        fields = {name: value for name, value in new.items() if name not in ("s", "q", "c")}
        yield encode_row(fields, number, row["s"])
        number += 1


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value

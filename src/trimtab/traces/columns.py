"""The columnar engine: step JSONL to the table of the checks, out of core, whole episodes at a time.

Same table as `tabulate` makes of the same lines, but for what it does not keep: the file's line and the arguments of examples.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.traces.columns_part import Part, part_of
from trimtab.traces.columns_scan import ENDS, Scan, scan
from trimtab.traces.columns_table import ColumnTable, End
from trimtab.traces.reading import ReadReport
from trimtab.traces.table import MAX_TOOLS, TraceTable

__all__ = ["PART_ROWS", "tabulate_steps"]

Array = npt.NDArray[Any]
PART_ROWS = 250_000
"""Rows of a part; about 150 bytes each while it is worked on, and as many parts at once as there are threads."""

_COLUMNS = (
    "select eh, rowid as row, step, kind, hash(tool) as th, tool is null or tool = '' as nameless, ah, rh, ts, "
    "coalesce(latency, 'nan') as latency, coalesce(tokens, 'nan') as tokens, coalesce(blank, false) as blank"
)


class _Names(NamedTuple):
    """Codes of the file's tools by hash, and of its error texts by row."""

    tools: dict[int, int]
    error_rows: Array
    error_codes: Array


def tabulate_steps(files: Sequence[str], report: ReadReport, threads: int = 2) -> TraceTable:
    """The table of files of step JSONL. The caller has made sure of the format; see `traces.engine`."""
    table = ColumnTable()
    for file in files:
        report.formats[file] = "steps"
        with scan(file, report, threads) as found:
            _file(found, table, report, threads)
        if report.progress is not None:
            report.progress(Path(file).stat().st_size)
    report.num_episodes += table.num_episodes
    return table.table()


def _file(found: Scan, table: ColumnTable, report: ReadReport, threads: int) -> None:
    names, rows = _names(found, table), found.num_rows
    parts = math.ceil(rows / PART_ROWS)

    def work(number: int) -> tuple[Part, list[str], dict[int, End]]:
        where = f"(eh >> 7) % {parts} = {number}"
        part = part_of(_coded(found.columns(f"{_COLUMNS} from x where {where}"), names))
        return part, _idents(found, part.eh, where), _ends(found, where)

    with ThreadPoolExecutor(
        threads
    ) as pool:  # as many parts in memory as there are threads, and one being added
        waiting: deque[Future[tuple[Part, list[str], dict[int, End]]]] = deque()
        for number in range(parts):
            waiting.append(pool.submit(work, number))
            if len(waiting) > threads:
                _add(waiting.popleft().result(), table, report)
        while waiting:
            _add(waiting.popleft().result(), table, report)
    table.told_by_log = table.told_by_log or found.told_by_log
    table.end_file(rows)


def _add(made: tuple[Part, list[str], dict[int, End]], table: ColumnTable, report: ReadReport) -> None:
    _note(made[0], report)
    table.add(*made)


def _note(part: Part, report: ReadReport) -> None:
    if part.moved:
        report.note("steps out of order, sorted", part.moved)
    if part.copies:
        report.note("steps that are copies of another, dropped", part.copies)


def _names(found: Scan, table: ColumnTable) -> _Names:
    tools = found.execute(
        "select coalesce(tool, ''), hash(tool), min(rowid) from x where kind in (1, 3) group by 1, 2 order by 3"
    ).fetchall()
    codes = {int(h): table.tool_code(str(name)) for name, h, _ in tools}
    errors = found.execute(
        "select rowid, left(err, 400) from x where err is not null order by rowid"
    ).fetchall()
    rows = np.array([row for row, _ in errors], np.int64)
    return _Names(codes, rows, np.array([table.error_code(text) for _, text in errors], np.int64))


def _coded(columns: dict[str, Array], names: _Names) -> dict[str, Array]:
    """Hashes of tools to codes (a result's missing name is -1: it may answer any call), rows with an error to its code."""
    hashes = np.array(sorted(names.tools), np.uint64)
    codes = np.array([names.tools[int(h)] for h in hashes], np.int64)
    th = columns.pop("th")
    place = np.minimum(np.searchsorted(hashes, th), max(hashes.size - 1, 0))
    known = hashes[place] == th if hashes.size else np.zeros(th.size, bool)
    tool = np.where(known, codes[place], len(codes) + MAX_TOOLS) if hashes.size else np.full(th.size, -1)
    calls = np.isin(columns["kind"], (1, 3))
    columns["tool"] = np.where(columns.pop("nameless") & ~calls, -1, tool)
    err = np.full(th.size, -1, np.int64)
    if names.error_rows.size:
        place = np.minimum(np.searchsorted(names.error_rows, columns["row"]), names.error_rows.size - 1)
        err = np.where(names.error_rows[place] == columns["row"], names.error_codes[place], -1)
    columns["err"] = err
    ts = columns["ts"]
    for size in (1e18, 1e15, 1e12):  # nano, micro, milli, as `values.as_time`
        large = np.abs(ts) >= size
        if large.any():
            ts = np.where(large, ts / (size / 1e9), ts)
    columns["ts"] = np.where(np.isfinite(ts), ts, np.nan)
    return columns


def _idents(found: Scan, hashes: Array, where: str) -> list[str]:
    """(E,) ids: from first steps and ends, the rest from the file."""
    rows = found.execute(
        f"select eh, any_value(name) from x where name is not null and {where} group by eh"
    ).fetchall()
    known = {int(h): str(name) for h, name in rows}
    missing = [h for h in hashes.tolist() if h not in known]
    if missing:
        known |= found.names(np.array(missing, np.uint64))
    return [known[h] for h in hashes.tolist()]


def _ends(found: Scan, where: str) -> dict[int, End]:
    """Hash of an episode's id -> what its last end says."""
    rows = found.execute(f"{ENDS} and {where} order by step, rowid").fetchall()
    return {int(row[0]): End(*row[1:]) for row in rows}

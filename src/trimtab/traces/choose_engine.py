"""Which engine makes the table: the readers, or DuckDB's columns for large files of step JSONL?"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path

from trimtab.errors import TraceError
from trimtab.traces.columnar.engine import tabulate_steps
from trimtab.traces.columnar.ray import ray_map
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.files.find import STDIN, find_files
from trimtab.traces.files.json_records import iter_records
from trimtab.traces.read import iter_episodes
from trimtab.traces.registry import find_format
from trimtab.traces.table.build import RequiredFiles, tabulate
from trimtab.traces.table.types import TraceTable

ENGINES = ("auto", "records", "columns")
LARGE_BYTES = 64 * 2**20
"""From this size on, all files together, the columns are worth it; below, examples with arguments and file lines are."""


def table_of(
    paths: Iterable[str | Path],
    report: ReadReport,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    engine: str = "auto",
    required: RequiredFiles | None = None,
    ray: str | None = None,
) -> TraceTable:
    """The table of the checks, of any logs we read. TraceError as for reading, or for columns where they cannot be used.

    Columns need files of step JSONL, plain or compressed, without `--strict`, in which no id of an episode comes in two files.
    `ray`: a cluster's address, or `local`; the columns are then counted there, whatever the size.
    """
    if engine not in ENGINES:
        raise TraceError(f"unknown engine {engine!r}; one of {', '.join(ENGINES)}")
    if ray is not None:
        if engine == "records":
            raise TraceError("--ray counts columns; leave --engine records out")
        engine = "columns"
    files = find_files(paths)
    why = _not_columns(files, report, format, mapping, required) if engine != "records" else ""
    large = engine == "columns" or (
        engine == "auto" and not why and sum(Path(f).stat().st_size for f in files) >= LARGE_BYTES
    )
    if large and why:
        raise TraceError(f"the columnar engine cannot read this: {why}; leave --engine (--ray) out")
    if large:
        found = ReadReport(progress=report.progress)
        with ray_map(ray) if ray is not None else nullcontext() as mapper:
            table = tabulate_steps(files, found, mapper)
        if len(files) == 1 or len(set(table.ids)) == len(table.ids):
            report.__dict__.update(found.__dict__ | {"notes": report.notes + found.notes})
            return table
        if engine == "columns":
            raise TraceError(
                "the columnar engine cannot read this: an id of an episode comes in two files; leave --engine out"
            )
    return tabulate(iter_episodes(files, report, format, mapping), required)


def _not_columns(
    files: list[str],
    report: ReadReport,
    format: str | None,
    mapping: Mapping[str, str] | None,
    required: RequiredFiles | None,
) -> str:
    """Why the columns cannot be used; empty when they can."""
    if not Path("/dev/fd").is_dir():
        return "this system has no /dev/fd, through which DuckDB is given the log"
    if report.strict:
        return "--strict stops at a line, columns have none"
    if report.error_patterns:
        return "it keeps no results, in which --error-pattern looks"
    if required is not None and required.rows:
        return "it keeps no arguments, which name the required files"
    if mapping or format not in (None, "steps"):
        return "it reads step JSONL only"
    for file in files:
        if file == STDIN or not Path(file).is_file():
            return f"{file} is not a regular file"
        with open(file, "rb") as raw:
            head = raw.read(2)
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            return f"{file} is UTF-16"
        records = itertools.islice(iter_records(file, ReadReport()), 20)
        if format is None and find_format(record.value for record in records) != "steps":
            return f"{file} is not step JSONL"
    return ""

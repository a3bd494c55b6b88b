"""The rows of a Parquet file as records, by DuckDB: the base install has no pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trimtab.errors import TraceError
from trimtab.safe_files import glob_escaped
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.find import STDIN

_BATCH = 256
_NULLS = "arguments of calls that are null in Parquet, which fills in what other calls have, left out"


def is_parquet(path: str) -> bool:
    """Does the file begin as Parquet does?"""
    if path == STDIN or not Path(path).is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def parquet_records(path: str, report: ReadReport) -> Iterator[Record]:
    """A record a row, in the file's order; `line` is the row's number. TraceError for a file that cannot be
    read.

    A column's structs all have the same fields: those that only other rows gave are null, and are left out.
    Columns of JSON, as our own exports have, are read as the JSON they are.
    """
    import duckdb  # a tenth of a second, which other logs need not wait for

    with duckdb.connect(":memory:") as con:
        try:
            rows = con.execute("select * from read_parquet(?)", [glob_escaped(path)])
            names = [column[0] for column in rows.description]
            ours = [str(column[1]) in ("JSON", "JSON[]") for column in rows.description]
            number = 0
            while batch := rows.fetchmany(_BATCH):
                for row in batch:
                    number += 1
                    report.num_lines += 1
                    fields = {
                        name: _parsed(value) if json else _without_nulls(value, report)
                        for name, value, json in zip(names, row, ours, strict=True)
                    }
                    yield Record(path, number, fields)
        except duckdb.Error as error:
            why = str(error).splitlines()[0][:200]
            raise TraceError(f"{path} cannot be read as Parquet: {why}") from error


def _parsed(value: Any) -> Any:
    """The value of JSON text, or of a list of it; text that is none stays."""
    if isinstance(value, list):
        return [_parsed(item) for item in value]
    try:
        return parse_json(value) if isinstance(value, str) else value
    except BadJson:
        return value


def _without_nulls(value: Any, report: ReadReport) -> Any:
    """The value without the nulls of its structs. Of arguments they are counted: one may have been the
    model's."""
    if isinstance(value, list):
        return [_without_nulls(item, report) for item in value]
    if not isinstance(value, dict):
        return value
    arguments = value.get("arguments")
    if isinstance(arguments, dict) and (nulls := sum(one is None for one in arguments.values())):
        report.note(_NULLS, nulls)
    return {key: _without_nulls(inner, report) for key, inner in value.items() if inner is not None}

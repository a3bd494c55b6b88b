"""The rows of a Parquet file as records, by DuckDB: the base install has no pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trimtab.errors import TraceError
from trimtab.traces.files import STDIN
from trimtab.traces.reading import ReadReport, Record

__all__ = ["is_parquet", "parquet_records"]

_BATCH = 256


def is_parquet(path: str) -> bool:
    """Does the file begin as Parquet does?"""
    if path == STDIN or not Path(path).is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def parquet_records(path: str, report: ReadReport) -> Iterator[Record]:
    """A record a row, in the file's order; `line` is the row's number. TraceError for a file that cannot be read."""
    import duckdb  # a tenth of a second, which other logs need not wait for

    with duckdb.connect(":memory:") as con:
        try:
            rows = con.execute("select * from read_parquet(?)", [path])
            names = [column[0] for column in rows.description]
            number = 0
            while batch := rows.fetchmany(_BATCH):
                for row in batch:
                    number += 1
                    report.num_lines += 1
                    yield Record(path, number, dict(zip(names, row, strict=True)))
        except duckdb.Error as error:
            raise TraceError(
                f"{path} cannot be read as Parquet: {str(error).splitlines()[0][:200]}"
            ) from error

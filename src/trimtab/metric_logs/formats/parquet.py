"""Parquet through DuckDB: any table with a step column, and rlprobe's recordings."""

from __future__ import annotations

from pathlib import Path

from trimtab.errors import MetricLogError
from trimtab.metric_logs.formats.types import RawLog


def read_parquet(path: Path) -> RawLog:
    """The rows of one Parquet file; columns of lists are left out. Of several ranks, the lowest is read, the others counted."""
    import duckdb

    log = RawLog("parquet", [])
    try:
        with duckdb.connect() as connection:
            found = connection.execute("select * from read_parquet(?)", [str(path)])
            names = [column[0] for column in found.description or ()]
            log.rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    except duckdb.Error as error:
        raise MetricLogError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    ranks = {row["rank"] for row in log.rows} if "rank" in names else set()
    if len(ranks) > 1 and None not in ranks:
        kept = [row for row in log.rows if row["rank"] == min(ranks)]
        log.excluded["rows of other ranks"] += len(log.rows) - len(kept)
        log.rows = kept
        log.notes.append(f"{len(ranks)} ranks recorded; rank {min(ranks)} is read")
    return log


def read_rlprobe(folder: Path) -> RawLog:
    """The steps of an rlprobe recording directory."""
    log = read_parquet(folder / "steps.parquet")
    log.format = "rlprobe"
    return log

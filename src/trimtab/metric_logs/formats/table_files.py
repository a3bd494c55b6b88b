"""Parquet through DuckDB: any table with a step column, and rlprobe's recordings.

MLflow's and trackio's stores: SQLite files of several runs, and MLflow's folders of text files.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from trimtab.errors import MetricLogError
from trimtab.metric_logs.formats.text_formats import strict_json
from trimtab.metric_logs.formats.types import RawLog, by_step, flat
from trimtab.safe_files import excess, expansion_limit, glob_escaped, require_cells

_BATCH = 64


def read_parquet(path: Path) -> RawLog:
    """The rows of one Parquet file; columns of lists are left out. Of several ranks, the lowest is read, the
    others counted."""
    import duckdb

    log = RawLog("parquet", [])
    try:
        with duckdb.connect() as connection:
            source = [glob_escaped(path)]
            (num_rows,) = connection.execute("select count(*) from read_parquet(?)", source).fetchall()[0]
            cursor = connection.execute("select * from read_parquet(?)", source)
            names = [column[0] for column in cursor.description or ()]
            require_cells(path, num_rows, len(names), MetricLogError)
            size, limit = 0, expansion_limit(path.stat().st_size)
            while batch := cursor.fetchmany(_BATCH):
                log.rows += [dict(zip(names, row, strict=True)) for row in batch]
                size += sum(
                    len(value) for row in batch for value in row if isinstance(value, (str, bytes, list))
                )
                if size > limit:
                    raise MetricLogError(excess(str(path), path.stat().st_size))
    except duckdb.Error as error:
        raise MetricLogError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    ranks = {row["rank"] for row in log.rows} if "rank" in names else set()
    if len(ranks) > 1 and None not in ranks:
        of_rank = [row for row in log.rows if row["rank"] == min(ranks)]
        log.excluded["rows of other ranks"] += len(log.rows) - len(of_rank)
        log.rows = of_rank
        log.notes.append(f"{len(ranks)} ranks recorded; rank {min(ranks)} is read")
    return log


def read_rlprobe(folder: Path) -> RawLog:
    """The steps of an rlprobe recording directory."""
    log = read_parquet(folder / "steps.parquet")
    log.format = "rlprobe"
    return log


_MLFLOW_RUNS = (
    "select m.run_uuid, coalesce(r.name, m.run_uuid) from metrics m left join runs r on r.run_uuid = "
    "m.run_uuid group by m.run_uuid order by coalesce(max(r.start_time), max(m.timestamp))"
)
_MLFLOW_ROWS = "select step, key, case when is_nan then null else value end from metrics where run_uuid = ? order by timestamp, step"  # noqa: E501
_TRACKIO_RUNS = "select {run}, max(run_name) from metrics group by {run} order by max(timestamp)"
_TRACKIO_ROWS = "select step, metrics from metrics where {run} = ? order by id"


def read_sqlite(path: Path, run: str | None) -> RawLog:
    """One run of an `mlflow.db` or of a trackio database: the one asked for by name or id, else the
    newest."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as store:
            columns = {row[1] for row in store.execute("pragma table_info(metrics)")}
            if {"key", "value", "step", "run_uuid", "is_nan"} <= columns:
                return _mlflow(store, path, run)
            if {"metrics", "step", "run_name"} <= columns:
                return _trackio(store, path, run, "run_id" if "run_id" in columns else "run_name")
    except (
        sqlite3.Error,
        ValueError,
        TypeError,
    ) as error:  # damage shows as text that is not UTF-8, or as text in numbers' columns
        raise MetricLogError(f"{path} cannot be read as SQLite: {str(error).splitlines()[0]}") from error
    raise MetricLogError(
        f"{path} is an SQLite file, but neither MLflow's nor trackio's: it has no table of metrics we know"
    )


def _chosen(runs: list[tuple[str, str]], path: Path, run: str | None, log: RawLog) -> str:
    """The id of the run to read; the choice is noted when there was one."""
    if not runs:
        raise MetricLogError(f"{path}: no run has logged a metric")
    if run is None:
        if len(runs) > 1:
            log.notes.append(f"{len(runs)} runs in the store; the newest, {runs[-1][1]}, is read")
            log.other_runs = [f"{path}#{name}" for _, name in runs[-2::-1]]
        return runs[-1][0]
    for identity, name in reversed(runs):
        if run in (identity, name):
            return identity
    raise MetricLogError(f"{path} has no run {run!r}; it has {', '.join(name for _, name in runs[-6:])}")


def _mlflow(store: sqlite3.Connection, path: Path, run: str | None) -> RawLog:
    log = RawLog("mlflow", [])
    identity = _chosen(store.execute(_MLFLOW_RUNS).fetchall(), path, run, log)
    cursor = store.execute(_MLFLOW_ROWS, (identity,))
    log.rows = by_step(
        (step, key, math.nan if value is None else _infinite(value)) for step, key, value in cursor
    )
    return log


def _infinite(value: float) -> float:
    """MLflow's SQL store writes infinity as the largest double."""
    return math.copysign(math.inf, value) if abs(value) >= 1.7976931348623157e308 else float(value)


def _trackio(store: sqlite3.Connection, path: Path, run: str | None, column: str) -> RawLog:
    log = RawLog("trackio", [])
    identity = _chosen(store.execute(_TRACKIO_RUNS.format(run=column)).fetchall(), path, run, log)
    for step, metrics in store.execute(_TRACKIO_ROWS.format(run=column), (identity,)):
        try:
            row = strict_json(metrics if isinstance(metrics, bytes) else str(metrics).encode(), log.excluded)
        except ValueError:
            log.excluded["malformed rows"] += 1
            continue
        if isinstance(row, dict):
            log.rows.append({**flat(row), "step": step})
    return log


def read_mlflow_folder(folder: Path) -> RawLog:
    """A run's folder of MLflow's file store: `metrics/<key>` files of lines `timestamp value step`."""
    log = RawLog("mlflow", [])
    root = folder / "metrics"

    def values() -> Iterator[tuple[float, int, str, float]]:
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            key = path.relative_to(root).as_posix()
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                parts = line.split()
                try:
                    yield float(parts[0]), (int(parts[2]) if len(parts) > 2 else 0), key, float(parts[1])
                except (IndexError, ValueError):
                    log.excluded["malformed lines"] += 1

    log.rows = by_step(row[1:] for row in sorted(values(), key=lambda row: row[:2]))
    return log

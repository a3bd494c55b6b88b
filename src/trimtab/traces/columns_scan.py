"""Step JSONL to narrow columns by DuckDB, out of core: the only pass over the bytes.

What is read off a line here is what `traces.steps` reads off it; a test holds the two together. Texts are hashed, so that 300 MB
become about 40; only errors, ids of first steps and what ends an episode stay text. A line DuckDB reads as nothing is looked at
again by `parse_json`: it is malformed, or (lone surrogates) read after all.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from trimtab.traces.json_records import BadJson, parse_json
from trimtab.traces.lines import iter_lines
from trimtab.traces.reading import ReadReport
from trimtab.traces.tool_errors import ERROR_START

__all__ = ["CALL", "END", "ENDS", "KINDS", "MESSAGE", "PARSE_ERROR", "RESULT", "Scan", "scan"]

OTHER, CALL, RESULT, PARSE_ERROR, MESSAGE, END = range(6)
KINDS = {
    "tool_call": CALL,
    "tool_result": RESULT,
    "tool_parse_error": PARSE_ERROR,
    "assistant_message": MESSAGE,
    "episode_end": END,
}

MEMORY = "256MB"
"""DuckDB's own limit; beyond it the columns go to a temporary folder."""

_LINE_BYTES = (32 * 2**20, 256 * 2**20)
_NUMBERS = ("step", "tokens", "reward", "total_tokens", "latency_s", "duration_s")
_TEXTS = (
    "episode_id", "timestamp", "type", "tool", "args", "result", "error", "content", "success", "metadata", "task_id", "group_id",
    "stop_reason",
)  # fmt: skip

_SELECT = f"""
select
    hash(episode_id) as eh,
    coalesce(step, 'nan') as step,
    (case type {" ".join(f"when '{name}' then {code}" for name, code in KINDS.items())} else {OTHER} end)::tinyint as kind,
    tool,
    case when type = 'tool_parse_error' then hash(coalesce(content, args)) else hash(args) end as ah,
    case when type = 'tool_result' then hash(coalesce(result, content, '')) else 0::ubigint end as rh,
    TIME as ts,
    case when type = 'tool_result' then coalesce(latency_s, duration_s) end as latency,
    type = 'tool_result' and coalesce(error, '') not in ('', 'false') as said,
    tokens,
    case when type = 'assistant_message' then content is null or regexp_full_match(content, '\\s*') else false end as blank,
    case when type = 'tool_result' then
           case when error is not null and error not in ('', 'false') then error
                when regexp_matches(coalesce(result, content), '{ERROR_START}', 'i') then coalesce(result, content) end
         when type = 'tool_parse_error' then coalesce(error, 'the call could not be parsed') end as err,
    case when step is null or step = 0 or type = 'episode_end' then episode_id end as name,
    case when type = 'episode_end' then reward end as reward,
    case when type = 'episode_end' then case lower(success) when 'true' then 1 when '1' then 1 when 'false' then 0 when '0' then 0 end end::tinyint as success,
    case when type = 'episode_end' then total_tokens end as total_tokens,
    case when type = 'episode_end' then metadata end as metadata,
    case when type = 'episode_end' then task_id end as task_id,
    case when type = 'episode_end' then group_id end as group_id,
    case when type = 'episode_end' then stop_reason end as stop_reason,
    episode_id is null or type is null as bad
from read_json(?, format = 'newline_delimited', columns = COLUMNS, ignore_errors = true, maximum_object_size = SIZE)
"""
_TIMES = {
    True: "coalesce(timestamp, 'nan')",
    False: "coalesce(case when try_cast(timestamp as double) is not null then try_cast(timestamp as double) "
    "else epoch(try_cast(timestamp as timestamptz)) end, 'nan')",
}


_TASK = "coalesce(task_id, json_extract_string(metadata, '$.task_id'), json_extract_string(metadata, '$.task'), json_extract_string(metadata, '$.prompt_id'), group_id, json_extract_string(metadata, '$.group_id'))"
_GROUP = "coalesce(group_id, json_extract_string(metadata, '$.group_id'))"
_STOP = "coalesce(stop_reason, json_extract_string(metadata, '$.stop_reason'), json_extract_string(metadata, '$.termination_reason'))"
ENDS = f"select eh, reward, success, total_tokens, {_TASK} as task, {_GROUP} as grp, {_STOP} as stop from x where kind = {END}"
"""What the last lines of episodes say; JSON is looked into there only."""


class Scan:
    """The narrow table `x` of one file; open inside `scan` only. Rows keep the file's order; `rowid` counts the lines not blank."""

    def __init__(self, con: duckdb.DuckDBPyConnection, path: str, line_bytes: int) -> None:
        self.con, self.path, self.line_bytes = con, path, line_bytes

    @property
    def num_rows(self) -> int:
        """Lines that are not blank."""
        return int(self._one("select count(*) from x"))

    @property
    def told_by_log(self) -> bool:
        """Does a field of the log call any call failed?"""
        return bool(self._one("select coalesce(bool_or(said), false) from x"))

    def _one(self, query: str) -> Any:
        row = self.con.execute(query).fetchone()
        assert row is not None
        return row[0]

    def execute(self, query: str, values: Sequence[Any] = ()) -> duckdb.DuckDBPyConnection:
        """Run a query on a cursor of its own, so that threads may do so at once."""
        return self.con.cursor().execute(query, list(values))

    def columns(self, query: str, *values: Any) -> dict[str, npt.NDArray[Any]]:
        """A query's columns; numeric ones have no nulls."""
        found = self.execute(query, values).fetchnumpy()
        return {
            name: np.ma.getdata(column) if column.dtype != object else column
            for name, column in found.items()
        }

    def names(self, hashes: npt.NDArray[np.uint64]) -> dict[int, str]:
        """Ids of episodes that have neither a step 0 nor an end: a second look at the file, for those only."""
        query = f"select distinct hash(episode_id), episode_id from {_ids_of(self.path, self.line_bytes)} where hash(episode_id) in (select unnest(?))"
        return {int(h): str(name) for h, name in self.execute(query, [hashes.tolist()]).fetchall()}


@contextmanager
def scan(path: str, report: ReadReport, threads: int = 2) -> Iterator[Scan]:
    """Read one file of step JSONL, plain or gzip, and count and locate in `report` what cannot be read."""
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder, duckdb.connect(":memory:") as con:
        con.execute(
            f"set memory_limit = '{MEMORY}'; set threads = {int(threads)}; set temp_directory = '{folder}'; set timezone = 'UTC'"
        )
        numeric = _numeric_time(path)
        found = Scan(con, path, _fill(con, path, numeric))
        report.num_lines += found.num_rows
        _second_look(found, Path(folder), numeric, report)
        yield found


def _fill(con: duckdb.DuckDBPyConnection, path: str, numeric_time: bool) -> int:
    """Make the table; the longest line allowed, in bytes. A buffer is twice that, so longer ones are tried only when there is one."""
    size, longest = _LINE_BYTES
    try:
        con.execute(f"create or replace table x as {_query(numeric_time, size)}", [path])
        return size
    except duckdb.Error as error:
        if "maximum_object_size" not in str(error):
            raise
    con.execute("set threads = 1; set memory_limit = '1500MB'")
    con.execute(f"create or replace table x as {_query(numeric_time, longest)}", [path])
    return longest


def _query(numeric_time: bool, size: int) -> str:
    numbers = (*_NUMBERS, "timestamp") if numeric_time else _NUMBERS
    kinds = {name: "DOUBLE" if name in numbers else "VARCHAR" for name in (*_TEXTS, *_NUMBERS)}
    columns = "{" + ", ".join(f"{name}: '{kind}'" for name, kind in kinds.items()) + "}"
    return (
        _SELECT.replace("TIME", _TIMES[numeric_time]).replace("COLUMNS", columns).replace("SIZE", str(size))
    )


def _ids_of(path: str, line_bytes: int) -> str:
    quoted = path.replace("'", "''")
    return (
        f"read_json('{quoted}', format = 'newline_delimited', columns = {{episode_id: 'VARCHAR'}}, ignore_errors = true, "
        f"maximum_object_size = {line_bytes})"
    )


def _numeric_time(path: str) -> bool:
    """Are the first timestamps numbers? Reading them as such is faster; texts are cast."""
    seen = 0
    for line in iter_lines(path, ReadReport()):
        try:
            value = parse_json(line.text)
        except BadJson:
            continue
        when = value.get("timestamp") if isinstance(value, dict) else None
        if isinstance(when, str):
            return False
        seen += 1
        if seen >= 100:
            break
    return True


def _second_look(found: Scan, folder: Path, numeric_time: bool, report: ReadReport) -> None:
    """Lines DuckDB made nothing of: malformed, or read after all and appended."""
    rows = found.columns("select rowid as row from x where bad order by rowid")["row"].tolist()
    if not rows:
        return
    wanted, rescued = iter(rows), []
    next_row = next(wanted, -1)
    for row, line in enumerate(iter_lines(found.path, ReadReport())):
        if row != next_row:
            continue
        next_row = next(wanted, -1)
        why = _reason(line.text, line.ended)
        if why is None:
            rescued.append(line.text)
        else:
            report.malformed(found.path, line.number, why)
    found.con.execute("delete from x where bad")
    if rescued:
        file = folder / "rescued.jsonl"
        with file.open("w", encoding="utf-8", errors="replace") as out:
            for text in rescued:
                out.write(json.dumps(parse_json(text), ensure_ascii=False) + "\n")
        found.con.execute(f"insert into x {_query(numeric_time, found.line_bytes)}", [str(file)])


def _reason(text: bytes, ended: bool) -> str | None:
    """Why a line is malformed, in the words of the readers; None when it is a step after all."""
    try:
        value = parse_json(text)
    except BadJson as error:
        return f"{'' if ended else 'cut off at the end of the file; '}{error}"
    if not isinstance(value, dict):
        return f"a JSON {type(value).__name__} where an object should be"
    if value.get("episode_id") is None:
        return "no episode_id"
    return None if isinstance(value.get("type"), str) else "no type"

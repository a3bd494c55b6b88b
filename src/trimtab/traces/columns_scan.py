"""A shard of step JSONL to narrow columns by the compiled reader; lines that it refuses are read by Python."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from trimtab.errors import TraceError
from trimtab.traces.columns_native import REFUSED, ROW, Scanner
from trimtab.traces.columns_refused import fields_of
from trimtab.traces.columns_rows import Columns, Rows, reason_of
from trimtab.traces.columns_shards import SHARD_BYTES, Shard, lines_of
from trimtab.traces.columns_sql import BAD, END
from trimtab.traces.json_records import parse_json
from trimtab.traces.tool_errors import starts_as_error

__all__ = ["scan_rows"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
_HEAD = 400  # characters of an error that are kept
_MOST = 4 * SHARD_BYTES  # a shard of one longer line is read by lines
_NUMBERS = ("eh", "step", "kind", "h", "ts", "latency", "tokens", "reward", "success", "total")
_TEXTS = ("name", "task", "group", "stop")
_local = threading.local()
_text_of = msgspec.json.Decoder(str).decode


class _Line(NamedTuple):
    row: int
    number: int
    text: bytes
    ended: bool
    failure: str


def scan_rows(scanner: Scanner, shard: Shard, tools: tuple[str, ...]) -> Rows:
    """The steps of a shard, as `columns_rows.read_rows` gives them; hashes are the scanner's own. TraceError where it cannot be read."""
    if shard.num_bytes > _MOST:
        data, lines = np.zeros(0, np.uint8), [_Line(row, line.number, line.text, line.ended, failure) for row, (line, failure) in enumerate(lines_of(shard))]  # fmt: skip
        rows = np.zeros(len(lines), ROW)
        rows["kind"] = REFUSED
    else:
        data = _bytes_of(shard)
        rows = scanner.scan(data, int(np.count_nonzero(data == ord("\n"))) + 1)
        lines = list(_refused(data, rows))
    c: Columns = {name: np.ascontiguousarray(rows[name]) for name in _NUMBERS}
    c |= {name: np.full(rows.size, None, object) for name in _TEXTS}
    c |= {"told": rows["told"] != 0, "odd_reward": np.zeros(rows.size, bool), "row": np.arange(rows.size)}
    known, errors = dict(zip(tools, range(len(tools)), strict=True)), dict[str, int]()
    c["tool"] = _tools(scanner, data, rows, known)
    c["err"] = _errors(data, rows, errors)
    _fill_texts(data, rows, c)
    problems = _read(scanner, lines, c, known, errors)
    if problems:
        kept = np.flatnonzero(c["kind"] != BAD)
        c = {name: column[kept] for name, column in c.items()}
    return Rows(c, list(known), list(errors), rows.size, problems)


def _bytes_of(shard: Shard) -> Bytes:
    """Its text, in memory of the thread which the next shard takes again."""
    if shard.data is not None:
        return np.frombuffer(shard.data, np.uint8)
    room: Bytes | None = getattr(_local, "room", None)
    if room is None or room.size < shard.num_bytes:
        room = _local.room = np.empty(shard.num_bytes + 2**16, np.uint8)
    at, view = 0, memoryview(room)[: shard.num_bytes]
    try:
        with open(shard.path, "rb", buffering=0) as file:
            file.seek(shard.start)
            while at < shard.num_bytes and (got := file.readinto(view[at:])):
                at += got
    except OSError as error:
        raise TraceError(f"{shard.path} cannot be read: {error.strerror or error}") from error
    return room[:at]


def _refused(data: Bytes, rows: Array) -> Iterator[_Line]:
    places = np.flatnonzero(rows["kind"] == REFUSED)
    breaks = np.flatnonzero(data == ord("\n")) if places.size else places
    for row in places.tolist():
        start = int(rows["line"][row])
        end = start + int(rows["len"][row])
        number = int(np.searchsorted(breaks, start)) + 1
        yield _Line(row, number, data[start:end].tobytes(), number <= breaks.size, "")


def _read(scanner: Scanner, lines: list[_Line], c: Columns, tools: dict[str, int], errors: dict[str, int]) -> list[tuple[int, str]]:  # fmt: skip
    """Fill in the lines that are steps after all; of the others the number and what is wrong."""
    problems = []
    for line in lines:
        if why := line.failure or reason_of(line.text, line.ended):
            problems.append((line.number, why))
            c["kind"][line.row] = BAD
            continue
        found = fields_of(scanner, parse_json(line.text))
        tool, error = found.pop("tool"), found.pop("err", None)
        c["tool"][line.row] = tools.setdefault(tool, len(tools)) if tool else -1
        c["err"][line.row] = -1 if error is None else errors.setdefault(error[:_HEAD], len(errors))
        for name, value in found.items():
            c[name][line.row] = value
    return problems


def _tools(scanner: Scanner, data: Bytes, rows: Array, known: dict[str, int]) -> Array:
    """(R,) codes; names not known yet are added."""
    hashes, codes = rows["tool_hash"], np.full(rows.size, -1, np.int32)
    keys = np.array([scanner.name_key(name) for name in known], np.uint64)
    if keys.size:
        order = np.argsort(keys)
        place = np.minimum(np.searchsorted(keys[order], hashes), keys.size - 1)
        codes = np.where(keys[order][place] == hashes, order[place], -1).astype(np.int32)
    new = np.flatnonzero((codes < 0) & (rows["tool_at"] >= 0) & (hashes != 0) & (rows["kind"] != REFUSED))
    if new.size:
        _, first, inverse = np.unique(hashes[new], return_index=True, return_inverse=True)
        names = (_span(data, rows, int(row), "tool").decode() for row in new[first])
        codes[new] = np.array([known.setdefault(name, len(known)) for name in names], np.int32)[inverse]
    return codes


def _errors(data: Bytes, rows: Array, errors: dict[str, int]) -> Array:
    """(R,) codes of what the log calls errors, and of results that start as one."""
    codes, seen = np.full(rows.size, -1, np.int32), dict[tuple[bytes, bool], int]()
    for row in np.flatnonzero((rows["err_at"] >= 0) & (rows["kind"] != REFUSED)).tolist():
        key = (_span(data, rows, row, "err"), bool(rows["told"][row]))
        if key not in seen:
            text, told = str(_text_of(b'"' + key[0] + b'"')), key[1]
            is_one = told or starts_as_error(text)
            seen[key] = errors.setdefault(text[:_HEAD], len(errors)) if is_one else -1
        codes[row] = seen[key]
    return codes


def _fill_texts(data: Bytes, rows: Array, c: Columns) -> None:
    """Names where an episode first comes, and what ends say."""
    read = rows["kind"] != REFUSED
    heads = np.flatnonzero(np.r_[True, c["eh"][1:] != c["eh"][:-1]] & read) if rows.size else []
    _, first = np.unique(c["eh"][heads], return_index=True)
    for row in np.asarray(heads)[first].tolist():
        c["name"][row] = _span(data, rows, row, "id").decode()
    at_end = np.flatnonzero(rows["kind"] == END)
    for name in ("task", "group", "stop"):
        for row in at_end[rows[f"{name}_at"][at_end] >= 0].tolist():
            c[name][row] = _span(data, rows, row, name).decode()
    tasks, groups = c["task"][at_end], c["group"][at_end]
    c["task"][at_end] = np.where(tasks == None, groups, tasks)  # noqa: E711


def _span(data: Bytes, rows: Array, row: int, name: str) -> bytes:
    at = int(rows["line"][row]) + int(rows[f"{name}_at"][row])
    return data[at : at + int(rows[f"{name}_len"][row])].tobytes()

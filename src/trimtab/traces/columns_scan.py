"""A shard of step JSONL to narrow columns by the compiled reader; lines that it refuses are read by Python."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
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
        text = _Text(b"", np.zeros(0, ROW))
        lines = [_Line(row, line.number, line.text, line.ended, failure) for row, (line, failure) in enumerate(lines_of(shard))]  # fmt: skip
        text.rows = np.zeros(len(lines), ROW)
        text.rows["kind"] = REFUSED
    else:
        data, size = _bytes_of(shard)
        text = _Text(data, scanner.scan(np.frombuffer(data, np.uint8, size)))
        lines = list(_refused(np.frombuffer(data, np.uint8, size), text.rows))
    rows = text.rows
    c: Columns = {name: np.ascontiguousarray(rows[name]) for name in _NUMBERS}
    c |= {name: np.full(rows.size, None, object) for name in _TEXTS}
    c |= {"told": rows["told"] != 0, "odd_reward": np.zeros(rows.size, bool), "row": np.arange(rows.size)}
    known, errors = dict(zip(tools, range(len(tools)), strict=True)), dict[str, int]()
    c["tool"] = _tools(scanner, text, known)
    c["err"] = _errors(text, errors)
    _fill_texts(text, c)
    problems = _read(scanner, lines, c, known, errors)
    if problems:
        kept = np.flatnonzero(c["kind"] != BAD)
        c = {name: column[kept] for name, column in c.items()}
    return Rows(c, list(known), list(errors), rows.size, problems)


@dataclass
class _Text:
    """A shard's bytes and what the reader found in them."""

    data: bytes | bytearray
    rows: Array

    def spans(self, places: Array, name: str) -> list[bytes | bytearray]:
        """What a field says, in the rows at these places."""
        at = self.rows["line"][places] + self.rows[f"{name}_at"][places]
        end, data = at + self.rows[f"{name}_len"][places], self.data
        return [data[a:b] for a, b in zip(at.tolist(), end.tolist(), strict=True)]


def _bytes_of(shard: Shard) -> tuple[bytes | bytearray, int]:
    """Its text, in memory of the thread which the next shard takes again, and how many bytes of that it is."""
    if shard.data is not None:
        return shard.data, len(shard.data)
    room: bytearray = getattr(_local, "room", bytearray())
    if len(room) < shard.num_bytes:
        room = _local.room = bytearray(shard.num_bytes + 2**16)
    at, view = 0, memoryview(room)[: shard.num_bytes]
    try:
        with open(shard.path, "rb", buffering=0) as file:
            file.seek(shard.start)
            while at < shard.num_bytes and (got := file.readinto(view[at:])):
                at += got
    except OSError as error:
        raise TraceError(f"{shard.path} cannot be read: {error.strerror or error}") from error
    return room, at


def _refused(data: Bytes, rows: Array) -> Iterator[_Line]:
    """The lines that Python must read."""
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


def _tools(scanner: Scanner, text: _Text, known: dict[str, int]) -> Array:
    """(R,) codes; names not known yet are added."""
    rows, hashes = text.rows, np.ascontiguousarray(text.rows["tool_hash"])
    codes = np.full(rows.size, -1, np.int32)
    keys = np.array([scanner.name_key(name) for name in known], np.uint64)
    if keys.size:
        order = np.argsort(keys)
        place = np.minimum(np.searchsorted(keys[order], hashes), keys.size - 1)
        codes = np.where(keys[order][place] == hashes, order[place], -1).astype(np.int32)
    new = np.flatnonzero((codes < 0) & (hashes != 0) & (rows["kind"] != REFUSED))
    if new.size:
        _, first, inverse = np.unique(hashes[new], return_index=True, return_inverse=True)
        names = [name.decode() for name in text.spans(new[first], "tool")]
        codes[new] = np.array([known.setdefault(name, len(known)) for name in names], np.int32)[inverse]
    return codes


def _errors(text: _Text, errors: dict[str, int]) -> Array:
    """(R,) codes of what the log calls errors, and of results that start as one."""
    rows, seen = text.rows, dict[tuple[bytes, bool], int]()
    codes, places = np.full(rows.size, -1, np.int32), np.flatnonzero((rows["err_at"] >= 0) & (rows["kind"] != REFUSED))  # fmt: skip
    found = []
    for span, told in zip(text.spans(places, "err"), rows["told"][places].tolist(), strict=True):
        key = bytes(span), bool(told)
        if key not in seen:
            said = str(_text_of(b'"' + key[0] + b'"'))
            is_one = told or starts_as_error(said)
            seen[key] = errors.setdefault(said[:_HEAD], len(errors)) if is_one else -1
        found.append(seen[key])
    codes[places] = found
    return codes


def _fill_texts(text: _Text, c: Columns) -> None:
    """Names where an episode first comes, and what ends say."""
    rows = text.rows
    new = np.ones(rows.size, bool)
    new[1:] = c["eh"][1:] != c["eh"][:-1]
    heads = np.flatnonzero(new & (rows["kind"] != REFUSED))
    heads = heads[np.unique(c["eh"][heads], return_index=True)[1]]
    c["name"][heads] = [name.decode() for name in text.spans(heads, "id")]
    at_end = np.flatnonzero(rows["kind"] == END)
    for name in ("task", "group", "stop"):
        said = at_end[rows[f"{name}_at"][at_end] >= 0]
        c[name][said] = [one.decode() for one in text.spans(said, name)]
    tasks, groups = c["task"][at_end], c["group"][at_end]
    c["task"][at_end] = np.where(tasks == None, groups, tasks)  # noqa: E711

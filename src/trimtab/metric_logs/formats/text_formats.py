"""Logs that are text: JSONL, one JSON value, CSV. Damage is counted line by line, never fatal."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections import Counter
from typing import Any, cast

import msgspec

from trimtab.metric_logs.formats.column_blocks import blocks_of
from trimtab.metric_logs.formats.types import RawLog, flat

_ROWS = msgspec.json.Decoder(dict[str, float | int | str | bool | None])
_CHUNK = 1 << 20  # bytes read at once, and on to the end of a line
_BYTES = "lines with bytes that are not UTF-8"


def as_utf8(data: bytes) -> bytes:
    """Without a byte order mark; UTF-16 with one becomes UTF-8.

    >>> as_utf8(b"\\xef\\xbb\\xbf{}")
    b'{}'
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace").encode()
    return data.removeprefix(b"\xef\xbb\xbf")


def strict_json(data: bytes, excluded: Counter[str]) -> Any:
    """One JSON value; NaN and Infinity as Python writes them are taken, broken UTF-8 is counted. ValueError
    otherwise."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
        excluded[_BYTES] += 1
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_jsonl(data: bytes) -> RawLog:
    """One JSON object a line, flat or nested; other lines are counted, the last one apart when it has no
    newline.

    Rows of plain numbers are kept as blocks, so that a long log takes little memory.
    """
    log, text, start, plain = RawLog("jsonl", []), as_utf8(data), 0, True
    while start < len(text):
        end = text.find(b"\n", start + _CHUNK) + 1 or len(text)
        rows = _rows(text[start:end], log.excluded)
        start = end
        blocks = blocks_of(rows, log.num_rows) if plain else None
        if blocks is None:
            plain = False
            log.unpack()
            log.rows += rows
        else:
            log.blocks += blocks
    return log


def _rows(text: bytes, excluded: Counter[str]) -> list[dict[str, Any]]:
    """The rows of some lines; only the last of a file can be without a newline."""
    num = text.count(b"\n") + (not text.endswith(b"\n"))
    if text.count(b"\n{") + 1 == num:  # one object a line, as it seems: all at once where they are flat
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            rows = _ROWS.decode_lines(text)
            if len(rows) == num:
                return cast("list[dict[str, Any]]", rows)
    rows_read: list[dict[str, Any]] = []
    lines = text.split(b"\n")
    for i, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            row = strict_json(line, excluded)
        except ValueError:
            excluded["truncated last line" if i == len(lines) - 1 else "malformed lines"] += 1
            continue
        if isinstance(row, dict):
            rows_read.append(flat(row))
        else:
            excluded["lines that are not JSON objects"] += 1
    return rows_read


def read_json(data: bytes) -> RawLog:
    """One JSON value: a list of rows, a `trainer_state.json` with its `log_history`, or columns of equal
    length."""
    log = RawLog("json", [])
    value = strict_json(as_utf8(data), log.excluded)
    if isinstance(value, dict) and isinstance(value.get("log_history"), list):
        log.format, value = "trainer_state", value["log_history"]
    elif isinstance(value, dict) and value and all(isinstance(column, list) for column in value.values()):
        length = min(len(column) for column in value.values())
        value = [{key: column[i] for key, column in value.items()} for i in range(length)]
    elif isinstance(value, dict):
        value = [value]
    for row in value if isinstance(value, list) else [value]:
        if isinstance(row, dict):
            log.rows.append(flat(row))
        else:
            log.excluded["entries that are not JSON objects"] += 1
    return log


def read_csv(data: bytes) -> RawLog:
    """A header and one row a line, separated by comma, tab or semicolon. An empty cell is a null that says:
    not logged."""
    log = RawLog("csv", [], null_is_nothing=True)
    try:
        text = as_utf8(data).decode("utf-8")
    except UnicodeDecodeError:
        text = as_utf8(data).decode("utf-8", "replace")
        log.excluded[_BYTES] += 1
    head = text.split("\n", 1)[0]
    separator = max(",\t;", key=head.count)
    rows = csv.reader(io.StringIO(text.replace("\0", "")), delimiter=separator)
    header: list[str] | None = None
    try:
        for cells in rows:
            if header is None:
                header = [name.strip() for name in cells]
            elif len(cells) == len(header):
                log.rows.append(
                    {name: cell.strip() or None for name, cell in zip(header, cells, strict=True) if name}
                )
            elif cells:
                log.excluded["malformed lines"] += 1
    except csv.Error:
        log.excluded["malformed lines"] += 1
    return log

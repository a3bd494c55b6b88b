"""Logs that are text: JSONL, one JSON value, CSV. Damage is counted line by line, never fatal."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from typing import Any, cast

import msgspec

from trimtab.runs.metric_logs.raw import RawLog, flat

__all__ = ["as_utf8", "read_csv", "read_json", "read_jsonl", "strict_json"]

_ROWS = msgspec.json.Decoder(dict[str, float | int | str | bool | None])
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
    """One JSON value; NaN and Infinity as Python writes them are taken, broken UTF-8 is counted. ValueError otherwise."""
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
    """One JSON object a line, flat or nested; other lines are counted, the last one apart when it has no newline."""
    log = RawLog("jsonl", [])
    text = as_utf8(data)
    flat_rows = _flat_rows(text)
    if flat_rows is not None:
        log.rows = flat_rows
        return log
    lines = text.split(b"\n")
    for i, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            row = strict_json(line, log.excluded)
        except ValueError:
            log.excluded["truncated last line" if i == len(lines) - 1 else "malformed lines"] += 1
            continue
        if isinstance(row, dict):
            log.rows.append(flat(row))
        else:
            log.excluded["lines that are not JSON objects"] += 1
    return log


def _flat_rows(text: bytes) -> list[dict[str, Any]] | None:
    """The rows of a log that is nothing but flat objects, one a line, read in one go; None of any other."""
    num = text.count(b"\n") + (not text.endswith(b"\n"))
    if text.count(b"\n{") + 1 != num:
        return None
    try:
        rows = _ROWS.decode_lines(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return cast("list[dict[str, Any]]", rows) if len(rows) == num else None


def read_json(data: bytes) -> RawLog:
    """One JSON value: a list of rows, a `trainer_state.json` with its `log_history`, or columns of equal length."""
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
    """A header and one row a line, separated by comma, tab or semicolon. An empty cell is a null."""
    log = RawLog("csv", [])
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
                    {name: cell or None for name, cell in zip(header, cells, strict=True) if name}
                )
            elif cells:
                log.excluded["malformed lines"] += 1
    except csv.Error:
        log.excluded["malformed lines"] += 1
    return log

"""Lines to JSON values: one a line, or the elements of one document. No bad line stops the next from being
read.

msgspec reads what is strictly JSON; what it refuses Python's json tries once more, because Python writes NaN
and lone surrogates that only it reads. What both refuse is malformed: counted, located and left out.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.inspect_zip import eval_records, is_zip
from trimtab.traces.files.lines import MAX_LINE_BYTES, Line, iter_lines
from trimtab.traces.files.parquet import is_parquet, parquet_records

_HEAD_LINES = 50  # of a file whose first line is not a record: is there one further down?
_GAP = re.compile(r"[\s,]*")
_OPENING = re.compile(r"\n[ \t]*\{")


def iter_records(path: str, report: ReadReport, max_bytes: int = MAX_LINE_BYTES) -> Iterator[Record]:
    """The JSON values of a file: one a line, or the elements of a document that is one array or one object.

    Of Parquet the rows, of an Inspect .eval the samples. It is a document when its first line is not a record
    by itself, and those within 50 lines lie in it.
    """
    if is_parquet(path):
        yield from parquet_records(path, report)
        return
    if is_zip(path):
        yield from eval_records(path, report)
        return
    lines = iter_lines(path, report, max_bytes)
    head = _head(lines)
    if _is_document(head):
        yield from _document(path, itertools.chain(head, lines), report)
    else:
        yield from _by_line(path, itertools.chain(head, lines), report)


def is_lines(path: str) -> bool:
    """Is a record a line of the file, rather than an element of a document, a row or a member?"""
    packed = is_parquet(path) or is_zip(path)
    return not packed and not _is_document(_head(iter_lines(path, ReadReport())))


def _head(lines: Iterator[Line]) -> list[Line]:
    """Read lines up to the first object, or a few."""
    head: list[Line] = []
    for line in lines:
        head.append(line)
        if (len(head) == 1 and _is_object(line)) or len(head) > _HEAD_LINES:
            break
    return head


def _is_document(head: list[Line]) -> bool:
    """Do lines that begin a file lie within one array or object? Objects that fill a line of it are followed
    by a comma or by what ends the list around them; of JSON lines by another object."""
    if not head or _is_object(head[0]):
        return False
    opening = head[0].text.lstrip()[:1]
    objects = [i for i, line in enumerate(head[:_HEAD_LINES]) if _is_object(line)]
    if not objects:
        return len(head) > 1 or opening == b"["
    if opening not in (b"[", b"{") or _is_json(head[0]):
        return False
    after = [head[i + 1].text.lstrip()[:1] for i in objects if i + 1 < len(head)]
    if b"{" in after:
        return False
    listed = any(_is_object(Line(n, text[:-1], ended)) for n, text, ended in head if text.endswith(b","))
    opened = head[0].text.lstrip().startswith(b"[{") and head[0].text.endswith(b"},")
    return listed or opened or any(text in (b",", b"]", b"}") for text in after)


def iter_objects(
    records: Iterable[Record],
    report: ReadReport,
    accepts: Callable[[dict[str, Any]], bool] | None = None,
    missing: str = "",
) -> Iterator[tuple[Record, dict[str, Any]]]:
    """Yield each record with its JSON object.

    A value of another type is malformed. So is an object that `accepts` refuses, for the reason `missing`.
    """
    for record in records:
        if not isinstance(record.value, dict):
            kind = type(record.value).__name__
            report.malformed(record.file, record.line, f"a JSON {kind} where an object should be")
        elif accepts is not None and not accepts(record.value):
            report.malformed(record.file, record.line, missing)
        else:
            yield record, record.value


def _is_object(line: Line) -> bool:
    try:
        return line.text.lstrip().startswith(b"{") and bool(parse_json(line.text))
    except BadJson:
        return False


def _is_json(line: Line) -> bool:
    try:
        parse_json(line.text)
    except BadJson:
        return False
    return True


def _by_line(path: str, lines: Iterable[Line], report: ReadReport) -> Iterator[Record]:
    for line in lines:
        try:
            yield Record(path, line.number, parse_json(line.text))
        except BadJson as error:
            cut = "" if line.ended else "cut off at the end of the file; "
            report.malformed(path, line.number, f"{cut}{error}")


def _document(path: str, lines: Iterable[Line], report: ReadReport) -> Iterator[Record]:
    """The elements of an array, or one object; the report then counts elements instead of lines."""
    texts = [line.text for line in lines]
    report.num_lines -= len(texts)
    text = b"\n".join(texts)
    del texts
    try:
        value = parse_json(text)
        elements: Iterable[tuple[int, Any]] = enumerate(value if isinstance(value, list) else [value], 1)
    except BadJson as error:
        elements = _salvage(path, text, str(error), report)
    for number, element in elements:
        report.num_lines += 1
        yield Record(path, number, element)


def _salvage(path: str, text: bytes, why: str, report: ReadReport) -> Iterator[tuple[int, Any]]:
    """The complete elements of a damaged array; after damage it goes on at the next line that opens one at
    the first's indent."""
    string = text.decode("utf-8", errors="replace").lstrip()
    if not string.startswith("["):
        report.num_lines += 1
        report.malformed(path, 1, why)
        return
    decoder, at, opening = json.JSONDecoder(), 1, _opening(string)
    for number in itertools.count(1):
        at = _GAP.match(string, at).end()  # type: ignore[union-attr]
        if at >= len(string) or string[at] == "]":
            why = "text after the end of the array" if string[at : at + 1] else "the array is cut off here"
            if string[at + 1 :].strip() or not string[at : at + 1]:
                report.num_lines += 1
                report.malformed(path, number, why)
            return
        try:
            value, at = decoder.raw_decode(string, at)
            yield number, value
        except (ValueError, RecursionError) as error:
            report.num_lines += 1
            report.malformed(path, number, f"element {number} of the array: {str(error)[:80]}")
            at = string.find(opening, at) if opening else -1
            if at < 0:
                return


def _opening(array: str) -> str:
    """How its elements begin their lines; empty where they do not. The first may stand behind the bracket, if
    it ends there, too."""
    first, _, _ = array.partition("\n")
    listed = first.rstrip().endswith("},")
    opening = _OPENING.match(array, 1) or (_OPENING.search(array, len(first)) if listed else None)
    return opening.group() if opening else ""

"""The samples of an Inspect `.eval` log as records: a zip of JSON files, one a sample, beside the header of
the whole log.

A log whose run did not end has no header; its journal's start has what we need of one. Members are read one
at a time. Inspect packs them with Zstandard (method 93), which Python's zipfile reads from 3.14 on.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from trimtab.errors import TraceError
from trimtab.safe_files import excess, expansion_limit
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.decompress import ZSTD
from trimtab.traces.files.find import STDIN, unpacked_bytes
from trimtab.traces.files.lines import MAX_LINE_BYTES

_HEADERS = ("header.json", "_journal/start.json")
_ZSTD, _LOCAL_HEADER = 93, 30
_FAILURES = (OSError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error, BadJson)


def is_zip(path: str) -> bool:
    """Does the file begin as a zip does?"""
    if path == STDIN or not Path(path).is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"PK\x03\x04"


def eval_records(path: str, report: ReadReport) -> Iterator[Record]:
    """A record a sample, in the shape of Inspect's JSON logs; `line` is the sample's number. A sample that
    cannot be read is counted and left out; a log without one is a record without samples. TraceError for a
    zip that is damaged or no Inspect log."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            head = next((name for name in _HEADERS if name in names), None)
            if head is None:
                raise TraceError(
                    f"{path} is a zip without {' or '.join(_HEADERS)}: no Inspect log; unpack it first"
                )
            header = _read(archive, head)
            if not isinstance(header, dict):
                raise TraceError(f"{path}: {head} is not a JSON object; the log is damaged")
            samples = [name for name in names if name.startswith("samples/") and name.endswith(".json")]
            if not samples:
                report.num_lines += 1
                yield Record(path, 1, {**header, "samples": []})
            for number, name in enumerate(samples, 1):
                report.num_lines += 1
                try:
                    sample = _read(archive, name)
                except _FAILURES as error:
                    report.malformed(path, number, f"{name}: {str(error)[:80] or type(error).__name__}")
                    continue
                if report.progress is not None:
                    report.progress(archive.getinfo(name).compress_size)
                yield Record(path, number, {**header, "samples": [sample]})
    except _FAILURES as error:
        raise TraceError(f"{path} cannot be read as a zip: {str(error)[:200]}") from error


def _read(archive: zipfile.ZipFile, name: str) -> Any:
    member = archive.getinfo(name)
    if member.file_size > expansion_limit(member.compress_size):
        raise TraceError(excess(f"{archive.filename}: {name}", member.compress_size))
    if member.file_size > MAX_LINE_BYTES:
        raise BadJson(f"longer than {MAX_LINE_BYTES:,} bytes")
    return parse_json(_unpacked(archive, member) if member.compress_type == _ZSTD else archive.read(name))


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """The bytes of a member packed with Zstandard; BadZipFile where they are not those that were packed."""
    file = archive.fp
    if file is None:
        raise zipfile.BadZipFile("the archive is closed")
    file.seek(member.header_offset)
    head = file.read(_LOCAL_HEADER)
    if len(head) < _LOCAL_HEADER or head[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile("no file where the directory says one is")
    file.seek(int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little"), io.SEEK_CUR)
    packed = io.BufferedReader(cast(Any, io.BytesIO(file.read(member.compress_size))))
    try:
        with unpacked_bytes(packed, ZSTD, str(archive.filename)) as stream:
            plain = stream.read(member.file_size + 1)
    except TraceError:
        raise
    except Exception as error:  # three libraries, each with an exception of its own
        raise zipfile.BadZipFile(f"cannot be unpacked: {str(error)[:80]}") from error
    if len(plain) != member.file_size or zlib.crc32(plain) != member.CRC:
        raise zipfile.BadZipFile("what was unpacked is not what was packed (CRC-32)")
    return plain

"""All that can be had of a compressed log that is cut or damaged, in one piece and in shards; and that it is no healthy log."""

from __future__ import annotations

import gzip
import io
import json
import random
import zlib

import pyarrow
import pytest

from tests.report.test_trace_diagnosis import run
from tests.traces.make import steps
from tests.traces.sharding import same
from trimtab.traces.files.decompress import ZSTD, _Members
from trimtab.traces.files.find import open_bytes
from trimtab.traces.read import read_episodes

ROWS = [
    {**row, "noise": random.Random(i).random()}
    for i in range(60)
    for row in steps(f"e{i}", reward=float(i % 2))
]
TEXT = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
PACKED = gzip.compress(TEXT, 1)


def _zstd(data):
    return pyarrow.compress(data, "zstd", asbytes=True)


def _all_that_zlib_gives(data):
    """Byte by byte, of the first member."""
    one, found = zlib.decompressobj(wbits=31), b""
    for i in range(len(data)):
        try:
            found += one.decompress(data[i : i + 1])
        except zlib.error:
            break
    return found


def _read(path):
    found = bytearray()
    with open_bytes(str(path)) as file:
        try:
            while piece := file.read1():
                found += piece
        except OSError as error:
            return bytes(found), str(error)
    return bytes(found), ""


BAD = bytearray(PACKED)
BAD[len(PACKED) // 2 : len(PACKED) // 2 + 40] = b"\xff" * 40


@pytest.mark.parametrize(
    ("data", "whole", "why"),
    [
        (PACKED[: len(PACKED) // 2], None, "the compressed file is cut off"),
        (PACKED[:-8], TEXT, "the compressed file is cut off"),
        (bytes(BAD), None, "bad bytes"),
        (PACKED + b"garbage", TEXT, "what follows the compressed part is not compressed"),
        (PACKED + b"\0" * 9000 + b"x", TEXT, "what follows"),
        (PACKED[:-6] + b"\xff" * 6, TEXT, "incorrect data check"),
        (PACKED, TEXT, ""),
        (PACKED + b"\0" * 9000, TEXT, ""),
        (PACKED + gzip.compress(b"") + PACKED, TEXT + TEXT, ""),
        (PACKED + PACKED[:1], TEXT, "what follows"),
    ],
)  # fmt: skip
def test_a_gzip_gives_all_that_zlib_does_then_says_why_it_ends(tmp_path, data, whole, why):
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(data)
    found, said = _read(path)
    expected = _all_that_zlib_gives(data) if whole is None else whole
    assert found == expected
    assert len(found) > len(TEXT) // 3
    assert why in said
    assert bool(why) == bool(said)


@pytest.mark.parametrize("data", [PACKED[: len(PACKED) * 2 // 3], bytes(BAD), PACKED + b"garbage", _zstd(TEXT * 9)[:-9], _zstd(TEXT) + b"garbage!"])  # fmt: skip
def test_every_whole_line_is_read_and_the_log_is_not_healthy(tmp_path, data):
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(data)
    if data != bytes(BAD):  # of which the last lines are such as no writer writes
        same(path)
    _, report = read_episodes([path])
    assert report.num_lines - 1 == _read(path)[0].count(b"\n") > 100
    assert [(p.file, p.line) for p in report.cut] == [(str(path), report.num_lines)]
    code, text = run("diagnose", path, "--verbose")
    assert code == 1
    assert "cut_files: a file is cut off or damaged, and its end was not read" in text
    assert f"{path.name}:{report.num_lines}: the file cannot be read on from here" in text


def test_few_episodes_of_a_cut_file_are_no_reason_to_be_silent_and_a_whole_one_is_healthy(tmp_path):
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(TEXT.splitlines(True)[:22]))[:-4])
    code, text = run("diagnose", path)
    assert (code, "1 of 1 file" in text) == (1, True)
    path.write_bytes(PACKED)
    code, text = run("diagnose", path)
    assert (code, "HEALTHY" in text) == (0, True)


class _Frame:
    """As a library's decompressor of one frame: here of letters, the last of them a full stop."""

    def __init__(self):
        self.eof, self.unused_data = False, b""

    def decompress(self, piece):
        body, stop, self.unused_data = piece.partition(b".")
        self.eof = bool(stop)
        if b"!" in body:
            raise ValueError("bad")
        return body.removeprefix(ZSTD)


@pytest.mark.parametrize(
    ("data", "text", "why"),
    [(ZSTD + b"ab.", b"ab", ""), (ZSTD + b"ab." + ZSTD + b"c.", b"abc", ""), (ZSTD + b"ab", b"ab", "cut off"), (ZSTD + b"ab.c", b"ab", "follows"),
     (ZSTD + b"ab." + ZSTD + b"!.", b"ab", "bad bytes"), (ZSTD + b"ab.\x50\x2a\x4d\x18.", b"ab\x50\x2a\x4d\x18", ""), (ZSTD + b"a" * 9000 + b".", b"a" * 9000, "")],
)  # fmt: skip
def test_frames_of_a_library_that_tells_them(data, text, why):
    """compression.zstd and zstandard; pyarrow, which this environment has, does not."""
    file = io.BufferedReader(_Members(io.BufferedReader(io.BytesIO(data)), ZSTD, _Frame))
    found, said = b"", ""
    try:
        while piece := file.read1():
            found += piece
    except OSError as error:
        said = str(error)
    assert found == text
    assert why in said
    assert bool(why) == bool(said)

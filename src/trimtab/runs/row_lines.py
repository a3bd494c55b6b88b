"""Lines of the run's files: a row with its number and checksum, and back.

A writer adds three keys behind those of the row: `s`, the steps begun in the file of steps before it; `q`,
the row's number in its file; and `c`, the CRC-32 of the line before `,"c"`. Lines of 0.1 have none of them
and are read too.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

import msgspec

from trimtab.runs.schema import dumps

Row = dict[str, Any]

_CHECKSUM = re.compile(rb',"c":([0-9]{1,10})\}\s*$')
_MAX_CHECKSUM_BYTES = 24


def encode_row(row: Row, number: int, num_steps: int) -> bytes:
    """Return the line of a row, the `number`-th of its file, written after `num_steps` steps.

    >>> encode_row({"step": 3}, 2, 1)
    b'{"step":3,"s":1,"q":2,"c":3817036018}\\n'
    """
    body = dumps({**row, "s": num_steps, "q": number})[:-1].encode("ascii")
    return b'%b,"c":%d}\n' % (body, zlib.crc32(body))


def decode_line(line: bytes) -> tuple[Row | None, bool]:
    """Return the row of a line, None where it is damaged, and True where a checksum vouches for it.

    >>> (decode_line(b'{"step":3,"s":1,"q":2,"c":3817036018}')[1],
    ...     decode_line(b'{"step":4,"s":1,"q":2,"c":3817036018}'))
    (True, (None, False))
    """
    match = _CHECKSUM.search(line, max(0, len(line) - _MAX_CHECKSUM_BYTES))
    if match is not None and zlib.crc32(line[: match.start()]) != int(match[1]):
        return None, False
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            row = json.loads(line)  # NaN and infinity, as the writer writes them
        except (ValueError, RecursionError):
            return None, False
    if not isinstance(row, dict):
        return None, False
    vouched = match is not None and type(row.get("q")) is int and type(row.get("s")) is int
    return row, vouched

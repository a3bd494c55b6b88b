"""Just enough of protocol buffers and of two record framings to read W&B's and TensorBoard's files without
their packages.

The field numbers are those of the published schemas; tests write the files with the real packages. A reader
of its own is needed because wandb no longer ships one (0.31), and importing tensorboard takes longer than
reading a log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of a message: varints as int, everything else as its bytes. ValueError when it is
    damaged.

    >>> list(fields(bytes([0x08, 0x96, 0x01])))
    [(1, 150)]
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(data):
            raise ValueError("a field runs past the end")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number runs past the end")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def signed(value: int) -> int:
    """An int64 of the wire as Python's: negative numbers come as their two's complement."""
    return value - (1 << 64) if value >= 1 << 63 else value


def tf_records(data: bytes) -> Iterator[bytes]:
    """Records of a TensorBoard event file: length, its checksum, bytes, their checksum. ValueError where one
    is cut off."""
    at = 0
    while at < len(data):
        if at + 12 > len(data):
            raise ValueError("cut off")
        (size,) = struct.unpack_from("<Q", data, at)
        end = at + 12 + size + 4
        if end > len(data):
            raise ValueError("cut off")
        yield data[at + 12 : end - 4]
        at = end


def leveldb_records(data: bytes, start: int = 7, block: int = 32_768) -> Iterator[bytes]:
    """Records of a LevelDB log (a `.wandb` file after its 7-byte header), put together from their chunks.

    Chunk: checksum (4), length (2), type (1: whole, 2: first, 3: middle, 4: last). A block's last bytes, too
    few for a chunk's head, are padding. ValueError where one is cut off or of no known type.
    """
    at, parts = start, b""
    while at < len(data):
        room = block - at % block
        if room < 7:
            at += room
            continue
        if at + 7 > len(data):
            raise ValueError("cut off")
        _, size, kind = struct.unpack_from("<IHB", data, at)
        chunk = data[at + 7 : at + 7 + size]
        if len(chunk) < size or kind not in (1, 2, 3, 4):
            raise ValueError("cut off" if len(chunk) < size else f"chunk of type {kind}")
        at += 7 + size
        parts = chunk if kind in (1, 2) else parts + chunk
        if kind in (1, 4):
            yield parts

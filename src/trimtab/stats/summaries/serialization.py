"""Bytes of a summary: a checked header, then its counts sparse and its floats raw, deflated together.

    "TS" | kind (2 letters) | version (1 byte) | crc32 of the rest (4 bytes) | deflated payload
    payload: varint parameters, then each array: int64 as (number, gaps, values) of its non-zeros; floats raw

No pickle: reading bytes never runs code.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trimtab.errors import SummaryError
from trimtab.typing import Array

VERSION = 1
HEADER = 9
SMALL = 4  # numbers of an array that are packed one by one


def varints(numbers: npt.ArrayLike) -> bytes:
    """Unsigned LEB128 of each number: seven bits a byte, high bit set on all but the last.

    >>> varints([1, 300]).hex()
    '01ac02'
    """
    values = np.asarray(numbers, dtype=np.uint64)
    if values.size == 0:
        return b""
    largest = int(values.max())
    if largest < 0x80:  # nearly always: counts and gaps are small
        return bytes(values.astype(np.uint8))
    longest = -(-largest.bit_length() // 7)
    groups = values[:, None] >> (np.arange(longest, dtype=np.uint64) * np.uint64(7))
    more = np.zeros(groups.shape, dtype=bool)
    more[:, :-1] = groups[:, 1:] > 0
    keep = np.ones(groups.shape, dtype=bool)
    keep[:, 1:] = groups[:, 1:] > 0
    out = (groups & np.uint64(0x7F)) | (more.astype(np.uint64) << np.uint64(7))
    return bytes(out[keep].astype(np.uint8))


def varint(number: int) -> bytes:
    """`varints` of one.

    >>> varint(300).hex()
    'ac02'
    """
    out = bytearray()
    number &= 0xFFFFFFFFFFFFFFFF
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def pack_array(array: Array) -> bytes:
    """One state array: integers by their non-zeros, floats as they are (little endian)."""
    if array.dtype.kind == "f":
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    flat = array.ravel()
    if flat.size <= SMALL:  # counts and what is not finite: no numpy call is worth it
        few = flat.tolist()
        index = [i for i, number in enumerate(few) if number]
        gaps = [here - before for here, before in zip(index, [0, *index], strict=False)]
        return b"".join(map(varint, [len(index), *gaps, *(few[i] for i in index)]))
    at = np.flatnonzero(flat)
    if not at.size:
        return b"\x00"
    numbers = np.empty(2 * at.size + 1, dtype=np.int64)
    numbers[0], numbers[1], numbers[at.size + 1 :] = at.size, at[0], flat[at]
    np.subtract(at[1:], at[:-1], out=numbers[2 : at.size + 1])
    return varints(numbers)


def frame(kind: bytes, parameters: Sequence[int], arrays: Sequence[Array]) -> bytes:
    """The complete bytes of a summary of this two-letter kind."""
    zigzag = [2 * p if p >= 0 else -2 * p - 1 for p in parameters]
    payload = b"".join(map(varint, zigzag)) + b"".join(pack_array(a) for a in arrays)
    body = zlib.compress(payload, 9)
    return b"TS" + kind + bytes([VERSION]) + zlib.crc32(body).to_bytes(4, "little") + body


def unframe(kind: bytes, data: bytes) -> Payload:
    """The payload of bytes that `frame` wrote; SummaryError names what is wrong with any others."""
    if len(data) <= HEADER or data[:2] != b"TS":
        raise SummaryError(f"{len(data)} bytes do not start with a summary's header")
    if data[2:4] != kind:
        raise SummaryError(f"these bytes hold a summary of kind {data[2:4]!r}, not {kind!r}")
    if data[4] != VERSION:
        raise SummaryError(
            f"summary bytes have version {data[4]}, this trimtab reads {VERSION}; update trimtab"
        )
    if zlib.crc32(data[HEADER:]) != int.from_bytes(data[5:HEADER], "little"):
        raise SummaryError("summary bytes are damaged: checksum differs; read them again or drop them")
    try:
        return Payload(zlib.decompress(data[HEADER:]))
    except zlib.error as error:
        raise SummaryError(f"summary bytes are damaged: {error}") from error


class Payload:
    """A cursor over an inflated payload; every read past its end or shape is a SummaryError."""

    def __init__(self, data: bytes) -> None:
        self._data = np.frombuffer(data, dtype=np.uint8)
        self._ends = np.flatnonzero(self._data < 0x80)  # last byte of a varint, were all bytes varints
        self._at = 0

    def varints(self, number: int) -> npt.NDArray[np.uint64]:
        """The next `number` varints."""
        first = int(np.searchsorted(self._ends, self._at))
        if number == 0:
            return np.zeros(0, dtype=np.uint64)
        if first + number > self._ends.size:
            raise SummaryError("summary bytes end early")
        ends = self._ends[first : first + number]
        starts = np.concatenate(([self._at], ends[:-1] + 1))
        part = self._data[self._at : int(ends[-1]) + 1].astype(np.uint64)
        digit = np.arange(part.size) - np.repeat(starts - self._at, ends - starts + 1)
        self._at = int(ends[-1]) + 1
        shifted = (part & np.uint64(0x7F)) << (digit.astype(np.uint64) * np.uint64(7))
        return np.asarray(np.add.reduceat(shifted, starts - starts[0]), dtype=np.uint64)

    def parameters(self, number: int) -> list[int]:
        """The next `number` signed parameters (zigzag varints)."""
        return [z // 2 if z % 2 == 0 else -(z + 1) // 2 for z in self.varints(number).tolist()]

    def fill(self, array: Array) -> None:
        """Read one array into `array`, whose dtype and shape say how."""
        if array.dtype.kind == "f":
            stop = self._at + array.nbytes
            if stop > self._data.size:
                raise SummaryError("summary bytes end early")
            raw = np.frombuffer(self._data[self._at : stop].tobytes(), array.dtype.newbyteorder("<"))
            array[...] = raw.reshape(array.shape)
            self._at = stop
            return
        at, values = self.sparse(array.size)
        array[...] = 0
        array.reshape(-1)[at] = values

    def sparse(self, size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Places and values of the non-zeros of an integer array of `size`, as `pack_array` wrote it."""
        number = int(self.varints(1)[0])
        at = np.cumsum(self.varints(number).astype(np.int64))
        values = self.varints(number).astype(np.int64)
        if at.size and (at[0] < 0 or at[-1] >= size or (np.diff(at) <= 0).any()):
            raise SummaryError("summary bytes hold a count outside the summary's shape")
        return at, values

    def close(self) -> None:
        """Raise SummaryError unless everything was read."""
        if self._at != self._data.size:
            raise SummaryError(f"summary bytes have {self._data.size - self._at} bytes too many")

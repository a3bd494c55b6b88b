"""Bytes of gzip and Zstandard, all that can be had of a file that is cut or damaged; then an OSError that
says so.

A library's own file fills a buffer before it gives any of it, and a failure loses the buffer. Here pieces are
decompressed one by one, members (gzip) and frames (Zstandard) in sequence, and of a piece with bad bytes what
comes before them.
"""

from __future__ import annotations

import importlib
import io
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from trimtab.errors import TraceError
from trimtab.safe_files import excess, expansion_limit

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_PIECE = 4096  # bytes of input at a time, which are at most 4 MiB of a gzip's output
_SMALL = 512
_SKIPPED = b"\x2a\x4d\x18"  # a Zstandard frame of something else, behind a byte of 0x50 to 0x5f


def require_expansion(plain: io.BufferedReader, num_given: int, num_read: int) -> None:
    """TraceError where more has come out of a compressed file than what was read of it may hold."""
    if num_given > expansion_limit(num_read):
        name = str(getattr(getattr(plain, "raw", plain), "name", "the compressed part"))
        raise TraceError(excess(name, num_read))


class _Unpacking(io.RawIOBase):
    """Closes what it reads from."""

    _plain: io.BufferedReader

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._plain.close()
        super().close()


class _Members(_Unpacking):
    """The bytes of `plain`, which begins with `magic`. Reading raises OSError where the file ends within a
    member, where bytes are bad and where others follow, after all that comes before. `make`: a decompressor
    of one member."""

    def __init__(self, plain: io.BufferedReader, magic: bytes, make: Callable[[], Any]) -> None:
        self._plain, self._magic, self._make = plain, magic, make
        self._one = make()
        self._num_read = self._num_given = 0
        self._packed, self._out, self._failure, self._inside = b"", memoryview(b""), "", True

    def readinto(self, buffer: Any) -> int:
        while not self._out and not self._failure:
            self._packed = self._packed or self._more()
            if not self._inside and not self._begins():
                return 0
            if not self._failure:
                self._out = memoryview(self._next())
        if not self._out:
            raise OSError(self._failure)
        size = min(len(buffer), len(self._out))
        self._num_given += size
        require_expansion(self._plain, self._num_given, self._num_read)
        buffer[:size], self._out = self._out[:size], self._out[size:]
        return size

    def _more(self) -> bytes:
        piece = self._plain.read(_PIECE)
        self._num_read += len(piece)
        return piece

    def _begins(self) -> bool:
        """Behind a member: does another begin? False at the end of the file; zeros that fill a gzip up are
        passed over."""
        while self._magic == GZIP and self._packed.startswith(b"\0"):
            self._packed = self._packed.lstrip(b"\0") or self._more()
        if not self._packed:
            return False
        if len(self._packed) < len(ZSTD):
            self._packed += self._more()
        if self._packed.startswith(self._magic) or (self._magic == ZSTD and self._packed[1:4] == _SKIPPED):
            self._one, self._inside = self._make(), True
        else:
            self._failure = "what follows the compressed part is not compressed"
        return True

    def _next(self) -> bytes:
        """What the piece holds of this member; none, too, where it is not yet enough for any."""
        piece, self._packed = self._packed, b""
        if not piece:
            self._failure = "the compressed file is cut off"
            return b""
        before = self._one.copy() if self._magic == GZIP else None
        try:
            output: bytes = self._one.decompress(piece)
        except Exception as error:  # three libraries, each with an exception of its own
            self._failure = f"bad bytes in the compressed file: {str(error)[:60]}"
            return _until_bad(before, piece)
        if self._one.eof:
            self._packed, self._inside = self._one.unused_data, False
        return output


def _until_bad(one: Any, piece: bytes) -> bytes:
    """Byte by byte, what comes before the bad one; Zstandard decompresses blocks, and gives none of a bad
    one."""
    output = bytearray()
    for index in range(len(piece) if one is not None else 0):
        try:
            output += one.decompress(piece[index : index + 1])
        except zlib.error:
            break
    return bytes(output)


def _gzip() -> Any:
    return zlib.decompressobj(wbits=31)


class _Arrow(_Unpacking):
    """Zstandard by pyarrow, which tells neither frames nor where they end: small reads, of which a failure
    loses one."""

    def __init__(self, plain: io.BufferedReader, module: Any) -> None:
        self._plain, self._stream = plain, module.CompressedInputStream(plain, "zstd")
        self._failure, self._num_given = "", 0

    def readinto(self, buffer: Any) -> int:
        at = 0
        while at < len(buffer) and not self._failure:
            try:
                piece = self._stream.read(min(_SMALL, len(buffer) - at))
            except OSError as error:
                self._failure = str(error)
                break
            if not piece:
                return at
            buffer[at : at + len(piece)] = piece
            at += len(piece)
            self._num_given += len(piece)
            require_expansion(self._plain, self._num_given, self._plain.tell())
        if self._failure and not at:
            raise OSError(self._failure)
        return at


def unpacked(plain: io.BufferedReader, magic: bytes) -> io.BufferedReader:
    """The bytes of `plain`, which begins with `magic`. ImportError where nothing that is installed unpacks
    Zstandard."""
    if magic == GZIP:
        return io.BufferedReader(_Members(plain, magic, _gzip))
    for name in ("compression.zstd", "zstandard", "pyarrow"):
        try:
            module: Any = importlib.import_module(name)
        except ImportError:
            continue
        if name == "pyarrow":
            return io.BufferedReader(_Arrow(plain, module))
        return io.BufferedReader(_Members(plain, magic, partial(_frame, module)))
    raise ImportError("Zstandard")


def _frame(module: Any) -> Any:
    """A decompressor of one frame, of compression.zstd or zstandard."""
    one = module.ZstdDecompressor()
    return one.decompressobj() if hasattr(one, "decompressobj") else one

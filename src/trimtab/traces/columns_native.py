"""The compiled reader of step lines: `steps_scan.c`, built once by the machine's C compiler and kept in the user's cache.

Nothing depends on it: without a compiler, or with TRIMTAB_COMPILE=0, DuckDB reads the same columns at less than half of the speed.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["REFUSED", "ROW", "SWITCH", "Scanner", "scanner"]

SWITCH = "TRIMTAB_COMPILE"
REFUSED = -2
"""Kind of a row that Python must read."""

ROW = np.dtype(
    [(name, "u8") for name in ("eh", "h", "tool_hash")]
    + [(name, "f8") for name in ("step", "ts", "latency", "tokens", "reward", "total")]
    + [("line", "i8")]
    + [(f"{name}_{part}", "i4") for name in ("id", "tool", "err", "task", "group", "stop") for part in ("at", "len")]
    + [("len", "i4"), ("kind", "i1"), ("told", "i1"), ("success", "i1"), ("filler", "i1")]
)  # fmt: skip
"""One line: `line` is where it begins in the data, `len` its bytes; `..._at` count from there, -1: none."""

_STARTS = (
    b"errexctrahttstacodtoointbadsergatfaicomfunexereqcalopeactqueunkno invproscrexifinterretfatpan"
    b"peraccsegcontimrearatyouapiclirunsynnetdatsqlsysvalparautimpbuiuneunh"
)
"""First three letters of what `tool_errors.ERROR_START` finds at the start of a text; a test holds the two together."""

_SECONDS = 120  # for the compiler
_LINE_BYTES = 300  # a guess, from which the room for rows grows
_NO_ROWS = np.empty(0, ROW)
_local = threading.local()


class Scanner:
    """The compiled functions. Hashes are the same on all machines of one byte order."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        pointer, size = ctypes.c_void_p, ctypes.c_int64
        self._scan, self._bytes, self._json = library.scan, library.hash_bytes, library.hash_json
        self._scan.argtypes, self._scan.restype = [pointer, size, pointer, size, ctypes.c_char_p], size
        self._bytes.argtypes, self._bytes.restype = [ctypes.c_char_p, size, ctypes.c_uint64], ctypes.c_uint64
        self._json.argtypes, self._json.restype = [ctypes.c_char_p, size], ctypes.c_uint64

    def scan(self, data: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """(R,) of ROW: the lines of the data (contiguous) that are not blank; good until the thread's next call."""
        while True:
            rows: npt.NDArray[Any] = getattr(_local, "rows", _NO_ROWS)
            count = self._scan(data.ctypes.data, data.size, rows.ctypes.data, rows.size, _STARTS)
            if count >= 0:
                return rows[:count]
            if count == -1:
                raise MemoryError("no memory for a line of the log")
            _local.rows = np.empty(max(2 * rows.size, data.size // _LINE_BYTES + 64), ROW)

    def name_key(self, name: str) -> int:
        """As `eh` and `tool_hash`."""
        text = name.encode("utf-8", "surrogatepass")
        return int(self._bytes(text, len(text), 0))

    def text_key(self, said: str) -> int:
        """As `h` of a result that is text."""
        text = said.encode("utf-8", "surrogatepass")
        return int(self._bytes(text, len(text), 1))

    def json_key(self, json: bytes) -> int:
        """As `h` of arguments, or of a result that is no text; of one JSON value."""
        return int(self._json(json, len(json)))


@lru_cache(1)
def scanner() -> Scanner | None:
    """The compiled reader; None where there is none. The first call on a machine compiles it: a second."""
    if os.environ.get(SWITCH) == "0" or sys.byteorder != "little":
        return None
    try:
        return Scanner(_built())
    except (OSError, subprocess.SubprocessError, AttributeError):
        return None


def _built() -> Path:
    """The library for this source and machine. OSError or SubprocessError where it cannot be made."""
    source = Path(__file__).with_name("steps_scan.c")
    key = hashlib.sha256(source.read_bytes() + platform.platform().encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimtab"
    library = folder / f"steps_scan-{key}.so"
    if library.is_file() and library.stat().st_uid == os.getuid():
        return library
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if compiler is None:
        raise OSError("no C compiler")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        made = Path(work) / "made.so"
        command = [compiler, "-O3", "-std=gnu11", "-shared", "-fPIC", "-o", str(made), str(source), "-lm"]
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
        made.replace(library)  # at once: another process may be making it too
    return library

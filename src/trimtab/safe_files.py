"""What a file may be, how far it may expand, and what may be written: no input hangs, fills the memory or is
lost."""

from __future__ import annotations

import gzip
import os
import re
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trimtab.catalog import bound
from trimtab.errors import TrimtabError

_PIECE = 2**20
_PAGES = (".html", ".htm")
_RECORD = re.compile(r"\.r\d+(\.s\d+)?\.\w+")  # of a rank, and of its session
_KINDS = {
    stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip


@contextmanager
def replacing(path: Path, error: type[Exception] = OSError) -> Iterator[Path]:
    """Give a file beside `path` to write: it takes its place when the block ends, and goes when that fails.

    `error` is raised where none can be made in the folder. A file that is replaced leaves its mode.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as failure:
        if error is OSError:
            raise OSError(failure.errno, failure.strerror, os.fspath(path)) from failure
        raise error(f"{path} cannot be written: {failure.strerror or failure}") from failure
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def folder_path(folder: object, error: type[TrimtabError]) -> Path:
    """Return the path of a folder. Raises `error` for what no folder can be named."""
    try:
        path = Path(folder)  # type: ignore[arg-type]
        if os.fspath(folder) and b"\0" not in os.fsencode(path):  # type: ignore[call-overload]
            return path
    except (TypeError, ValueError):  # no path, bytes, or text that no file system takes
        pass
    raise error(f"{ascii(folder)[:80]} cannot be the path of a folder; give its name as text")


def require_regular(path: str | os.PathLike[str], error: type[TrimtabError]) -> None:
    """Raise `error` where a path names a pipe, a socket or a device, which may never end; folders and absent
    files pass."""
    try:
        kind = _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    except (OSError, ValueError):
        return
    if kind:
        raise error(f"{os.fspath(path)} is {kind}, not a regular file; write its content to a file first")


def expansion_limit(num_packed: int) -> int:
    """Return how many bytes `num_packed` compressed bytes may become.

    >>> expansion_limit(1000) == 2**25, expansion_limit(10**6)
    (True, 200000000)
    """
    return int(max(bound("expanded_bytes"), bound("expansion_ratio") * num_packed))


def excess(name: str, num_packed: int) -> str:
    """Return the words for a file that expands beyond its limit."""
    return (
        f"{name} expands to more than {expansion_limit(num_packed):,} bytes from {num_packed:,}; unpack it "
        "yourself if you trust it, and name what comes out"
    )


def read_capped(
    packed: gzip.GzipFile, path: str | os.PathLike[str], error: type[TrimtabError], offset: int = 0
) -> bytes:
    """Return the expanded bytes of an open compressed file behind `offset`; `error` where they exceed the
    limit.

    No more than the limit is held, and never more than `expanded_total`.
    """
    num_packed = os.stat(path).st_size
    limit = min(expansion_limit(num_packed), int(bound("expanded_total")))
    packed.seek(offset)
    pieces, size = [], offset
    while piece := packed.read(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise error(
                excess(os.fspath(path), num_packed).replace(f"{expansion_limit(num_packed):,}", f"{limit:,}")
            )
    return b"".join(pieces)


def inflate(packed: bytes, name: str, error: type[TrimtabError]) -> bytes:
    """Return what zlib packed; `error` where it exceeds the limit. zlib.error for other bytes."""
    stream = zlib.decompressobj()
    plain = stream.decompress(packed, expansion_limit(len(packed)))
    if stream.unconsumed_tail:
        raise error(excess(name, len(packed)))
    if not stream.eof:
        raise zlib.error("cut short")
    return plain


def require_cells(
    path: str | os.PathLike[str], num_rows: int, num_columns: int, error: type[TrimtabError]
) -> None:
    """Raise `error` where a table of metrics has more cells than are held in memory."""
    if num_rows * num_columns > bound("table_cells"):
        raise error(
            f"{os.fspath(path)} has {num_rows:,} rows of {num_columns:,} columns, more than "
            f"{bound('table_cells'):,.0f} cells; keep the columns and steps you need"
        )


def glob_escaped(path: str | os.PathLike[str]) -> str:
    """Return the absolute path as a glob that matches this file alone: DuckDB's readers take every name for
    one.

    >>> glob_escaped("/runs/[lr=1e-4].parquet")
    '/runs/[[]lr=1e-4].parquet'
    """
    return "".join(f"[{c}]" if c in "[*?" else c for c in os.path.abspath(path))


def require_new(
    output: str | os.PathLike[str],
    inputs: Iterable[str | os.PathLike[str]],
    error: type[TrimtabError] = TrimtabError,
) -> None:
    """Raise `error` where writing to `output` would replace an input, or a file of a run folder but for its
    pages."""
    target = Path(output).resolve()
    if (target.parent / "run.json").is_file():
        protected = target.is_file() and target.suffix.lower() not in _PAGES
        if protected or target.name == "run.json" or _RECORD.search(target.name):
            raise error(f"{output} is a file of the run folder {target.parent}; name another file to write")
    for path in inputs:
        if target.exists() and Path(path).exists() and target.samefile(path):
            raise error(f"{output} is one of the logs; name another file to write")

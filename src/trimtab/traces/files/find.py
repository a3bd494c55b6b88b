"""The files that paths, globs and folders name, and their bytes. Compression is recognised by content, not by
name."""

from __future__ import annotations

import glob
import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from trimtab.errors import TraceError
from trimtab.safe_files import require_new, require_regular
from trimtab.traces.files.decompress import GZIP, ZSTD, unpacked

STDIN = "-"
SUFFIXES = (".jsonl", ".ndjson", ".json", ".traj", ".parquet", ".eval")
"""What is read of a folder, each also with .gz or .zst; a file named outright may be called anything."""

_NO_ZSTD = "{} is Zstandard, which needs Python 3.14, zstandard or pyarrow: pip install zstandard"
_SEEKABLE = {b"PAR1": "Parquet", b"PK\x03\x04": "a zip, such as Inspect's .eval,"}


def find_files(paths: Iterable[str | Path]) -> list[str]:
    """Return the files behind paths, globs and folders, sorted within each, every file once; `-` is standard
    input.

    TraceError for a path that does not exist, a glob or a folder with nothing to read.
    """
    files: dict[str, None] = {}
    for path in map(str, paths):
        files |= dict.fromkeys(_expand(path))
    if not files:
        raise TraceError("no agent log given; name a file, a folder or a glob, or - for standard input")
    return list(files)


def _expand(path: str) -> list[str]:
    if path == STDIN:
        return [path]
    here = Path(path)
    try:
        if here.is_dir():
            return _folder(here)
        if here.exists():
            require_regular(path, TraceError)
            return [path]
    except (OSError, ValueError) as error:
        raise TraceError(f"{path!r} cannot be opened: {error}") from error
    names = sorted(name for name in glob.glob(path, recursive=True) if Path(name).is_file())
    if not names:
        raise TraceError(f"{path} does not exist, and as a glob it matches no file")
    return names


def _folder(folder: Path) -> list[str]:
    def wanted(path: Path) -> bool:
        inside = path.relative_to(folder).parts
        stem = path.name.lower().removesuffix(".gz").removesuffix(".zst")
        return stem.endswith(SUFFIXES) and not any(part.startswith(".") for part in inside) and path.is_file()

    names = sorted(str(path) for path in folder.rglob("*") if wanted(path))
    if not names:
        raise TraceError(f"{folder} holds no {', '.join(SUFFIXES)} file; name the file itself to read it")
    return names


def spare_logs(paths: Iterable[str | Path], *outputs: str | Path) -> None:
    """Make sure that no output is a log that is read, by whatever name: it would be lost. TraceError
    otherwise."""
    paths, logs = list(paths), None
    for output in outputs:
        require_new(output, (), TraceError)
        if Path(output).exists():
            logs = find_files(paths) if logs is None else logs
            require_new(output, (file for file in logs if file != STDIN), TraceError)


def open_bytes(path: str) -> io.BufferedReader:
    """A file's bytes, decompressed when its first bytes say gzip or Zstandard. TraceError when it cannot be
    opened."""
    try:
        raw = sys.stdin.buffer if path == STDIN else open(path, "rb")  # noqa: SIM115
        plain = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(cast(Any, raw))
        head = plain.peek(4)[:4]
    except OSError as error:
        raise TraceError(f"{path} cannot be opened: {error.strerror or error}") from error
    if path == STDIN and head in _SEEKABLE:
        raise TraceError(
            f"{_SEEKABLE[head]} cannot be read from standard input; write it to a file, and name that"
        )
    for magic in (GZIP, ZSTD):
        if head.startswith(magic):
            return unpacked_bytes(plain, magic, path)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TraceError(f"{path} is UTF-16; convert it first, e.g. iconv -f UTF-16 -t UTF-8")
    return plain


def unpacked_bytes(plain: io.BufferedReader, magic: bytes, path: str) -> io.BufferedReader:
    """What is packed in them, by what they begin with. TraceError where nothing that is installed unpacks
    it."""
    try:
        return unpacked(plain, magic)
    except ImportError:
        raise TraceError(_NO_ZSTD.format(path)) from None

"""Writers of rows to Parquet, to JSONL, or to a folder of `datasets`."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from trimtab.errors import TraceError
from trimtab.safe_files import replacing

JSON_COLUMNS = ("messages", "prompt", "completion", "chosen", "rejected", "tools")
"""Columns of JSON objects. Parquet has them as JSON: structs would put every tool's arguments, as nulls, into
every call."""

_ROWS = 500
"""Rows of a group in Parquet, and whose JSON is in memory at once."""


def write_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> str:
    """Write `.parquet` or `.jsonl`, or without a suffix a new folder for `datasets.load_from_disk`.

    Return the SHA-256 of the file, or of the folder's files by name. The output is written whole or not at
    all. TraceError for another suffix, or without the package it needs.
    """
    suffix = path.suffix.lower()
    if not suffix:
        return _folder(rows, path)
    if suffix not in (".parquet", ".jsonl"):
        raise TraceError(
            f"{path} is neither .parquet nor .jsonl, nor a folder's name without a suffix; name the output so"
        )
    with replacing(path, TraceError) as temporary:
        (_parquet if suffix == ".parquet" else _jsonl)(rows, str(temporary))
        return _sha256(temporary)


def _sha256(path: str | Path) -> str:
    digest = sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _folder(rows: Sequence[Mapping[str, Any]], path: Path) -> str:
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError as error:
        raise TraceError(
            f"{path} would be a folder of datasets: pip install datasets, or name the output .parquet or "
            ".jsonl"
        ) from error
    if path.exists():
        raise TraceError(f"{path} already exists; name a new folder")
    try:
        room = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    except OSError as error:
        raise TraceError(f"{path} cannot be written: {error.strerror or error}") from error
    bars = not sys.stderr.isatty() and not datasets.are_progress_bars_disabled()
    if bars:
        datasets.disable_progress_bars()
    try:
        _parquet(rows, str(room / "rows.parquet"))
        saved = datasets.Dataset.from_parquet(str(room / "rows.parquet"), cache_dir=str(room / "cache"))
        saved.save_to_disk(str(room / "saved"))
        digest = sha256()
        for file in sorted((room / "saved").iterdir()):
            digest.update(file.name.encode() + b"\0" + bytes.fromhex(_sha256(file)))
        (room / "saved").chmod(0o755)
        os.replace(room / "saved", path)
    finally:
        if bars:
            datasets.enable_progress_bars()
        shutil.rmtree(room, ignore_errors=True)
    return digest.hexdigest()


def _jsonl(rows: Sequence[Mapping[str, Any]], path: str) -> None:
    with open(path, "w", encoding="ascii", newline="\n") as file:
        for row in rows:
            file.write(json.dumps({name: value for name, value in row.items() if value is not None}) + "\n")


def _parquet(rows: Sequence[Mapping[str, Any]], path: str) -> None:
    try:
        pa: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise TraceError("Parquet needs pyarrow: pip install pyarrow, or name the output .jsonl") from error
    names = list(dict.fromkeys(name for row in rows for name in row))
    may_be_json = [name for name in names if name in JSON_COLUMNS]
    chats = {name for name in may_be_json if not all(isinstance(row.get(name), str) for row in rows)}
    plain = {name: pa.array([row.get(name) for row in rows]) for name in names if name not in chats}
    kinds = [(name, pa.list_(pa.json_()) if name in chats else plain[name].type) for name in names]
    with parquet.ParquetWriter(path, pa.schema(kinds), compression="zstd") as file:
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            columns = [
                plain[n][start : start + _ROWS]
                if n in plain
                else _json_array(pa, [row.get(n) for row in part])
                for n in names
            ]
            file.write_table(pa.Table.from_arrays(columns, names), row_group_size=_ROWS)


def _json_array(pa: Any, values: Sequence[Any]) -> Any:
    """Return an array of lists of JSON texts."""
    written = [None if value is None else list(map(_json, value)) for value in values]
    texts = pa.array(written, pa.list_(pa.string()))
    inside = pa.ExtensionArray.from_storage(pa.json_(), texts.values)
    mask = {"mask": texts.is_null()} if texts.null_count else {}
    return pa.ListArray.from_arrays(texts.offsets, inside, pa.list_(pa.json_()), **mask)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)

"""The files of a checkpoint folder: which there are, which hold weights, and which are damaged."""

from __future__ import annotations

import json
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trimtab.runs.checkpoints.safetensors_file import safetensors_fault

_MAX_FILES, _MAX_DEPTH = 20_000, 4
_MAX_JSON = 256 * 2**20
_PIECE = 2**20
_WEIGHTS = ("pytorch_model", "adapter_model", "model")
INDEX = "model.safetensors.index.json"
TRAINER_STATE = "trainer_state.json"


def checkpoint_files(folder: Path) -> dict[str, int]:
    """Return the regular files of a checkpoint, as paths inside the folder, with their bytes.

    Hidden files, links that lead nowhere and what lies deeper than four folders are left out.

    Raises:
        OSError: the folder cannot be read.
    """
    return dict(sorted(_walk(folder, folder, 0)))


def _walk(root: Path, folder: Path, depth: int) -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if entry.name.startswith(".") or count >= _MAX_FILES:
                continue
            try:
                status = entry.stat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield Path(entry.path).relative_to(root).as_posix(), status.st_size
            elif stat.S_ISDIR(status.st_mode) and depth < _MAX_DEPTH and not entry.is_symlink():
                yield from _walk(root, Path(entry.path), depth + 1)


def weight_names(files: dict[str, int]) -> list[str]:
    """Return the files that hold the weights: safetensors where there are any, else torch's own.

    >>> weight_names({"model.safetensors": 9, "optimizer.pt": 9}), weight_names({"pytorch_model.bin": 9})
    (['model.safetensors'], ['pytorch_model.bin'])
    """
    safe = [name for name in files if name.endswith(".safetensors")]
    torch = [name for name in files if name.endswith(".bin") and Path(name).name.startswith(_WEIGHTS)]
    return sorted(safe or torch)


def missing_shards(folder: Path) -> list[str]:
    """Return the files that the index of sharded weights names and the folder lacks; ValueError for an index
    that cannot be read."""
    path = folder / INDEX
    if not path.is_file():
        return []
    table = read_json(path).get("weight_map")
    if not isinstance(table, dict):
        raise ValueError(f"{INDEX} has no weight_map")
    names = {name for name in table.values() if isinstance(name, str)}
    return sorted(name for name in names if not (folder / Path(name).name).is_file())


def file_fault(path: Path) -> str:
    """Return what is wrong with one file of a checkpoint; empty where nothing is, or nothing is known.

    Args:
        path: a safetensors file, whose structure is checked; or one of `torch.save`, an archive whose
            checksums are compared. It is never unpickled.

    Raises:
        OSError: the file cannot be read.
    """
    if path.stat().st_size == 0:
        return "is empty"
    if path.suffix == ".safetensors":
        return safetensors_fault(path)
    return _archive_fault(path) if path.suffix in (".pt", ".pth", ".bin") else ""


def _archive_fault(path: Path) -> str:
    """`torch.save` writes an archive of stored records; files of before torch 1.6 are none."""
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            return "" if path.suffix == ".bin" else "is not an archive of torch.save"
    try:
        with zipfile.ZipFile(path) as archive:
            for record in archive.infolist():
                if record.compress_type != zipfile.ZIP_STORED:
                    return f"is damaged: its record {record.filename[:60]!r} is compressed"
                with archive.open(record) as content:
                    while content.read(_PIECE):
                        pass
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError) as error:
        return f"is cut or damaged: {str(error).splitlines()[0][:120] or type(error).__name__}"
    return ""


def read_json(path: Path) -> dict[str, Any]:
    """Return an object of a JSON file; ValueError for anything else, OSError where it cannot be read."""
    if path.stat().st_size > _MAX_JSON:
        raise ValueError(f"{path.name} is larger than {_MAX_JSON:,} bytes")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} cannot be read: {str(error)[:80]}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} is not an object")
    return value

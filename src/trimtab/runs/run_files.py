"""A run folder as files: its header, and the compression of a finished run."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

from trimtab.errors import RunError
from trimtab.runs.schema import COMPRESSED, FORMAT, parse_name
from trimtab.safe_files import folder_path


def read_header(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return `run.json` of a run folder.

    Args:
        folder: a run folder.

    Returns:
        The header: `trimtab_run` (the format), `run_id`, `created` (seconds since 1970), `trimtab_version`,
            `config`.

    Raises:
        RunError: the header is missing, not ours, damaged or of a newer format.

    Example:
        config = read_header("runs/exp1")["config"]
    """
    path = folder_path(folder, RunError) / "run.json"
    try:
        if not path.parent.exists():
            raise RunError(f"{folder} does not exist; give the folder a run was written to")
        if not path.is_file() and holds_rows(path.parent):
            raise RunError(f"{folder} holds the rows of a run and no run.json, which is needed to read them")
        if not path.is_file():
            raise RunError(f"{folder} is not a run folder: it has no run.json")
        header = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    version = header.get("trimtab_run") if isinstance(header, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise RunError(f"{path} is not a trimtab run header: it has no positive integer 'trimtab_run'")
    if header["trimtab_run"] > FORMAT:
        raise RunError(
            f"{path} has format {header['trimtab_run']}, this trimtab reads up to {FORMAT}; upgrade with pip install -U trimtab"  # noqa: E501
        )
    if not isinstance(header.get("config"), dict):
        raise RunError(f"{path} is not a trimtab run header: its 'config' is not an object")
    return dict(header)


def holds_rows(folder: Path) -> bool:
    """Return whether a folder has files of a run's rows.

    >>> holds_rows(Path("/nowhere"))
    False
    """
    return folder.is_dir() and any(parse_name(name) for name in os.listdir(folder))


def compress_run(folder: str | os.PathLike[str]) -> int:
    """Compress the data files of a run that nobody writes to any more.

    A file is replaced only after its compressed copy is complete on disk, so a crash loses nothing. Readers
    see no difference, and a resume opens new files. The same content gives the same bytes.

    Args:
        folder: a run folder.

    Returns:
        Bytes saved.

    Raises:
        RunError: the folder is not a run.

    Example:
        saved = compress_run("runs/exp1")
    """
    read_header(folder)
    saved = 0
    for path in sorted(Path(folder).iterdir()):
        if parse_name(path.name) is None or path.suffix == COMPRESSED:
            continue
        data = path.read_bytes()
        packed = gzip.compress(data, compresslevel=9, mtime=0)
        half = path.with_name(path.name + COMPRESSED + ".part")
        with half.open("wb") as out:
            out.write(packed)
            out.flush()
            os.fsync(out.fileno())
        half.rename(path.with_name(path.name + COMPRESSED))
        path.unlink()
        saved += len(data) - len(packed)
    return saved

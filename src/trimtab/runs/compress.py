"""Seal a finished run: every data file is compressed; readers see no difference, a resume opens new files beside it."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from trimtab.runs.schema import SEALED, parse_name
from trimtab.runs.writer import read_header


def seal(folder: str | os.PathLike[str]) -> int:
    """Compress the data files of a run nobody writes to any more; returns the bytes saved.

    A file is replaced only after its compressed copy is complete on disk, so a crash loses nothing. The same content
    gives the same bytes. Raises RunError when the folder is not a run.
    """
    read_header(folder)
    saved = 0
    for path in sorted(Path(folder).iterdir()):
        if parse_name(path.name) is None or path.suffix == SEALED:
            continue
        data = path.read_bytes()
        packed = gzip.compress(data, compresslevel=9, mtime=0)
        half = path.with_name(path.name + SEALED + ".part")
        with half.open("wb") as out:
            out.write(packed)
            out.flush()
            os.fsync(out.fileno())
        half.rename(path.with_name(path.name + SEALED))
        path.unlink()
        saved += len(data) - len(packed)
    return saved

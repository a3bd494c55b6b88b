"""Keep a recorded run small: histograms and readings of the main slices only."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trimtab.measure.pack import pack_states, unpack_states

__all__ = ["MAIN_SLICES", "slim"]

MAIN_SLICES = ("all", "text", "post_tool")


def slim(folder: Path, slices: tuple[str, ...] = MAIN_SLICES) -> None:
    """Rewrite the states and readings files of a finished run, plain or sealed, with these slices alone."""
    for path in sorted(folder.glob("states.*.jsonl*")):
        _rewrite(path, lambda row: {**row, "states": pack_states(unpack_states(row["states"], slices))})
    for path in sorted(folder.glob("readings.*.jsonl*")):
        _rewrite(path, lambda row: row if row["slice"] in slices else None)


def _rewrite(path: Path, kept: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Every row as `kept` gives it back; dropped where that is None. The file is replaced whole."""
    sealed = path.suffix == ".gz"
    lines = (gzip.decompress(path.read_bytes()) if sealed else path.read_bytes()).splitlines()
    rows = [row for line in lines if (row := kept(json.loads(line))) is not None]
    data = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode("ascii")
    half = path.with_name(path.name + ".part")
    half.write_bytes(gzip.compress(data, compresslevel=9, mtime=0) if sealed else data)
    half.replace(path)

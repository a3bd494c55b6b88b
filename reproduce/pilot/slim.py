"""Keep a recorded run small: readings of the main slices, histograms of the two disjoint ones they are made of.

Rules, leads and tables read the readings; histograms are read for the distribution of text and post-tool tokens alone.
Every token is in one of the two, so a histogram of all tokens is their merge and need not be kept.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trimtab.measure.state.blocks import pack_states, unpack_states

__all__ = ["DISJOINT", "MAIN_SLICES", "slim"]

DISJOINT = ("text", "post_tool")
MAIN_SLICES = ("all", *DISJOINT)


def slim(folder: Path, also: tuple[str, ...] = ()) -> None:
    """Rewrite the files of a finished run, plain or sealed: states of `DISJOINT`, readings of `MAIN_SLICES` and of slices that begin
    with one of `also`."""
    for path in sorted(folder.glob("states.*.jsonl*")):
        _rewrite(path, lambda row: {**row, "states": pack_states(unpack_states(row["states"], DISJOINT))})
    for path in sorted(folder.glob("readings.*.jsonl*")):
        _rewrite(
            path, lambda row: row if row["slice"] in MAIN_SLICES or row["slice"].startswith(also) else None
        )


def _rewrite(path: Path, kept: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Every row as `kept` gives it back; dropped where that is None. The file is replaced whole."""
    sealed = path.suffix == ".gz"
    lines = (gzip.decompress(path.read_bytes()) if sealed else path.read_bytes()).splitlines()
    rows = [row for line in lines if (row := kept(json.loads(line))) is not None]
    data = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode("ascii")
    half = path.with_name(path.name + ".part")
    half.write_bytes(gzip.compress(data, compresslevel=9, mtime=0) if sealed else data)
    half.replace(path)

"""Keep a recorded run small: histograms of the main slices only. Readings of all slices stay as they were."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from trimtab.measure.pack import pack_states, unpack_states

__all__ = ["MAIN_SLICES", "slim"]

MAIN_SLICES = ("all", "text", "post_tool")


def slim(folder: Path, slices: tuple[str, ...] = MAIN_SLICES) -> None:
    """Rewrite the states files of a finished run, plain or sealed, with these slices alone."""
    for path in sorted(folder.glob("states.*.jsonl*")):
        sealed = path.suffix == ".gz"
        lines = (gzip.decompress(path.read_bytes()) if sealed else path.read_bytes()).splitlines()
        rows = [json.loads(line) for line in lines]
        for row in rows:
            row["states"] = pack_states(unpack_states(row["states"], slices))
        data = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode("ascii")
        half = path.with_name(path.name + ".part")
        half.write_bytes(gzip.compress(data, compresslevel=9, mtime=0) if sealed else data)
        half.replace(path)

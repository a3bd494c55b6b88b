"""Keep a recorded run small: readings of the main slices, histograms of the two disjoint ones they are made of.

Rules, leads and tables read the readings; histograms are read for the distribution of text and post-tool tokens alone.
Every token is in one of the two, so a histogram of all tokens is their merge and need not be kept.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trimtab.measure.state.blocks import pack_states, unpack_states
from trimtab.runs.row_lines import Row, encode_row

__all__ = ["DISJOINT", "MAIN_SLICES", "slim"]

DISJOINT = ("text", "post_tool")
MAIN_SLICES = ("all", *DISJOINT)


def slim(folder: Path, also: tuple[str, ...] = ()) -> None:
    """Rewrite the files of a finished run, plain or sealed: states of `DISJOINT`, readings of `MAIN_SLICES` and of slices that begin
    with one of `also`."""
    for path in sorted(folder.glob("states.*.jsonl*")):
        _rewrite(path, lambda row: {**row, "states": pack_states(unpack_states(row["states"], DISJOINT))})
    for path in sorted(folder.glob("readings.*.jsonl*")):
        dropped = _rewrite(
            path, lambda row: row if row["slice"] in MAIN_SLICES or row["slice"].startswith(also) else None
        )
        if dropped:
            _rewrite(path.with_name(path.name.replace("readings.", "steps.", 1)), partial(_recount, dropped))


def _rewrite(path: Path, kept: Callable[[Row], Row | None]) -> list[int]:
    """Replace the file by its rows as `kept` gives them back, without those where that is None.

    Numbered rows get new numbers and checksums, so that a dropped row does not look lost. Returns the old
    numbers of the dropped ones.
    """
    sealed = path.suffix == ".gz"
    lines = (gzip.decompress(path.read_bytes()) if sealed else path.read_bytes()).splitlines()
    data, number, dropped = b"", 0, []
    for line in lines:
        row = json.loads(line)
        if (new := kept(row)) is None:
            dropped.append(row.get("q", -1))
        else:
            data, number = data + _line(new, number), number + 1
    half = path.with_name(path.name + ".part")
    half.write_bytes(gzip.compress(data, compresslevel=9, mtime=0) if sealed else data)
    half.replace(path)
    return dropped


def _recount(dropped: list[int], row: Row) -> Row:
    """A row of steps that counts the readings before it without the `dropped` ones."""
    if "n" not in row:  # a row of 0.1
        return row
    before = row["n"].get("readings") or 0
    return {**row, "n": {**row["n"], "readings": before - sum(number < before for number in dropped)}}


def _line(row: Row, number: int) -> bytes:
    if "c" not in row:  # a row of 0.1
        return json.dumps(row, separators=(",", ":")).encode("ascii") + b"\n"
    fields = {key: value for key, value in row.items() if key not in ("s", "q", "c")}
    return encode_row(fields, number, row["s"])

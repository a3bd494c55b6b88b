"""A step's series as a row of the run folder, and back.

The numbers are packed: base64 of zlib of little-endian arrays (2, K, S), float32 values and errors, uint32
tokens and trajectories.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from trimtab.errors import SummaryError
from trimtab.measure.steps.step_series import StepSeries
from trimtab.typing import Float64, Int64

_MAX_PAIRS = 100_000
"""Series times slices of one row; more is not a row of ours."""


def series_row(series: StepSeries) -> dict[str, Any]:
    """Return the row of a step, in JSON's types."""
    with np.errstate(over="ignore"):
        numbers = np.stack([series.values, series.errors]).astype("<f4")
    counts = np.minimum(np.stack([series.num_tokens, series.num_trajectories]), 2**32 - 1).astype("<u4")
    return {
        "step": series.step,
        "names": list(series.names),
        "slices": list(series.slices),
        "numbers": _pack(numbers.tobytes()),
        "counts": _pack(counts.tobytes()),
        "reasons": dict(series.reasons),
    }


def series_from_row(row: dict[str, Any]) -> StepSeries:
    """Inverse of `series_row`. Raises SummaryError for a row that is damaged."""
    names, slices = layout = layout_of(row)
    numbers, counts = tables_of(layout, [row_bytes(row, layout)])
    (values, errors), (tokens, trajectories) = numbers[0], counts[0]
    return StepSeries(
        int(row["step"]), names, slices, values, errors, tokens, trajectories, dict(row["reasons"])
    )


Layout = tuple[tuple[str, ...], tuple[str, ...]]
"""Series and slices of a row."""


def layout_of(row: dict[str, Any]) -> Layout:
    """Return the series and slices of a row. Raises SummaryError where they are too many."""
    names, slices = (tuple(map(str, row[key])) for key in ("names", "slices"))
    if len(names) * len(slices) > _MAX_PAIRS:
        raise SummaryError(f"step {row['step']} has {len(names)} series of {len(slices)} slices")
    return names, slices


def row_bytes(row: dict[str, Any], layout: Layout) -> tuple[bytes, bytes]:
    """Return the unpacked numbers and counts of a row. Raises SummaryError for a row that is damaged."""
    size = 8 * len(layout[0]) * len(layout[1])
    return _unpack(row["numbers"], size), _unpack(row["counts"], size)


def tables_of(layout: Layout, rows: Sequence[tuple[bytes, bytes]]) -> tuple[Float64, Int64]:
    """Return values and errors (T, 2, K, S), and tokens and trajectories, of T rows of one layout."""
    shape = len(rows), 2, len(layout[0]), len(layout[1])
    numbers = np.frombuffer(b"".join(row[0] for row in rows), "<f4").reshape(shape)
    counts = np.frombuffer(b"".join(row[1] for row in rows), "<u4").reshape(shape)
    return numbers.astype(np.float64), counts.astype(np.int64)


def _pack(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 1)).decode("ascii")


def _unpack(text: str, size: int) -> bytes:
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(text), size + 1)
    except (zlib.error, binascii.Error, ValueError) as error:
        raise SummaryError(f"not the numbers of a step's series: {error}") from error
    if len(data) != size:
        raise SummaryError(f"a step's series hold {len(data)} bytes instead of {size}")
    return data

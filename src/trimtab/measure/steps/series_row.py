"""A step's series as a row of the run folder, and back.

The numbers are packed: base64 of zlib of little-endian arrays (2, K, S), float32 values and errors, uint32
tokens and trajectories.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any

import numpy as np

from trimtab.errors import SummaryError
from trimtab.measure.steps.step_series import StepSeries

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
    names, slices = (tuple(map(str, row[key])) for key in ("names", "slices"))
    shape = 2, len(names), len(slices)
    if shape[1] * shape[2] > _MAX_PAIRS:
        raise SummaryError(f"step {row['step']} has {shape[1]} series of {shape[2]} slices")
    size = 4 * shape[0] * shape[1] * shape[2]
    numbers = np.frombuffer(_unpack(row["numbers"], size), "<f4").reshape(shape).astype(np.float64)
    counts = np.frombuffer(_unpack(row["counts"], size), "<u4").reshape(shape).astype(np.int64)
    return StepSeries(
        int(row["step"]), names, slices, numbers[0], numbers[1], counts[0], counts[1], dict(row["reasons"])
    )


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

"""Checks at the door of every summary: flat values, one row number each, nothing non-finite past this
point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trimtab.errors import SummaryError
from trimtab.typing import Array, Float32, Float64, Int64

NON_FINITE = ("nan", "posinf", "neginf")
"""Order of the non-finite counts of every summary."""


def as_values(values: npt.ArrayLike) -> Float32:
    """Contiguous float32 (N,). A finite float64 beyond float32 becomes an infinity and is counted as one."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(_flat(values), dtype=np.float32)


def as_wide_values(values: npt.ArrayLike) -> Float64:
    """Contiguous float64 (N,)."""
    return np.ascontiguousarray(_flat(values), dtype=np.float64)


def _flat(values: npt.ArrayLike) -> Array:
    out = np.asarray(values)
    if out.ndim != 1 or out.dtype.kind not in "fiu":
        raise SummaryError(
            f"values must be numbers of shape (N,), not {out.dtype} {out.shape}; ravel them first"
        )
    return out


def as_ids(ids: npt.ArrayLike, size: int, what: str) -> npt.NDArray[np.integer]:
    """Integers (N,), one a value; SummaryError names `what` they are otherwise."""
    out = np.asarray(ids)
    if out.size == 0 and size == 0:
        return np.zeros(0, dtype=np.int64)
    if out.dtype.kind not in "iu" or out.shape != (size,):
        raise SummaryError(f"{what} must be integers of shape ({size},), not {out.dtype} {out.shape}")
    return out


def as_rows(rows: npt.ArrayLike | None, size: int, num_rows: int) -> Array | None:
    """Row numbers (N,) in [0, num_rows), in the smallest dtype (it sorts fastest), or None where there is one
    row. SummaryError names a bad one."""
    if rows is None:
        if num_rows != 1:
            raise SummaryError(f"a summary of {num_rows} rows needs the row of each value")
        return None
    out = as_ids(rows, size, "rows")
    if size and (int(out.min()) < 0 or int(out.max()) >= num_rows):
        bad = int(out.min()) if int(out.min()) < 0 else int(out.max())
        raise SummaryError(f"row {bad} is out of range for a summary of {num_rows} rows")
    return out.astype(np.min_scalar_type(num_rows - 1), copy=False) if num_rows > 1 else None


def count_non_finite(values: npt.NDArray[np.floating], rows: Array | None, counts: Int64) -> None:
    """Add to `counts` (rows, 3) how many values of each row are nan, +inf, -inf."""
    for column, mask in enumerate((np.isnan(values), np.isposinf(values), np.isneginf(values))):
        if rows is None:
            counts[0, column] += np.count_nonzero(mask)
        else:
            counts[:, column] += np.bincount(rows[mask], minlength=counts.shape[0])


def finite(values: Float64, counts: Int64) -> Float64:
    """The finite ones of values (N,); adds to `counts` (1, 3) how many are nan, +inf, -inf. One look where
    all are."""
    fine = np.isfinite(values)
    if fine.all():
        return values
    count_non_finite(values, None, counts)
    return values[fine]


def chosen(rows: Sequence[int], num_rows: int) -> list[int]:
    """The rows to add up, each once; SummaryError names one that does not exist or comes twice."""
    for row in rows:
        if not 0 <= row < num_rows:
            raise SummaryError(f"row {row} is out of range for a summary of {num_rows} rows")
    if len(set(rows)) != len(rows):
        raise SummaryError(f"a row comes twice in {list(rows)}; it would be counted twice")
    return [int(row) for row in rows]


def at_least_one(what: str, number: int) -> int:
    """`number` if it is 1 or more, else SummaryError."""
    if number < 1:
        raise SummaryError(f"{what} must be 1 or more, not {number}")
    return int(number)


def need_one_row(num_rows: int) -> None:
    """Raise SummaryError unless a query can be answered."""
    if num_rows != 1:
        raise SummaryError(f"a query needs one row, this summary has {num_rows}; select(...) some first")

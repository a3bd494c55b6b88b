"""Columns as NumPy arrays, whatever a trainer holds them in.

The mistake it prevents: a loop that cannot be watched because its tensors need a gradient, are bfloat16, lie
on a device, or have rows of different lengths. Nothing here imports torch: a tensor is what has `detach`,
`cpu` and `numpy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.errors import BatchError
from trimtab.typing import Int64

Array = npt.NDArray[Any]


def to_array(name: str, raw: Any) -> Array:
    """Return a column as a single array.

    A tensor is detached, moved to the CPU and, where NumPy has no such type (bfloat16, float8), widened to
    float32. A sequence of tensors or arrays of one shape is stacked. None among numbers is NaN.

    Raises:
        BatchError: rows of different lengths, or something that is not an array; the message names the column.

    Example:
        >>> to_array("reward", [np.float32(1.0), None]).tolist()
        [1.0, nan]
    """  # noqa: E501
    try:
        array = _converted(raw)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BatchError(f"{name} cannot be read as an array: {error}") from error
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise BatchError(f"{name} must be numeric, got {type(raw).__name__} of objects") from error
    return array


def rows_of(name: str, raw: Any) -> list[Array] | None:
    """Return the rows of a ragged column: a list or tuple of one-dimensional rows of different lengths. Else
    None.

    >>> [row.tolist() for row in rows_of("logprobs", [[-1.0, -2.0], [-0.5]])]
    [[-1.0, -2.0], [-0.5]]
    >>> rows_of("logprobs", [[-1.0], [-0.5]]) is None
    True
    """
    if not isinstance(raw, (list, tuple)) or not raw or not all(map(_is_row, raw)):
        return None
    if len({len(row) for row in raw}) == 1:
        return None
    rows = [to_array(name, row) for row in raw]
    return rows if all(row.ndim == 1 for row in rows) else None


def padded(rows: Sequence[Array]) -> Array:
    """Return rows of different lengths as (B, T), filled with zeros at their ends."""
    table = np.zeros((len(rows), max(row.size for row in rows)), np.result_type(*rows))
    for into, row in zip(table, rows, strict=True):
        into[: row.size] = row
    return table


def sizes(rows: Sequence[Array]) -> Int64:
    """Return the length of each row (B,)."""
    return np.array([row.size for row in rows], np.int64)


def rectangle(
    name: str, raw: Any, lengths: npt.NDArray[np.int64] | None, keep: npt.NDArray[np.bool_] | None = None
) -> Any:
    """`raw`, or ragged rows in the shape of `loss_mask`.

    Its rows are as long as those of a ragged mask, `lengths` (B,), or hold just the tokens that exist, by
    `keep`.
    """
    rows = rows_of(name, raw)
    if rows is None:
        return raw
    own = sizes(rows)
    if lengths is not None and np.array_equal(own, lengths):
        return padded(rows)
    if keep is not None and keep.ndim == 2 and np.array_equal(own, keep.sum(axis=1)):
        table = np.zeros(keep.shape, np.result_type(*rows))
        table[keep] = np.concatenate(rows)
        return table
    if keep is not None and keep.ndim == 1 and own.sum() == keep.size:
        return np.concatenate(rows)
    expected = "equal rows" if lengths is None else f"rows of {_first(lengths)} tokens"
    raise BatchError(f"{name} has rows of {_first(own)} tokens, loss_mask has {expected}; they must be equal")


def _first(lengths: npt.NDArray[np.int64]) -> str:
    return ", ".join(map(str, lengths[:4].tolist())) + (", ..." if lengths.size > 4 else "")


def to_boolean(name: str, raw: Any) -> npt.NDArray[np.bool_]:
    """Return a mask: booleans, or numbers that are all 0 or 1.

    Raises:
        BatchError: any other value; the message names the column.

    Example:
        >>> to_boolean("loss_mask", [1, 0]).tolist()
        [True, False]
    """
    array = raw if isinstance(raw, np.ndarray) else to_array(name, raw)
    if array.dtype == np.bool_:
        return array
    if array.dtype.kind not in "fiu" or not ((array == 0) | (array == 1)).all():
        raise BatchError(
            f"{name} must be boolean or hold only 0 and 1, got {array.dtype}: give the mask itself"
        )
    return np.asarray(array == 1)


def _converted(raw: Any) -> Array:
    if isinstance(raw, (list, tuple)) and any(hasattr(item, "detach") for item in raw):
        return np.stack([_converted(item) for item in raw])
    if hasattr(raw, "detach") and hasattr(raw, "cpu"):
        tensor = raw.detach().cpu()
        try:
            return np.asarray(tensor.numpy())
        except TypeError:  # a type NumPy does not have
            return np.asarray(tensor.float().numpy())
    array = np.asarray(raw)
    return array.astype(np.float32) if array.dtype.kind == "V" and array.dtype.names is None else array


def _is_row(item: Any) -> bool:
    if isinstance(item, (str, bytes)):
        return False
    return isinstance(item, (list, tuple)) or getattr(item, "ndim", 0) == 1

"""Sums of products of short columns, without BLAS."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def dot(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """The sum of a times b, both (n,). BLAS splits such a sum over threads that wait for one another: beside other work 7 ms for
    20,000 numbers instead of 10 us.

    >>> dot(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    11.0
    """
    return float(np.einsum("i,i", a, b))

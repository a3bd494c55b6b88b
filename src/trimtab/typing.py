"""Names of array and JSON types, for annotations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Bool: TypeAlias = npt.NDArray[np.bool_]
Float32: TypeAlias = npt.NDArray[np.float32]
Float64: TypeAlias = npt.NDArray[np.float64]
Int16: TypeAlias = npt.NDArray[np.int16]
Int64: TypeAlias = npt.NDArray[np.int64]
UInt8: TypeAlias = npt.NDArray[np.uint8]
Json: TypeAlias = Mapping[str, Any]
"""A JSON object as it was parsed: never written to."""

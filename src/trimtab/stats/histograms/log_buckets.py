"""Buckets of |x| read off the float's own bits: exponent and top mantissa bits, no logarithm computed.

Bucket 0 holds zeros and underflow, the last one overflow; between them 2^m equal-width buckets per octave.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from trimtab.errors import SummaryError

_UPPER_HALF = 1 if sys.byteorder == "little" else 0  # of a float32 seen as two uint16


@dataclass(frozen=True)
class LogGrid:
    """Which bucket does |x| fall in? 2^m buckets per octave from 2^lowest up to 2^highest.

    A value's distance to the harmonic middle of its bucket is at most 1 / (2^(m+1) + 1) of the value
    (m = 5: 1.54 %). SummaryError on parameters a float32 cannot carry.

    >>> grid = LogGrid(5, -24, 6)
    >>> grid.num_buckets, grid.ids(np.array([0, 2.0**-24, 1.0, -1.0, 1e9], dtype=np.float32)).tolist()
    (962, [0, 1, 769, 769, 961])
    """

    mantissa_bits: int
    lowest: int
    highest: int

    def __post_init__(self) -> None:
        if not (0 <= self.mantissa_bits <= 7 and -126 <= self.lowest < self.highest <= 127):
            raise SummaryError(
                f"log buckets need 0 <= mantissa_bits <= 7 and -126 <= lowest < highest <= 127, not {self}"
            )

    @property
    def num_buckets(self) -> int:
        """Buckets of one sign, under- and overflow included."""
        return ((self.highest - self.lowest) << self.mantissa_bits) + 2

    def ids(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
        """Bucket of |x| for each finite value of a contiguous float32 array."""
        return self._ids(_upper_halves(values))

    def signed_ids(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
        """`ids`, with `num_buckets` added where the sign bit is set."""
        halves = _upper_halves(values)
        sign = halves >> np.uint16(15)
        sign *= np.uint16(self.num_buckets)
        sign += self._ids(halves)
        return np.asarray(sign)

    def _ids(self, halves: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
        below = ((127 + self.lowest) << self.mantissa_bits) - 1  # raw number of the bucket before the first
        out = halves & np.uint16(0x7FFF)
        out >>= np.uint16(7 - self.mantissa_bits)
        np.clip(out, np.uint16(below), np.uint16(below + self.num_buckets - 1), out=out)
        out -= np.uint16(below)
        return np.asarray(out)

    @property
    def num_raw(self) -> int:
        """How many raw numbers there are."""
        return 1 << (9 + self.mantissa_bits)

    def raw_ids(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
        """Sign, exponent and mantissa bits as they are: fewer steps than `signed_ids`, more numbers to
        fold."""
        return np.asarray(_upper_halves(values) >> np.uint16(7 - self.mantissa_bits))

    def fold(self, raw: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """(2 * buckets,) counts of `signed_ids` from counts of `raw_ids`."""
        first = (127 + self.lowest) << self.mantissa_bits
        last = first + self.num_buckets - 2
        signs = raw.reshape(2, -1)
        out = np.empty((2, self.num_buckets), dtype=np.int64)
        out[:, 0], out[:, -1] = signs[:, :first].sum(axis=1), signs[:, last:].sum(axis=1)
        out[:, 1:-1] = signs[:, first:last]
        return out.reshape(-1)

    def boundaries(self) -> npt.NDArray[np.float64]:
        """Lower edges of all buckets and the last one's upper edge: 0, 2^lowest ... 2^highest, inf."""
        return _boundaries(self.mantissa_bits, self.lowest, self.num_buckets)


@lru_cache(maxsize=32)
def _boundaries(mantissa_bits: int, lowest: int, num_buckets: int) -> npt.NDArray[np.float64]:
    steps = np.arange(num_buckets - 1)
    per_octave = 1 << mantissa_bits
    octave, part = steps // per_octave, steps % per_octave
    inner = np.ldexp(1.0 + part / per_octave, (octave + lowest).astype(np.int64))
    boundaries = np.concatenate(([0.0], inner, [np.inf]))
    boundaries.setflags(write=False)
    return boundaries


def _upper_halves(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Sign, exponent and the top 7 mantissa bits: half the memory to go through."""
    return np.asarray(values.view(np.uint16)[_UPPER_HALF::2].copy())

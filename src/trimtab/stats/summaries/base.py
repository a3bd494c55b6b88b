"""What every mergeable summary has in common: a law-abiding merge, equality, bytes, size.

Laws (tests/stats/test_merge_laws.py runs them over every class): the empty summary is the identity, merge is
commutative and associative, arguments are untouched, other parameters are refused, merged equals one stream,
and bytes and pickle give the same summary back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from trimtab.errors import SummaryError
from trimtab.stats.summaries import serialization as codec
from trimtab.stats.summaries.input_checks import need_one_row

S = TypeVar("S", bound="Summary")


class Summary(ABC):
    """A state of counts and sums that adds up; values are derived from it last.

    A subclass's constructor takes exactly its parameters, and its state is the arrays it lists.
    """

    kind: ClassVar[bytes]  # two letters that start its bytes
    adds_up: ClassVar[bool] = False  # True: integers merge by addition, floats by `absorb_floats`

    @abstractmethod
    def _parameters(self) -> tuple[int, ...]:
        """Arguments of the constructor; two summaries merge only if these are equal."""

    @abstractmethod
    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """The whole state, int64 or floating, always in this order."""

    @abstractmethod
    def _absorb(self: S, other: S) -> None:
        """Add the other's state to this one in place; parameters are known to be equal."""

    def merge(self: S, other: S) -> S:
        """A new summary of both streams; both arguments stay as they are. SummaryError if parameters
        differ."""
        out = self.copy()
        out.absorb(other)
        return out

    def copy(self: S) -> S:
        """A summary of the same stream that shares nothing with this one."""
        out = type(self).__new__(type(self))
        out.__dict__ = {
            name: value.copy() if isinstance(value, (np.ndarray, dict)) else value
            for name, value in self.__dict__.items()
        }
        return out

    def absorb(self: S, other: S) -> None:
        """`merge` in place, for a state that nobody else holds: the other stays as it is."""
        self._check(other)
        self._absorb(other)

    def __add__(self: S, other: S) -> S:
        return self.merge(other)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or not isinstance(other, Summary):
            return NotImplemented
        pairs = zip(self._arrays(), other._arrays(), strict=True)
        return self._parameters() == other._parameters() and all(np.array_equal(a, b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def to_bytes(self) -> bytes:
        """Compact, versioned, checksummed bytes; `from_bytes` of the same class reads them."""
        return codec.frame(self.kind, self._parameters(), self._arrays())

    @classmethod
    def from_bytes(cls: type[S], data: bytes) -> S:
        """The summary that `to_bytes` wrote. SummaryError on bytes of another kind, version, or damaged
        ones."""
        payload = codec.unframe(cls.kind, data)
        out = cls(*payload.parameters(len(cls()._parameters())))
        for array in out._arrays():
            payload.fill(array)
        payload.close()
        return out

    def fill_integers(self, values: npt.NDArray[np.int64]) -> None:
        """Set all integers of the state, in the order of its arrays."""
        self._fill(values, [a for a in self._arrays() if a.dtype.kind != "f"])

    def fill_floats(self, values: npt.NDArray[np.float64]) -> None:
        """Set all floats of the state, in the order of its arrays."""
        self._fill(values, [a for a in self._arrays() if a.dtype.kind == "f"])

    def absorb_floats(self, values: npt.NDArray[np.float64]) -> None:
        """Merge the floats (R, F) of R summaries into this one, which has none yet.

        Only where `adds_up`; a state without floats needs nothing.
        """
        del values

    @staticmethod
    def _fill(values: npt.NDArray[Any], arrays: list[npt.NDArray[Any]]) -> None:
        first = 0
        for array in arrays:
            array.reshape(-1)[:] = values[first : first + array.size]
            first += array.size

    @property
    def nbytes(self) -> int:
        """Bytes of state in memory; does not grow with the stream."""
        return sum(array.nbytes for array in self._arrays())

    def _check(self, other: object) -> None:
        if type(other) is not type(self) or not isinstance(other, Summary):
            raise SummaryError(f"cannot merge {type(self).__name__} with {type(other).__name__}")
        if self._parameters() != other._parameters():
            raise SummaryError(
                f"cannot merge two {type(self).__name__} of different parameters: "
                f"{self._parameters()} and {other._parameters()}"
            )


class RowSummary(Summary):
    """A summary that counts its finite values and the others by row; one row answers queries."""

    rows: int = 1
    _count: npt.NDArray[np.int64]  # (R,)
    _non_finite: npt.NDArray[np.int64]  # (R, 3) nan, +inf, -inf

    @property
    def count(self) -> int:
        """Number of finite values seen."""
        return self._of_one_row(self._count)

    @property
    def num_nan(self) -> int:
        """Number of NaN values."""
        return self._of_one_row(self._non_finite[:, 0])

    @property
    def num_posinf(self) -> int:
        """Number of values that were +inf."""
        return self._of_one_row(self._non_finite[:, 1])

    @property
    def num_neginf(self) -> int:
        """Number of values that were -inf."""
        return self._of_one_row(self._non_finite[:, 2])

    def _of_one_row(self, numbers: npt.NDArray[np.int64]) -> int:
        need_one_row(self.rows)
        return int(numbers[0])

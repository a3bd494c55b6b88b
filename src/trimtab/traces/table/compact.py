"""Columns and names of many episodes in as few bytes as hold them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from trimtab.traces.table.types import OTHER
from trimtab.typing import Array


def narrow(column: Array) -> Array:
    """Whole numbers in one byte each where that holds them: most counts of an episode are small.

    >>> narrow(np.array([3, -1])).dtype, narrow(np.array([3, 128])).dtype
    (dtype('int8'), dtype('int32'))
    """
    small = not column.size or (column.min() >= -128 and column.max() < 128)
    return column.astype(np.int8 if small else np.int32)


class Widened(Mapping[str, npt.NDArray[np.int64]]):
    """Narrow columns that come out as 64-bit integers, so that no sum or product of theirs overflows.

    >>> Widened({"calls": np.array([100], np.int8)})["calls"] * 2
    array([200])
    """

    def __init__(self, columns: Mapping[str, Array]) -> None:
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> npt.NDArray[np.int64]:
        return self._columns[name].astype(np.int64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class Names(Sequence[str]):
    """Texts end to end in bytes; a list of them takes sixty bytes more for each.

    >>> names = Names.joined(*Names.packed(["a", "", "\\u00e9\\udc80"]))
    >>> list(names), names[-1], len(names), list(names.taken(np.array([2, 0])))
    (['a', '', 'é\\udc80'], 'é\\udc80', 3, ['é\\udc80', 'a'])
    """

    def __init__(self, text: bytes, ends: Array, order: Array | None = None) -> None:
        """`text`: of all; `ends` (N,): where each ends in it; `order`: indices of those meant, in their
        order; None: all."""
        self._text, self._ends, self._order = text, ends, order

    @classmethod
    def joined(cls, text: Array, sizes: Array) -> Names:
        """Of what `packed` made, many of which may have been put end to end."""
        return cls(text.tobytes(), np.cumsum(sizes, dtype=np.int64))

    @staticmethod
    def packed(texts: Sequence[str]) -> tuple[Array, Array]:
        """Bytes of all, and the size of each."""
        coded = [text.encode("utf-8", "surrogatepass") for text in texts]
        sizes = np.array([len(text) for text in coded], np.int64)
        return np.frombuffer(b"".join(coded), np.uint8), narrow(sizes)

    def taken(self, order: Array) -> Names:
        """Return the names at these indices."""
        return Names(self._text, self._ends, order.astype(np.int32))

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        if self._order is not None:
            i = int(self._order[i])
        start = int(self._ends[i - 1]) if i else 0
        return self._text[start : int(self._ends[i])].decode("utf-8", "surrogatepass")

    def __len__(self) -> int:
        return len(self._ends if self._order is None else self._order)


class Codes(dict[str, int]):
    """Indices of texts in the order of their coming; beyond `limit` they share one.

    >>> codes = Codes(1)
    >>> codes.of("a"), codes.of("b"), codes.of("c"), codes.of(None), list(codes)
    (0, 1, 1, -1, ['a', '(other)'])
    """

    def __init__(self, limit: int = 2**62) -> None:
        super().__init__()
        self.limit = limit

    def of(self, text: str | None) -> int:
        """Return the text's index; -1 for None."""
        if text is None:
            return -1
        if text not in self and len(self) >= self.limit:
            text = OTHER
        return self.setdefault(text, len(self))

"""Many summaries as one run of bytes: one pass over all their counts instead of one a summary.

    head length | head: a line a summary, "name US kind US parameters US integers US floats" | integers |
    floats

Integers are packed as `codec.pack_array` packs one array, floats are float64, little endian. Neither
compressed nor checksummed: the store compresses whole rows, which also finds what summaries have in common.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.errors import SummaryError
from trimtab.stats.summaries.base import Summary
from trimtab.stats.summaries.serialization import Payload, pack_array

_UNIT, _LINE = "\x1f", "\x1e"
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Entry:
    """One line of a bundle's head: a summary's name, class, parameters and size."""

    name: str
    kind: bytes
    parameters: tuple[int, ...]
    num_ints: int
    num_floats: int

    @classmethod
    def of_head(cls, head: bytes) -> list[Entry]:
        """Return the entries of a head. SummaryError where it is damaged."""
        entries = []
        try:
            for line in head.decode().split(_LINE) if head else []:
                name, kind, parameters, num_ints, num_floats = line.split(_UNIT)
                numbers = tuple(map(int, parameters.split(","))) if parameters else ()
                entries.append(cls(name, kind.encode(), numbers, int(num_ints), int(num_floats)))
        except (ValueError, UnicodeDecodeError) as error:
            raise SummaryError(f"bundle of summaries has a damaged head: {error}") from error
        return entries

    def new(self, kind: type[Summary] | None) -> Summary:
        """Return an empty summary of the entry. SummaryError where `kind` is another class, or its shape is
        another one."""
        if kind is None or kind.kind != self.kind:
            raise SummaryError(
                f"no class reads a summary of kind {self.kind.decode()!r} named {self.name!r}; update trimtab"
            )
        summary = kind(*self.parameters)
        arrays = summary._arrays()
        whole = sum(a.size for a in arrays if a.dtype.kind != "f")
        if whole != self.num_ints or sum(a.size for a in arrays) - whole != self.num_floats:
            raise SummaryError(f"summary {self.name!r} has another shape than its parameters say")
        return summary


def bundle(summaries: Mapping[str, Summary]) -> bytes:
    """Return the bytes of named summaries, which `unbundle` reads.

    Args:
        summaries: name -> summary.

    Returns:
        Bytes, neither compressed nor checksummed.

    Raises:
        SummaryError: a name with a separator in it.

    Example:
        >>> from trimtab.stats import Moments
        >>> one, two = Moments(), Moments()
        >>> one.update(np.array([1.0, 3.0]))
        >>> back = unbundle(bundle({"a": one, "b": two}), lambda name: Moments)
        >>> back["a"].mean(), back["b"].count
        (2.0, 0)
    """
    lines, ints, floats = [], [np.zeros(0, np.int64)], [np.zeros(0)]
    for name, summary in summaries.items():
        if _UNIT in name or _LINE in name:
            raise SummaryError(f"a summary cannot be named {name!r}: it holds a separator")
        arrays = summary._arrays()
        whole = [a.reshape(-1) for a in arrays if a.dtype.kind != "f"]
        real = [a.reshape(-1) for a in arrays if a.dtype.kind == "f"]
        ints += whole
        floats += real
        sizes = (sum(a.size for a in whole), sum(a.size for a in real))
        parameters = ",".join(map(str, summary._parameters()))
        lines.append(_UNIT.join((name, summary.kind.decode(), parameters, *map(str, sizes))))
    head = _LINE.join(lines).encode()
    body = pack_array(np.concatenate(ints)) + np.concatenate(floats).astype("<f8", copy=False).tobytes()
    return _LENGTH.pack(len(head)) + head + body


def unbundle(
    data: bytes, class_of: Callable[[str], type[Summary] | None], wanted: Collection[str] | None = None
) -> dict[str, Any]:
    """Return the summaries of a bundle, by name.

    Args:
        data: bytes that `bundle` wrote.
        class_of: name -> class of the summary, or None.
        wanted: names to read; default all.

    Returns:
        Name -> summary.

    Raises:
        SummaryError: bytes that are cut short, of another kind or shape, or hold a name without a class.

    Example:
        summaries = unbundle(data, lambda name: LogSketch, wanted=["drift/sketch"])
    """
    head, body = split_head(data)
    entries = Entry.of_head(head)
    payload = Payload(body)
    at, values = payload.sparse(sum(entry.num_ints for entry in entries))
    floats = np.zeros(sum(entry.num_floats for entry in entries))
    payload.fill(floats)
    payload.close()
    summaries_read: dict[str, Any] = {}
    first_int = first_float = 0
    for entry in entries:
        low, high = np.searchsorted(at, (first_int, first_int + entry.num_ints))
        if wanted is None or entry.name in wanted:
            own = floats[first_float : first_float + entry.num_floats]
            summaries_read[entry.name] = _one(
                entry, class_of(entry.name), at[low:high] - first_int, values[low:high], own
            )
        first_int, first_float = first_int + entry.num_ints, first_float + entry.num_floats
    return summaries_read


def split_head(data: bytes) -> tuple[bytes, bytes]:
    """Return the head and the body of a bundle. SummaryError where it is cut short."""
    end = _LENGTH.size + int.from_bytes(data[: _LENGTH.size], "little")
    if len(data) < max(end, _LENGTH.size):
        raise SummaryError("bundle of summaries is cut short")
    return data[_LENGTH.size : end], data[end:]


def _one(
    entry: Entry,
    kind: type[Summary] | None,
    at: npt.NDArray[np.int64],
    values: npt.NDArray[np.int64],
    floats: npt.NDArray[np.float64],
) -> Summary:
    """A summary from its non-zero integers, at places of its own counted from 0, and its floats."""
    summary = entry.new(kind)
    arrays = summary._arrays()
    first_int = first_float = 0
    for array in arrays:
        flat = array.reshape(-1)
        if array.dtype.kind == "f":
            flat[:] = floats[first_float : first_float + flat.size]
            first_float += flat.size
        else:
            low, high = np.searchsorted(at, (first_int, first_int + flat.size))
            flat[:] = 0
            flat[at[low:high] - first_int] = values[low:high]
            first_int += flat.size
    return summary

"""What a measure returns: a number with its key, before slice, window and step are written on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from trimtab.measure.state.slice_state import SliceState


class Value(NamedTuple):
    """`n` is the number of tokens (or sequences, for sequence quantities) the value rests on."""

    key: str
    value: float
    n: int
    low: float = float("nan")
    high: float = float("nan")
    reason: str = ""


Measure = Callable[[SliceState], Iterator[Value]]
"""A measure reads one slice's state and yields what can be computed from it; nothing where its parts are absent."""

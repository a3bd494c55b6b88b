"""Mean entropy of the next-token distribution, a slice."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.types import Value


def entropy(state: SliceState) -> Iterator[Value]:
    """`entropy/mean` in nats."""
    values = state.parts.get("entropy/values")
    if values is not None:
        yield Value("entropy/mean", values.mean(), values.count)

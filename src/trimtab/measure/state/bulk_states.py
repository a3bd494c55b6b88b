"""Packed states of many ranks as the states of one: what `unpack_states` and `merge` would give, in bulk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from trimtab.errors import SummaryError
from trimtab.measure.state.blocks import packed_slices, unpack_states
from trimtab.measure.state.slice_state import SUMMARY_CLASSES, SliceState
from trimtab.measure.state.state_bytes import Parts, read_texts, split_state
from trimtab.stats import merge_bundles


class MergedStates(NamedTuple):
    """States of all ranks together."""

    states: dict[str, SliceState]
    damaged: tuple[int, ...]  # indices of packed states that cannot be read, and are not among them


def merge_packed(packed: Sequence[str | bytes]) -> MergedStates:
    """Return the states of many ranks as those of one stream.

    Integers equal those of one merge after the other, in any order; floating sums are added in another order.
    Exact top-k values are not in the bytes.

    Args:
        packed: what `pack_states` or `compress_states` gave for the same steps, one a rank.

    Returns:
        State of each slice, and which of `packed` cannot be read.

    Example:
        merged = merge_packed([pack_states(states) for states in of_ranks])
        merged.states["post_tool"].n_tokens
    """
    by_slice: dict[str, list[Parts]] = {}
    damaged: list[int] = []
    for index, text in enumerate(packed):
        try:
            parts = {name: split_state(data) for name, data in packed_slices(text).items()}
        except SummaryError:
            damaged.append(index)
            continue
        for name, part in parts.items():
            by_slice.setdefault(name, []).append(part)
    try:
        return MergedStates({name: _merged(parts) for name, parts in by_slice.items()}, tuple(damaged))
    except SummaryError:  # of one rank: the others are not lost with it
        return _one_by_one(packed)


def _merged(parts: Sequence[Parts]) -> SliceState:
    """One slice's state of all ranks."""
    *counts, top, total = zip(*(part.head for part in parts), strict=True)
    head: list[Any] = [*(sum(column) for column in counts), max(top), sum(total)]
    state = SliceState(*head)
    texts = Counter((part.excluded, part.notes) for part in parts)
    first = {(part.excluded, part.notes): part for part in reversed(parts)}
    for key, number in texts.items():
        excluded, notes = read_texts(first[key])
        excluded = {reason: count * number for reason, count in excluded.items()}
        state.absorb(SliceState(excluded=excluded, notes=notes))
    state.summaries = merge_bundles([part.bundle for part in parts], _class_of)
    for part in parts:
        for name, data in part.others:
            one = _class_of(name).from_bytes(data)
            if name in state.summaries:
                state.summaries[name].absorb(one)
            else:
                state.summaries[name] = one
    return state


def _class_of(name: str) -> Any:
    kind = SUMMARY_CLASSES.get(name.rsplit("/", 1)[-1])
    if kind is None:
        raise SummaryError(f"no class reads a summary named {name!r}; update trimtab")
    return kind


def _one_by_one(packed: Sequence[str | bytes]) -> MergedStates:
    """The same, slower, with each rank's bytes read on their own; those of version 1 too."""
    states: dict[str, SliceState] = {}
    damaged: list[int] = []
    for index, text in enumerate(packed):
        try:
            read = unpack_states(text)
        except SummaryError:
            damaged.append(index)
            continue
        for name, state in read.items():
            if name in states:
                states[name].absorb(state)
            else:
                states[name] = state
    return MergedStates(states, tuple(damaged))

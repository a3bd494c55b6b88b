"""States of many ranks in bulk, against reading and merging one after the other."""

from __future__ import annotations

import numpy as np

from tests.measure.policy import cut, rich_columns
from trimtab import token_batch
from trimtab.measure.accumulate import observe
from trimtab.measure.state.blocks import pack_states, unpack_states
from trimtab.measure.state.bulk_states import merge_packed
from trimtab.measure.state.slice_state import SliceState


def packed_states() -> list[str]:
    """Of four ranks: two that left out the same, one that left out less, one that did not."""
    columns, packed = rich_columns(np.random.default_rng(3), 24), []
    for i, excluded in enumerate(({"late": 3, "nan": 1}, {"late": 3, "nan": 1}, {"late": 5}, {})):
        states = observe(token_batch(**cut(columns, slice(6 * i, 6 * i + 6))))
        states["all"].absorb(SliceState(excluded=excluded, notes={"why": "a"} if i < 2 else {}))
        packed.append(pack_states(states))
    return packed


def test_counts_and_what_was_left_out_are_those_of_one_merge_after_the_other() -> None:
    packed, expected = packed_states(), {}
    for text in packed:
        for name, state in unpack_states(text).items():
            if name in expected:
                expected[name].absorb(state)
            else:
                expected[name] = state
    merged = merge_packed(packed)
    assert merged.damaged == ()
    assert set(merged.states) == set(expected)
    for name, state in merged.states.items():
        assert (state.excluded, state.notes) == (expected[name].excluded, expected[name].notes)
        assert state.n_tokens == expected[name].n_tokens
        assert set(state.summaries) == set(expected[name].summaries)
    assert merged.states["all"].excluded["late"] == 11
    assert merged.states["all"].excluded["nan"] == 2


def test_damaged_bytes_are_named_and_the_others_count() -> None:
    packed = packed_states()
    merged = merge_packed([packed[0], packed[1][:40], packed[2]])
    assert merged.damaged == (1,)
    assert (merged.states["all"].excluded["late"], merged.states["all"].excluded["nan"]) == (8, 1)

"""Slice states to one compact text and back, for the run store."""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from trimtab.errors import SummaryError
from trimtab.measure.state.slice_state import Accumulator, SliceState
from trimtab.runs.schema import state_block
from trimtab.safe_files import inflate

_LEVEL = 4  # of zlib: 3 % larger than 6, in two fifths of its time


@dataclass
class StateBlocks:
    """Gathers the states of consecutive steps and hands them over as a row of the run store at the store's
    cadence."""

    every: int
    merged: Accumulator = field(default_factory=Accumulator)
    first: int = -1
    last: int = -1
    finished: list[tuple[int, int, Mapping[str, SliceState]]] | None = None
    """First and last step, and states, of the blocks handed over; None: they are not collected."""

    def add(self, first: int, last: int, states: Mapping[str, SliceState]) -> None:
        """Add the states of steps first..last."""
        self.first = first if self.first < 0 else self.first
        self.last = last
        self.merged.add_all(states)

    def ends_at(self, step: int) -> bool:
        """Is `step` the last of its block?"""
        return (step + 1) % state_block(step, self.every) == 0

    def finish(self) -> list[dict[str, object]]:
        """The row of what is held, if anything, and an empty block."""
        states, first = self.merged.states, self.first
        if states and self.finished is not None:
            self.finished.append((first, self.last, states))
        self.merged, self.first = Accumulator(), -1  # first: a block that cannot be packed is lost alone
        return [{"first": first, "last": self.last, "states": pack_states(states)}] if states else []


def pack_states(states: Mapping[str, SliceState]) -> str:
    """Base64 of the zlib-compressed states, one after the other with their names.

    Slices of the same tokens may share a state object, which is then put into bytes once.
    """
    return base64.b64encode(compress_states(states)).decode("ascii")


def compress_states(states: Mapping[str, SliceState]) -> bytes:
    """Return `pack_states` without base64, for a channel that takes any bytes."""
    body, known = bytearray(), dict[int, bytes]()
    for name, state in sorted(states.items()):
        if id(state) not in known:
            known[id(state)] = state.to_bytes()
        label, data = name.encode(), known[id(state)]
        body += struct.pack("<HI", len(label), len(data)) + label + data
    return zlib.compress(bytes(body), _LEVEL)


def unpack_states(
    text: str | bytes, slices: Collection[str] | None = None, wanted: Collection[str] | None = None
) -> dict[str, SliceState]:
    """Inverse of `pack_states`, or only those slices and summaries of it; SummaryError when the text is
    damaged."""
    return {
        name: SliceState.from_bytes(data, wanted)
        for name, data in packed_slices(text).items()
        if slices is None or name in slices
    }


def packed_slices(text: str | bytes) -> dict[str, bytes]:
    """Return the bytes of each slice's state in what `pack_states` or `compress_states` wrote; SummaryError
    when it is damaged."""
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else text
        body = inflate(data, "a packed state", SummaryError)
    except (zlib.error, binascii.Error, ValueError) as error:
        raise SummaryError(f"not packed states: {error}") from error
    states: dict[str, bytes] = {}
    offset, head = 0, struct.calcsize("<HI")
    while offset < len(body):
        if offset + head > len(body):
            raise SummaryError("not packed states: cut short")
        label, size = struct.unpack_from("<HI", body, offset)
        start = offset + head
        states[body[start : start + label].decode()] = body[start + label : start + label + size]
        offset = start + label + size
    return states

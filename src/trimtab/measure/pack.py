"""Slice states to one compact text and back, for the run store."""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Mapping

from trimtab.errors import SummaryError
from trimtab.measure.state import SliceState

__all__ = ["pack_states", "unpack_states"]


def pack_states(states: Mapping[str, SliceState]) -> str:
    """Base64 of the zlib-compressed states, one after the other with their names."""
    body = bytearray()
    for name, state in sorted(states.items()):
        label, data = name.encode(), state.to_bytes()
        body += struct.pack("<HI", len(label), len(data)) + label + data
    return base64.b64encode(zlib.compress(bytes(body), 6)).decode("ascii")


def unpack_states(text: str) -> dict[str, SliceState]:
    """Inverse of `pack_states`; SummaryError when the text is damaged."""
    try:
        body = zlib.decompress(base64.b64decode(text, validate=True))
    except (zlib.error, binascii.Error, ValueError) as error:
        raise SummaryError(f"not packed states: {error}") from error
    states: dict[str, SliceState] = {}
    offset, head = 0, struct.calcsize("<HI")
    while offset < len(body):
        if offset + head > len(body):
            raise SummaryError("not packed states: cut short")
        label, size = struct.unpack_from("<HI", body, offset)
        start = offset + head
        name = body[start : start + label].decode()
        states[name] = SliceState.from_bytes(body[start + label : start + label + size])
        offset = start + label + size
    return states

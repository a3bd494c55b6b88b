"""Shard: one closed step of one rank, as it goes to the rank that merges."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from trimtab.errors import SummaryError
from trimtab.measure.state.blocks import compress_states
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.steps.series_row import series_row
from trimtab.measure.steps.step_series import StepSeries

Row = dict[str, Any]

_CHECKSUM = 4  # bytes of CRC-32 in front


class Block(NamedTuple):
    """The states of steps `first` to `last`: packed, or as they are in the process that measured them."""

    first: int
    last: int
    states: str | bytes | Mapping[str, SliceState]


@dataclass(frozen=True)
class Shard:
    """What one rank says of one step.

    Shards of a rank are numbered within its session, without a gap. A later session of a rank supersedes the
    earlier ones from its first step on.

    Example:
        >>> shard = Shard(3, 0, 0, 7, {"slices": {}})
        >>> Shard.from_bytes(shard.to_bytes()) == shard
        True
    """

    rank: int
    session: int  # life of the rank's process, from 0
    number: int  # within the session, from 0
    step: int
    row: Row  # the row of `steps`
    series: Row | StepSeries | None = None  # None: the step had no tokens
    tools: tuple[Row, ...] = ()  # rows of tool calls
    blocks: tuple[Block, ...] = ()  # of states that ended with this step

    def to_bytes(self) -> bytes:
        """Return checksummed bytes; `from_bytes` reads them."""
        series = series_row(self.series) if isinstance(self.series, StepSeries) else self.series
        blocks = [(block.first, block.last, _packed(block.states)) for block in self.blocks]
        body = msgspec.msgpack.encode((
            self.rank, self.session, self.number, self.step, self.row, series, list(self.tools), blocks,
        ))  # fmt: skip
        return zlib.crc32(body).to_bytes(_CHECKSUM, "little") + body

    @classmethod
    def from_bytes(cls, data: bytes) -> Shard:
        """Return the shard of some bytes. SummaryError where they are damaged or hold something else."""
        body = data[_CHECKSUM:]
        if zlib.crc32(body) != int.from_bytes(data[:_CHECKSUM], "little") or not body:
            raise SummaryError("a rank's shard is damaged: its checksum differs")
        try:
            rank, session, number, step, row, series, tools, blocks = msgspec.msgpack.decode(body)
            counted = tuple(Block(int(first), int(last), states) for first, last, states in blocks)
            return cls(int(rank), int(session), int(number), int(step), row, series, tuple(tools), counted)
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            raise SummaryError(f"not the bytes of a rank's shard: {error}") from error


def _packed(states: str | bytes | Mapping[str, SliceState]) -> str | bytes:
    return states if isinstance(states, (str, bytes)) else compress_states(states)

"""GlooSource: shards through a gloo group of our own, and through the folder before and after it stands.

Every rank writes its files in any case. The leading rank reads them until the group stands, and again when it
is given up, from the first shard that did not arrive. Each shard says how far its rank's files went, so the
files are read on from there: nothing is counted twice, nothing is lost, and no history is read again.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from trimtab.distributed.folder_source import FolderSource
from trimtab.distributed.gloo_group import GlooGroup, Membership
from trimtab.distributed.shard import Shard
from trimtab.errors import SummaryError
from trimtab.runs.schema import FIRST_WORKER

log = logging.getLogger("trimtab")

Position = Mapping[str, tuple[int, int]]
"""Kind of file -> rows and bytes of it that are written."""

MAX_ARRIVED = 4_096
"""Shards that the leading rank keeps at most between two polls (default, not calibrated)."""
_WORKERS = range(FIRST_WORKER, sys.maxsize)


class Ports(NamedTuple):
    """What the source has from the run of its rank."""

    position: Callable[[], Position]  # of this rank's files
    report: Callable[[str], None]  # records, once, that the group was given up


class _Arrived(NamedTuple):
    shard: Shard
    position: Position


class GlooSource:
    """Shards gathered by a thread within a deadline; where that fails, those of the folder.

    Workers outside the trainer's group are read from the folder all along. A rank that does not lead reads
    the leading one's files, which shows that it lives.

    Example:
        source = GlooSource(store, Membership(0, 4, 0, 5.0), FolderSource(folder, own=0), ports)
        for shard in source.poll(): merger.add(shard)
    """

    def __init__(self, store: Any, member: Membership, folder: FolderSource, ports: Ports) -> None:
        self.member, self.folder, self.ports = member, folder, ports
        self.leads = member.rank == member.leader
        self.num_gathered = 0  # shards that came through the group
        self._arrived: deque[_Arrived] = deque()
        self._last: dict[int, int] = {}  # rank -> number of the last shard that was yielded
        self._reached: dict[int, _Arrived] = {}  # rank -> the last one that came through the group
        self._is_past = False  # the group is over, and the folder has taken its place
        self.group = GlooGroup(store, member, self._receive)

    def put(self, shard: Shard) -> None:
        """Hand this rank's shard, and how far its files go, to the thread."""
        if not self.leads and not self.group.is_over:
            self.group.send(msgspec.msgpack.encode((shard.to_bytes(), dict(self.ports.position()))))

    def poll(self) -> Iterator[Shard]:
        """Yield what arrived since the last call, each shard once, those of a rank in their order."""
        if self.leads and not self._is_past:
            over = self.group.is_over  # before the rest is taken, which is complete then
            yield from self._take()
            self._choose_files(over or self.group.is_over)
        for shard in self.folder.poll():
            self._last[shard.rank] = shard.number
            yield shard

    def is_current(self) -> bool:
        """Whether the last poll could see what the others wrote."""
        return not self.failure()

    def failure(self) -> str:
        """Return why nothing arrives any more, by neither way; empty while something may."""
        return self.folder.failure() if self._is_past or not self.leads else ""

    def close(self) -> None:
        """Leave the group."""
        self.group.close()
        self.folder.close()

    def _take(self) -> Iterator[Shard]:
        """Yield what came through the group, up to a gap."""
        while self._arrived:
            one = self._arrived.popleft()
            expected = self._last.get(one.shard.rank, -1) + 1
            if one.shard.number < expected:
                continue  # the folder was faster, before the group stood
            if one.shard.number > expected:
                self.group.give_up(f"a step of rank {one.shard.rank} did not arrive")
                self._arrived.clear()
                return
            self._last[one.shard.rank] = one.shard.number
            self._reached[one.shard.rank] = one
            self.num_gathered += 1
            yield one.shard

    def _choose_files(self, over: bool) -> None:
        """Read the files of the trainer's ranks before the group stands, and again when it is over."""
        if not over:
            self.folder.only = _WORKERS if self.group.is_ready else None
            return
        self._is_past, self.folder.only = True, None
        for one in self._reached.values():
            self.folder.seek(one.shard, one.position)
        self._reached, self._arrived = {}, deque()
        if self.group.why:
            text = f"the gloo group was given up, steps go on through the folder: {self.group.why}"
            log.warning("trimtab: %s", text)
            self.ports.report(text)

    def _receive(self, messages: list[bytes]) -> None:
        for message in messages:
            if self.group.is_over:
                return
            data, position = msgspec.msgpack.decode(message)
            try:
                shard = Shard.from_bytes(data)
            except SummaryError as error:
                self.group.give_up(str(error))
                return
            files = {kind: (rows, size) for kind, (rows, size) in position.items()}
            self._arrived.append(_Arrived(shard, files))
        if len(self._arrived) > MAX_ARRIVED:
            self.group.give_up("the leading rank takes too few of the steps that arrive")

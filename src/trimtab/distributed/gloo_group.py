"""A gloo group of our own, used by one thread alone, with a deadline.

The group stands beside those of the trainer: it has a prefix of its own in the store, and no other group is
touched. A round is one exchange of lengths and, where a rank has something, one gather to the leading rank.
Threads do rounds all the time, so a rank that misses one for the deadline has stopped, whatever its step.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from trimtab.errors import RunError

PREFIX = "trimtab/gloo"
MAX_WAITING = 64
"""Messages of a rank that wait at most; the oldest is dropped (default, not calibrated)."""
_ROUND_S = 0.2  # from one round to the next
_LOOK_S = 0.2  # between two looks at whether all ranks are there

Receive = Callable[[list[bytes]], None]


@dataclass(frozen=True)
class Membership:
    """Who takes part."""

    rank: int
    ranks: int
    leader: int
    deadline_s: float  # of one collective; then the group is given up


class GlooGroup:
    """Gathers messages of all ranks to the leading one, in a daemon thread. No caller waits.

    `receive` is called in the thread, on the leading rank, with the messages of a round. A group is used
    until one rank misses the deadline or leaves; it is not made again.

    Example:
        group = GlooGroup(store, Membership(rank=1, ranks=4, leader=0, deadline_s=5.0), receive)
        group.send(data)
    """

    def __init__(self, store: Any, member: Membership, receive: Receive) -> None:
        self.member = member
        self.is_ready = False  # the group stands
        self.is_over = False  # nothing is sent or received any more
        self.why = ""  # the group was given up; empty where it ended because a rank left
        self._receive = receive
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(store,), name="trimtab-gloo", daemon=True)
        self._thread.start()

    def send(self, message: bytes) -> None:
        """Have a message gathered in the next round."""
        if not self.is_over:
            self._waiting.append(message)

    def give_up(self, why: str) -> None:
        """Use the group no longer; the other ranks notice it at their deadline."""
        self.why = self.why or why
        self.is_over = True

    def close(self) -> None:
        """Leave after one more round. Waits for it, and where a rank has stopped up to its deadline."""
        self._stop.set()
        self._thread.join(2 * self.member.deadline_s + 1.0)

    def _run(self, store: Any) -> None:
        group = None
        try:
            group = self._join(store)
            self.is_ready = group is not None
            while group is not None and not self.is_over:
                start = time.monotonic()
                if self._round(group):
                    break
                self._stop.wait(max(0.0, start + _ROUND_S - time.monotonic()))
        except (RuntimeError, ValueError, OSError, msgspec.DecodeError) as error:
            self.why = self.why or (str(error).splitlines() or [type(error).__name__])[0][:200]
        finally:
            self.is_over = True
            self._waiting.clear()
            del group  # its threads end here, and not as the process exits

    def _join(self, store: Any) -> Any:
        """Return the group once all ranks are there; None where this rank leaves before."""
        import torch.distributed as dist

        mine = self.member
        own = store.clone()  # a connection of our own
        own.set_timeout(timedelta(seconds=mine.deadline_s))
        life = int(own.add(f"{PREFIX}/{mine.rank}/lives", 1))  # a rank that came back alone meets nobody
        own.set(f"{PREFIX}/{life}/there/{mine.rank}", b"1")
        keys = [f"{PREFIX}/{life}/there/{rank}" for rank in range(mine.ranks)]
        while not own.check(keys):
            if self.is_over or self._stop.wait(_LOOK_S):
                return None
        prefixed = dist.PrefixStore(f"{PREFIX}/{life}/group", own)  # type: ignore[attr-defined]
        return dist.ProcessGroupGloo(
            prefixed, mine.rank, mine.ranks, timeout=timedelta(seconds=mine.deadline_s)
        )

    def _round(self, group: Any) -> bool:
        """Gather what waits. Returns whether a rank left, which ends the group for all."""
        import torch

        mine = self.member
        leaving = self._stop.is_set()
        some = [self._waiting.popleft() for _ in range(len(self._waiting))]
        data = msgspec.msgpack.encode(some) if some else b""
        heads = [torch.zeros(2, dtype=torch.int64) for _ in range(mine.ranks)]
        group.allgather([heads], [torch.tensor([len(data), int(leaving)])]).wait()
        sizes = [int(head[0]) for head in heads]
        if max(sizes) > 0:
            self._gather(group, data, sizes)
        return any(int(head[1]) for head in heads)

    def _gather(self, group: Any, data: bytes, sizes: list[int]) -> None:
        import torch
        import torch.distributed as dist

        mine = self.member
        width = max(sizes)
        padded = torch.frombuffer(bytearray(data.ljust(width, b"\0")), dtype=torch.uint8)
        leads = mine.rank == mine.leader
        rows = [torch.empty(width, dtype=torch.uint8) for _ in sizes] if leads else []
        options = dist.GatherOptions()
        options.rootRank = mine.leader
        group.gather([rows] if leads else [], [padded], options).wait()
        for row, size in zip(rows, sizes, strict=False):
            if size:
                self._receive(msgspec.msgpack.decode(row[:size].numpy().tobytes(), type=list[bytes]))


def default_store() -> Any:
    """Return the store that the job's ranks met at. RunError where there is none."""
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _get_default_store

    if not (dist.is_available() and dist.is_initialized()):
        raise RunError(
            "merge: torch.distributed is not initialised; open the run after init_process_group, or give "
            "MergeOptions(way='gloo', store=TCPStore(...))"
        )
    return _get_default_store()

"""Shards and decisions through a store of torch.distributed, such as its TCPStore.

Every call of the store is made by a thread of its own, since a store whose server hangs answers nothing for
minutes. What the thread cannot get rid of is dropped, oldest first, and counted.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from trimtab.distributed.decisions import Decision
from trimtab.distributed.shard import Shard
from trimtab.errors import SummaryError
from trimtab.runs.schema import FIRST_WORKER

log = logging.getLogger("trimtab")

PREFIX = "trimtab"
MAX_KEPT = 64
"""Shards of a rank that the store keeps at most while nobody takes them (default, not calibrated)."""
_TIMEOUT_S = 2.0  # of one call of the store
_RETRY_S = 2.0  # pause after a failure, doubled after each further one; torch prints a trace at each
_MAX_RETRY_S = 120.0
_QUIET_S = 10.0  # a call that takes longer is a failure that is said

Call = Callable[[Any], None]


class StoreThread:
    """Makes calls of a store in order, in a daemon thread. No caller waits."""

    def __init__(self, store: Any) -> None:
        self._store = store.clone()  # a connection of our own: the trainer's is not held up
        self._store.set_timeout(timedelta(seconds=_TIMEOUT_S))
        self._calls: deque[Call] = deque(maxlen=MAX_KEPT)
        self._wake, self._stop = threading.Event(), threading.Event()
        self._failure, self._since = "", 0.0  # since when the call under way has been
        self._pause_s, self._is_reported = _RETRY_S, False
        self.num_dropped = 0
        self._thread = threading.Thread(target=self._run, name="trimtab-store", daemon=True)
        self._thread.start()

    def do(self, call: Call) -> None:
        """Have a call made; the oldest waiting one is dropped where too many wait."""
        self.num_dropped += len(self._calls) == MAX_KEPT
        self._calls.append(call)
        self._wake.set()

    def failure(self) -> str:
        """Return why the store does not answer; empty while it does."""
        since = self._since
        if since and time.monotonic() - since > _QUIET_S:
            text = f"the store has not answered for {time.monotonic() - since:.0f} s"
            self._report(text)
            return text
        return self._failure

    def close(self, wait_s: float = 1.0) -> None:
        """Give what waits a moment to go out, then stop."""
        deadline = time.monotonic() + wait_s
        while (self._calls or self._since) and not self._failure and time.monotonic() < deadline:
            time.sleep(0.01)
        self._stop.set()
        self._wake.set()
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(1.0)
            self._wake.clear()
            while self._calls and not self._stop.is_set():
                self._since = time.monotonic()
                try:
                    self._calls[0](self._store)
                    self._calls.popleft()
                    self._recover()
                except (RuntimeError, ValueError, OSError, IndexError) as error:
                    text = (str(error).splitlines() or [type(error).__name__])[0][:200]
                    self._failure = f"the store failed: {text}"
                    self._report(self._failure)
                    self._since = 0.0
                    self._stop.wait(self._pause_s)
                    self._pause_s = min(2 * self._pause_s, _MAX_RETRY_S)
                finally:
                    self._since = 0.0

    def _report(self, text: str) -> None:
        """Say a failure once, until the store answers again."""
        if not self._is_reported:
            self._is_reported = True
            what = "other ranks are not judged, and none is called silent"
            log.warning("trimtab: %s. Until it answers, %s", text, what)

    def _recover(self) -> None:
        if self._is_reported:
            log.warning("trimtab: the store answers again")
        self._failure, self._pause_s, self._is_reported = "", _RETRY_S, False


class StoreSource:
    """Shards under numbered keys of a store, deleted once they are taken.

    Example:
        source = StoreSource(StoreThread(store), own=3, leader=0, ranks=4)
        source.put(shard)
    """

    def __init__(self, thread: StoreThread, own: int, leader: int, ranks: int) -> None:
        self.thread, self.own, self.leader = thread, own, leader
        self.leads = own == leader
        self.num_damaged = 0
        self._ranks = [rank for rank in range(ranks) if rank != own]
        self._next: dict[int, int] = {}  # rank -> number of the key that comes next
        self._arrived: deque[Shard] = deque()
        self._requested = False
        self._num_fetches, self._num_seen = 0, 0  # that succeeded, and those before the last poll
        self._is_current = False
        self._number: int | None = None  # of this rank's next key
        if self.leads:
            thread.do(self._begin)

    def put(self, shard: Shard) -> None:
        """Hand over this rank's shard; the leading rank only shows that it lives."""
        if self.leads:
            beat = json.dumps([shard.session, shard.number, shard.step])
            self.thread.do(lambda store: store.set(f"{PREFIX}/beat", beat))
            return
        data = shard.to_bytes()
        self.thread.do(lambda store: self._send(store, data))

    def poll(self) -> Iterator[Shard]:
        """Yield what arrived, and have the thread ask for more."""
        if not self._requested:
            self._requested = True
            self.thread.do(self._fetch if self.leads else self._fetch_beat)
        num_fetches = self._num_fetches
        self._is_current, self._num_seen = num_fetches > self._num_seen, num_fetches
        while self._arrived:
            yield self._arrived.popleft()

    def is_current(self) -> bool:
        """Whether the store was read between the last two polls."""
        return self._is_current

    def failure(self) -> str:
        """Return why nothing arrives any more; empty while all is well."""
        return self.thread.failure()

    def close(self) -> None:
        """Stop the thread."""
        self.thread.close()

    def _begin(self, store: Any) -> None:
        """What is there before this session of the leading rank may be of an earlier life."""
        for rank in self._ranks:
            self._next[rank] = int(store.add(_count(rank), 0))

    def _send(self, store: Any, data: bytes) -> None:
        if self._number is None:
            self._number = int(store.add(_count(self.own), 0))
            if self.own >= FIRST_WORKER:
                store.set(f"{PREFIX}/worker/{int(store.add(f'{PREFIX}/workers', 1)) - 1}", str(self.own))
        store.set(_key(self.own, self._number), data)
        store.add(_count(self.own), 1)
        store.delete_key(_key(self.own, self._number - MAX_KEPT))
        self._number += 1

    def _fetch(self, store: Any) -> None:
        self._requested = False
        num_workers = int(store.add(f"{PREFIX}/workers", 0))
        known = sum(rank >= FIRST_WORKER for rank in self._ranks)
        self._ranks += [int(store.get(f"{PREFIX}/worker/{i}")) for i in range(known, num_workers)]
        for rank in self._ranks:
            number, total = self._next.setdefault(rank, 0), int(store.add(_count(rank), 0))
            for at in range(max(number, total - MAX_KEPT), total):
                key = _key(rank, at)
                if store.check([key]):
                    self._take(bytes(store.get(key)))
                    store.delete_key(key)
                self._next[rank] = at + 1
        self._num_fetches += 1

    def _fetch_beat(self, store: Any) -> None:
        self._requested = False
        if store.check([f"{PREFIX}/beat"]):
            session, number, step = json.loads(bytes(store.get(f"{PREFIX}/beat")))
            self._arrived.append(Shard(self.leader, session, number, step, {}))
        self._num_fetches += 1

    def _take(self, data: bytes) -> None:
        try:
            self._arrived.append(Shard.from_bytes(data))
        except SummaryError:
            self.num_damaged += 1


class StoreDecisions:
    """Decisions under numbered keys of a store, by session of the leading rank."""

    def __init__(self, thread: StoreThread, session: int, *, leads: bool) -> None:
        self.thread = thread
        self._session, self._next = session if leads else -1, 0
        self._arrived: deque[Decision] = deque()
        self._requested = False
        if leads:
            thread.do(lambda store: store.set(f"{PREFIX}/leader", str(session)))

    def write(self, decision: Decision) -> None:
        """Publish a decision."""
        base, row = f"{PREFIX}/decision/{self._session}", json.dumps(decision.row())

        def send(store: Any) -> None:
            store.set(f"{base}/{decision.number}", row)
            store.add(f"{base}/count", 1)

        self.thread.do(send)

    def poll(self) -> list[Decision]:
        """Return what arrived, and have the thread ask for more."""
        if not self._requested:
            self._requested = True
            self.thread.do(self._fetch)
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def close(self) -> None:
        """The source stops the thread."""

    def _fetch(self, store: Any) -> None:
        self._requested = False
        if not store.check([f"{PREFIX}/leader"]):
            return
        session = int(store.get(f"{PREFIX}/leader"))
        if session != self._session:
            self._session, self._next = session, 0
        base = f"{PREFIX}/decision/{session}"
        for number in range(self._next, int(store.add(f"{base}/count", 0))):
            self._arrived.append(Decision.of_row(json.loads(bytes(store.get(f"{base}/{number}")))))
            self._next = number + 1


def _key(rank: int, number: int) -> str:
    return f"{PREFIX}/shard/{rank}/{number}"


def _count(rank: int) -> str:
    return f"{PREFIX}/count/{rank}"

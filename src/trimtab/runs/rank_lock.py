"""A lock for each rank of a run folder, kept while a process writes as that rank.

The lock is POSIX's (`fcntl.lockf`): it ends with the process, however that ends, and forked workers do not
inherit it. Within one process a rank may be opened again, as a notebook does; the last writer counts. On a
file system without locks, and on Windows, every process is let in.
"""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_REFUSED = (errno.EACCES, errno.EAGAIN)


@dataclass
class _Shared:
    file: int
    num_writers: int = 0


_locks: dict[tuple[int, str], _Shared] = {}


class RankLock:
    """The lock of one rank, on the file `.lock.r<rank>`. `owner` names the other process where `acquire` is
    refused."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.path, self.rank = folder / f".lock.r{rank}", rank
        self.owner = ""
        self._key = (os.getpid(), str(self.path.resolve()))

    def acquire(self) -> bool:
        """Take the lock; False where another live process has it."""
        shared = _locks.get(self._key)
        if shared is None:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                if fcntl is not None:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in _REFUSED:
                    self.owner = os.read(file, 200).decode("ascii", "replace") or "another process"
                    os.close(file)
                    return False
            shared = _locks[self._key] = _Shared(file)
            self._sign(file)
        shared.num_writers += 1
        return True

    def release(self) -> None:
        """Give the lock back; it is free when the last writer of this process has done so."""
        shared = _locks.get(self._key)
        if shared is None or self._key[0] != os.getpid():
            return
        shared.num_writers -= 1
        if shared.num_writers == 0:
            del _locks[self._key]
            os.close(shared.file)

    def _sign(self, file: int) -> None:
        """Say in the file who has the lock; a full disk does not matter."""
        try:
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}".encode("ascii", "replace"), 0)
        except OSError:
            self.owner = ""

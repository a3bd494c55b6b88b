"""A path at which DuckDB reads a shard: it takes no ranges of files. A file in memory where the system has them, else a pipe."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from trimtab.errors import TraceError
from trimtab.traces.columnar.shards import Shard

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


_PIPE_BYTES, _PIECE = 2**20, 2**20


class MemoryFile:
    """A file of no folder, for one shard after the other: its pages are asked of the system once."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.memfd_create("trimtab-shard"), "wb", buffering=0)
        self.path = f"/dev/fd/{self._file.fileno()}"

    def hold(self, shard: Shard) -> None:
        """Put the shard's bytes in place of what was there. TraceError where they cannot be read."""
        place = self._file.fileno()
        try:
            self._file.seek(0)
            size = _send(place, shard) if shard.data is None else _write(place, shard.data)
            self._file.truncate(size)
        except OSError as error:
            raise TraceError(f"{shard.path} cannot be read: {error.strerror or error}") from error


@contextlib.contextmanager
def through_pipe(shard: Shard) -> Iterator[str]:
    """A pipe that a thread fills; read it once. TraceError where the file cannot be read."""
    failures: list[OSError] = []
    read, write = os.pipe()
    with contextlib.suppress(AttributeError, OSError):
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    thread = threading.Thread(target=_fill, args=(write, shard, failures), daemon=True)
    thread.start()
    try:
        yield f"/dev/fd/{read}"
    finally:
        os.close(read)
        thread.join()
    if failures:
        raise TraceError(f"{shard.path} cannot be read: {failures[0].strerror or failures[0]}")


def _fill(write: int, shard: Shard, failures: list[OSError]) -> None:
    """All of it, or until the reader has gone."""
    try:
        if shard.data is None:
            _send(write, shard)
        else:
            _write(write, shard.data)
    except BrokenPipeError:
        pass
    except OSError as error:
        failures.append(error)
    finally:
        os.close(write)


def _send(write: int, shard: Shard) -> int:
    """Bytes sent; fewer than the shard has where the file was cut short meanwhile."""
    at = shard.start
    with open(shard.path, "rb") as file:
        while at < shard.end:
            try:
                sent = os.sendfile(write, file.fileno(), at, shard.end - at)
            except BrokenPipeError:
                raise
            except (AttributeError, OSError):  # not every system sends files to pipes
                file.seek(at)
                sent = _write(write, file.read(min(_PIECE, shard.end - at)))
            if not sent:
                break
            at += sent
    return at - shard.start


def _write(write: int, data: bytes) -> int:
    view, at = memoryview(data), 0
    while at < len(data):
        at += os.write(write, view[at : at + _PIECE])
    return at

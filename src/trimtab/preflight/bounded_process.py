"""A command in a process group of its own, with a limit on its time: none of its processes outlives it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_KEPT_BYTES = 65_536
_GRACE_S = 3.0
"""Seconds between asking a group to end and killing it."""
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Group)\b(?::.*)?$")
_MAX_LINE = 300


@dataclass(frozen=True)
class Ending:
    """How a command ended."""

    code: int  # its exit code; negative: the number of the signal that ended it
    seconds: float
    timed_out: bool = False
    output: str = ""  # the end of what it printed, both streams together

    @property
    def last_line(self) -> str:
        """The exception of the last traceback, else the last line that is not blank; at most 300 characters.

        >>> Ending(1, 0.1, output="Traceback (most recent call last):\\nValueError: no\\nbye\\n").last_line
        'ValueError: no'
        """
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        starts = [i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call")]
        after = lines[starts[-1] + 1 :] if starts else []
        raised = [line for line in after if _RAISED.match(line)]
        return (raised or lines or [""])[-1 if not raised else 0][:_MAX_LINE]


def run_bounded(
    command: Sequence[str],
    *,
    folder: Path,
    limit_s: float | None,
    env: Mapping[str, str] | None = None,
    text: str = "",
    echo: Callable[[str], None] | None = None,
) -> Ending:
    """Run a command to its end.

    Args:
        command: words; the first is a program.
        folder: where it runs.
        limit_s: seconds, after which its process group is ended; None: no limit.
        env: its environment.
        text: what it reads from its standard input.
        echo: takes what it prints, both streams together, as it comes.

    Returns:
        How it ended. Whatever is left of its group is ended too, also when this call is interrupted.

    Raises:
        OSError: no such program or folder.
    """
    start = time.monotonic()
    process = subprocess.Popen(
        list(command), cwd=folder, env=None if env is None else dict(env), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    tail: deque[bytes] = deque()
    threads = [
        threading.Thread(target=_collect, args=(process.stdout, tail, echo), daemon=True),
        threading.Thread(target=_feed, args=(process.stdin, text.encode()), daemon=True),
    ]
    for thread in threads:
        thread.start()
    timed_out = False
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        _end_group(process)
    for thread in threads:
        thread.join(_GRACE_S)  # a process that left the group may hold the pipe open
    printed = b"".join(tuple(tail)).decode(errors="replace")
    return Ending(process.returncode, time.monotonic() - start, timed_out, printed)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the process group: ask, wait a little for its leader, kill."""
    try:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    finally:  # also after a second Ctrl-C
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _collect(stream: IO[bytes] | None, tail: deque[bytes], echo: Callable[[str], None] | None) -> None:
    """Read to the end and keep the last bytes, so that no output fills the memory or a pipe."""
    assert stream is not None
    size = 0
    with suppress(OSError, ValueError):
        while piece := os.read(stream.fileno(), 8192):
            tail.append(piece)
            if echo is not None:
                echo(piece.decode(errors="replace"))
            size += len(piece)
            while size - len(tail[0]) > _KEPT_BYTES:
                size -= len(tail.popleft())


def _feed(stream: IO[bytes] | None, data: bytes) -> None:
    assert stream is not None
    with suppress(OSError, ValueError):
        stream.write(data)
    with suppress(OSError, ValueError):
        stream.close()

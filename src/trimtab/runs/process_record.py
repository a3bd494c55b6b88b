"""The process that wrote a session of a run: which one it was, whether it still lives, and the signal that
ended it.

`process.r<rank>.s<session>.txt` begins with one line of JSON. `faulthandler` appends the stack when SIGTERM
arrives, from C and before the process dies, so that no handler of Python's delays the signal.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

Json = dict[str, Any]
_noted: list[TextIO] = []
"""The file to which SIGTERM is noted, at most one."""

_NAME = re.compile(r"process\.r(\d+)\.s(\d+)\.txt")
_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<name>.*)$', re.MULTILINE)


def process_path(folder: Path, rank: int, session: int) -> Path:
    """Return the path of a session's process record."""
    return folder / f"process.r{rank}.s{session}.txt"


def open_process_record(path: Path, about: Mapping[str, Any] | None = None) -> TextIO | None:
    """Write this process down and have SIGTERM noted there; None where the file cannot be written.

    `about`: what else is known of it, as its code and its versions. The latest call of a process counts, and
    only one made in the main thread is notified of signals.
    """
    try:
        file = path.open("w", encoding="utf-8")
        head = {"pid": os.getpid(), "host": socket.gethostname(), "started": _start_of(os.getpid())}
        file.write(json.dumps(head | {"about": dict(about or {})}) + "\n")
        file.flush()
    except OSError:
        return None
    if hasattr(faulthandler, "register") and threading.current_thread() is threading.main_thread():
        with contextlib.suppress(RuntimeError, ValueError):
            faulthandler.register(signal.SIGTERM, file=file, all_threads=False, chain=True)
            _noted[:] = [file]
    return file


def close_process_record(file: TextIO) -> None:
    """Close the file; where signals are noted there, note them no more."""
    if file in _noted:
        faulthandler.unregister(signal.SIGTERM)
        _noted.clear()
    file.close()


def read_process_records(folder: Path, names: Iterable[str]) -> dict[tuple[int, int], Json]:
    """Return the process records among the files `names` of a run folder, by rank and session."""
    matches = filter(None, map(_NAME.fullmatch, names))
    return {(int(m[1]), int(m[2])): read_process_record(folder / m[0]) for m in matches}


def read_process_record(path: Path) -> Json:
    """Return `pid`, `host`, `about`, `alive` (None: not known) and `signal_at` (empty: none came); {} without
    a record."""
    try:
        head, _, rest = path.read_text(encoding="utf-8", errors="replace").partition("\n")
        record = json.loads(head)
        pid, host, started = int(record["pid"]), str(record["host"]), record["started"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    alive = None
    if host == socket.gethostname() and Path("/proc/self/stat").exists():
        alive = _start_of(pid) is not None and _start_of(pid) == started
    frame = _FRAME.search(rest)
    where = f"{Path(frame['file']).name}:{frame['line']} in {frame['name']}" if frame else rest.strip()[:80]
    about = record.get("about")
    return {
        "pid": pid, "host": host, "alive": alive, "signal_at": where,
        "about": about if isinstance(about, dict) else {},
    }  # fmt: skip


def _start_of(pid: int) -> str | None:
    """Return the start time of a living process, which tells it from a later one of the same number."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]

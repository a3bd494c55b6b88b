"""One stable state on disk: a folder that is whole or is not there.

    <step>-<serial>/trainer/...     what `Controls.save` wrote
    <step>-<serial>/guard.json      state of the guard and of the detectors
    <step>-<serial>/manifest.json   written last: step, verdict, size and checksum of each file

A state is written under a name of its own that begins with a dot, synchronised with the disk, and renamed. A
process that is killed leaves a folder with a dot, and the next one clears it away.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 1
MANIFEST, TRAINER, GUARD, SUSPECT = "manifest.json", "trainer", "guard.json", "suspect.json"
STABLE = "stable"
"""The verdict under which a state is offered; a guard's other words are "unsettled" and "incident"."""
_BLOCK = 2**20


@dataclass(frozen=True)
class StoredState:
    """A whole state. `num_bytes` counts all its files."""

    folder: Path
    step: int
    verdict: str  # the run's word when it was written
    serial: int  # counts the states of a ring, so that one step may be written twice
    files: Mapping[str, tuple[int, int]]  # path inside -> bytes, checksum

    @property
    def num_bytes(self) -> int:
        """Size of all files, less the manifest."""
        return sum(size for size, _ in self.files.values())

    @property
    def trainer(self) -> Path:
        """The folder for `Controls.restore`."""
        return self.folder / TRAINER

    def guard(self) -> dict[str, Any]:
        """Return what the guard put away with the state."""
        stored: dict[str, Any] = json.loads((self.folder / GUARD).read_text(encoding="utf-8"))
        return stored

    def stamp(self) -> tuple[tuple[int, int], ...] | None:
        """Return size and time of change of each file; None where one is missing or has another size."""
        stamps = []
        for name, (size, _) in self.files.items():
            try:
                status = (self.folder / name).stat()
            except OSError:
                return None
            if status.st_size != size:
                return None
            stamps.append((status.st_size, status.st_mtime_ns))
        return tuple(stamps)

    def intact(self) -> bool:
        """Is every file there, with the content it was written with? Reads all of them."""
        try:
            return self.stamp() is not None and all(
                checksum(self.folder / name) == number for name, (_, number) in self.files.items()
            )
        except OSError:
            return False


def write_state(
    ring: Path, name: tuple[int, int], verdict: str, save: Callable[[Path], None], guard: Mapping[str, Any]
) -> StoredState:
    """Write a state of `name` (step, serial) into `ring`: whole, or not at all.

    `save` fills the trainer's folder. Raises what `save` raises, and OSError where the disk is full.
    """
    step, serial = name
    temporary = ring / f".writing-{step}-{serial}"
    remove_state(temporary)
    try:
        (temporary / TRAINER).mkdir(parents=True)
        save(temporary / TRAINER)
        (temporary / GUARD).write_text(json.dumps(dict(guard)), encoding="utf-8")
        paths = sorted(path for path in temporary.rglob("*") if path.is_file())
        for path in paths:
            _synchronise(path)
        files = {p.relative_to(temporary).as_posix(): (p.stat().st_size, checksum(p)) for p in paths}
        record = {"format": FORMAT, "step": step, "serial": serial, "verdict": verdict, "files": files}
        manifest = temporary / MANIFEST
        manifest.write_text(json.dumps(record), encoding="utf-8")
        _synchronise(manifest)
        for folder in (*(p for p in temporary.rglob("*") if p.is_dir()), temporary):
            _synchronise(folder)
        target = ring / f"{step}-{serial}"
        temporary.rename(target)
        _synchronise(ring)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return StoredState(target, step, verdict, serial, files)


def read_state(folder: Path) -> StoredState | None:
    """Return the state in a folder; None where it is not whole. Sizes are compared, checksums are not."""
    try:
        record = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = {str(name): (int(size), int(number)) for name, (size, number) in record["files"].items()}
        if record["format"] != FORMAT:
            return None
        state = StoredState(folder, int(record["step"]), str(record["verdict"]), int(record["serial"]), files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return None if state.stamp() is None else state


def stable_before(ring: Path, step: int) -> StoredState | None:
    """Return the newest state of a ring from before a step that a guard would offer; nothing is changed.

    Sizes are compared, checksums are not. None without a ring, or without such a state.
    """
    try:
        folders = sorted(entry for entry in ring.iterdir() if entry.is_dir() and entry.name[0] != ".")
    except OSError:
        return None
    doubted = read_suspect(ring / SUSPECT)
    states = [state for state in map(read_state, folders) if state is not None and state.step < step]
    fine = [
        state for state in states
        if state.verdict == STABLE and not any(
            since <= state.step and (until is None or state.step <= until) for since, until in doubted
        )
    ]  # fmt: skip
    return max(fine, key=lambda state: (state.step, state.serial), default=None)


def read_suspect(path: Path) -> list[tuple[int, int | None]]:
    """Return the spans of steps whose states are not offered; none where the file cannot be read."""
    try:
        return [
            (int(since), None if until is None else int(until))
            for since, until in json.loads(path.read_text())
        ]
    except (OSError, ValueError, TypeError):
        return []


def remove_state(folder: Path) -> None:
    """Delete a state. It is renamed first, so that a process killed meanwhile leaves no half of it."""
    if not folder.exists():
        return
    doomed = folder
    if not folder.name.startswith("."):
        doomed = folder.with_name(f".dropped-{folder.name}")
        shutil.rmtree(doomed, ignore_errors=True)
        folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def checksum(path: Path) -> int:
    """Return a checksum of a file: CRC-32 over the sums of its blocks, at the speed of memory.

    A block is 1 MiB and its sum is of 64-bit words, modulo 2**64. A changed, cut or zeroed block changes it,
    and so does another order of blocks. A plain CRC-32 runs at 1 GB/s here and would be the larger part of a
    restore.
    """
    number, buffer = 0, bytearray(_BLOCK)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(view):
            padded = -(-size // 8) * 8
            buffer[size:padded] = bytes(padded - size)
            total = int(np.frombuffer(view[:padded], np.uint64).sum(dtype=np.uint64))
            number = zlib.crc32(total.to_bytes(8, "little") + size.to_bytes(8, "little"), number)
    return number


def _synchronise(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

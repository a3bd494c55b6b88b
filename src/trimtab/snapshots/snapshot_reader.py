"""Snapshots of a run folder, finished, killed or still being written."""

from __future__ import annotations

import os
from typing import NamedTuple

from trimtab.errors import RunError
from trimtab.runs import RunReader
from trimtab.snapshots.snapshot_records import Snapshot, snapshot_from_row


class StoredSnapshots(NamedTuple):
    """What `read_snapshots` returns: snapshots in the order of steps, and one line for each that cannot be
    read."""

    snapshots: tuple[Snapshot, ...]
    problems: tuple[str, ...]

    def at(self, step: int) -> Snapshot:
        """Return the snapshot of a step. Raises RunError, with the steps there are."""
        for snapshot in self.snapshots:
            if snapshot.step == step:
                return snapshot
        steps = ", ".join(str(snapshot.step) for snapshot in self.snapshots)
        raise RunError(f"step {step} has no snapshot; there are those of {steps or 'no step'}")


def read_snapshots(run: RunReader | str | os.PathLike[str]) -> StoredSnapshots:
    """Read the snapshots of a run.

    Where a step has several, as after a resume, the last one counts. Steps that a resume took back are left
    out. A row that is cut or damaged is a problem of its own; the others are read.

    Args:
        run: A run folder, or its reader.

    Returns:
        Snapshots in the order of steps, and what could not be read.

    Raises:
        RunError: The folder is not a run.

    Example:
        >>> read_snapshots("runs/exp1").snapshots[-1].step  # doctest: +SKIP
        400
    """
    reader = run if isinstance(run, RunReader) else RunReader(run)
    by_step: dict[int, Snapshot] = {}
    problems: list[str] = []
    for row in reader.rows("snapshots"):
        try:
            snapshot = snapshot_from_row(row)
        except RunError as error:
            problems.append(str(error))
            continue
        by_step[snapshot.step] = snapshot
    files = [(name, file) for name, file in sorted(reader.files.items()) if name[0] == "snapshots"]
    for (_, rank, session), file in files:
        if file.torn:
            problems.append(
                f"the last snapshot of rank {rank}, session {session}, was cut: its process was killed"
            )
        if lost := file.malformed + file.num_lost:
            problems.append(
                f"{lost} snapshot{'s' * (lost != 1)} of rank {rank}, session {session}, cannot be read"
            )
    return StoredSnapshots(tuple(by_step[step] for step in sorted(by_step)), tuple(problems))

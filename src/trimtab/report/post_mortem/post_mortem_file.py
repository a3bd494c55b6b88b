"""`postmortem.json` in the run folder: written whole or not at all, and read with suspicion.

A process that dies writes it if it can. Where it could not (kill -9, the out-of-memory killer, power loss),
the first reader that is asked for it does.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from trimtab.errors import RunError
from trimtab.report.post_mortem.post_mortem_record import FORMAT, post_mortem
from trimtab.report.run_view import RunView
from trimtab.safe_files import replacing, require_regular

Json = dict[str, Any]

POST_MORTEM = "postmortem.json"
_MAX_BYTES = 32 * 2**20


def keep_post_mortem(view: RunView, by: str) -> tuple[Json | None, bool]:
    """Compose the post-mortem of a run and write it into its folder.

    Args:
        view: the run as its folder stands now.
        by: who composes it: "process" (the one that died) or "reader".

    Returns:
        The record, None where the run did not end badly, and whether the file was written. A file that says
        the same of the same end is left as it is, so that it keeps saying who wrote it and when.

    Raises:
        OSError: the folder takes no more files.

    Example:
        record, written = keep_post_mortem(load_view("runs/exp1"), "reader")
    """
    record = post_mortem(view)
    if record is None:
        return None, False
    before = read_post_mortem(view.folder)
    same = {name: record.get(name) for name in ("run_id", "ending", "last_step")}
    if before is not None and all(before.get(name) == value for name, value in same.items()):
        return {**record, "written_by": before.get("written_by"), "time": before.get("time")}, False
    record = {**record, "written_by": by, "time": time.time()}
    write_post_mortem(view.folder, record)
    return record, True


def write_post_mortem(folder: Path, record: Json) -> Path:
    """Write a record as the folder's post-mortem: the old one stands until the new one is on the disk."""
    path = folder / POST_MORTEM
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(json.dumps(record, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    return path


def read_post_mortem(folder: Path) -> Json | None:
    """Return what a folder's post-mortem says.

    Args:
        folder: a run folder.

    Returns:
        The record, as `post_mortem` makes it, with `written_by` and `time`; None where no such file can be
        read.

    Example:
        record = read_post_mortem(Path("runs/exp1"))
    """
    path = folder / POST_MORTEM
    try:
        require_regular(path, RunError)
        if path.stat().st_size > _MAX_BYTES:
            return None
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, RunError):
        return None
    whole = isinstance(record, dict) and record.get("trimtab_post_mortem") == FORMAT
    return dict(record) if whole else None

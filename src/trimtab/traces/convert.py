"""Any log we read, as our own JSONL."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from trimtab.errors import TraceError
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.files.find import STDIN, spare_logs
from trimtab.traces.native.native_format import dump_episode
from trimtab.traces.read import iter_episodes

_OTHERS = (".gz", ".zst", ".parquet", ".eval", ".csv")


def convert(
    paths: Iterable[str | Path],
    output: str | os.PathLike[str],
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    strict: bool = False,
    progress: Callable[[int], None] | None = None,
) -> ReadReport:
    """Write the episodes of the logs to `output`, whole or not at all. TraceError as for reading, or when it
    cannot be written."""
    target, report = Path(output), ReadReport(strict=strict, progress=progress)
    if str(output) == STDIN or target.suffix in _OTHERS:
        raise TraceError(
            f"{output} does not name what is written, JSON lines of plain text; name a .jsonl file"
        )
    paths = list(paths)
    spare_logs(paths, target)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise TraceError(f"{target} cannot be written: {error.strerror or error}") from error
    try:
        with os.fdopen(handle, "w", encoding="ascii", newline="\n") as file:
            for episode in iter_episodes(paths, report, format, mapping):
                file.write(dump_episode(episode) + "\n")
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return report

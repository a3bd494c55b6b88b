"""Any log we read, as our own JSONL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from trimtab.errors import TraceError
from trimtab.safe_files import replacing
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
    with (
        replacing(target, TraceError) as temporary,
        temporary.open("w", encoding="ascii", newline="\n") as file,
    ):
        for episode in iter_episodes(paths, report, format, mapping):
            file.write(dump_episode(episode) + "\n")
    return report

"""A bar on standard error while logs are read: for people only, never where the output is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from trimtab.traces.files.find import STDIN, find_files

_PACKED = (".gz", ".zst", ".parquet")


@contextmanager
def reading_bar(paths: Sequence[str | Path], wanted: bool = True) -> Iterator[Callable[[int], None] | None]:
    """What to call with the bytes of each piece read; None without a terminal, or nobody wants it."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        SpinnerColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    files = find_files(paths)
    known = all(f != STDIN and Path(f).is_file() and not f.lower().endswith(_PACKED) for f in files)
    total = sum(Path(f).stat().st_size for f in files) if known else None
    columns = (
        SpinnerColumn(),
        "reading",
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("reading", total=total)
        yield lambda size: bar.advance(task, size)

"""`read_metric_log`: any log of a trainer's numbers, from its path alone."""

from __future__ import annotations

import gzip
import os
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec

from trimtab.errors import MetricLogError
from trimtab.metric_logs.detect_format import DATA_SUFFIXES, FORMATS, file_format, folder_log
from trimtab.metric_logs.formats.console import has_console_row, read_console
from trimtab.metric_logs.formats.text_formats import as_utf8, read_csv, read_json, read_jsonl
from trimtab.metric_logs.formats.types import RawLog
from trimtab.metric_logs.formats.wandb_panels import is_panel, one_run
from trimtab.metric_logs.frameworks.match import framework_named
from trimtab.metric_logs.log import MetricLog, build_log
from trimtab.safe_files import read_capped, require_regular

_TEXT = {
    "jsonl": read_jsonl,
    "json": read_json,
    "trainer_state": read_json,
    "csv": read_csv,
    "console": read_console,
}


def read_metric_log(
    path: str | os.PathLike[str],
    framework: str | None = None,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
) -> MetricLog:
    """Read what a trainer logged, step by step, under our names.

    A store of several runs is read at its newest; `PATH#RUN` reads another. Nothing is ever executed or
    unpickled.

    Args:
        path: a file or folder in one of `FORMATS`.
        framework: whose keys they are, one of `FRAMEWORKS`; recognised when not given.
        format: one of `FORMATS`; recognised when not given.
        mapping: our name -> key of the log, over the framework's table.

    Returns:
        One row a step, steps ascending.

    Raises:
        MetricLogError: the log cannot be read, in one line.

    Example:
        log = read_metric_log("wandb/latest-run", framework="verl")
    """
    if framework is not None:
        framework_named(framework)
    if format is not None and format not in FORMATS:
        raise MetricLogError(f"unknown format {format!r}; one of {', '.join(FORMATS)}")
    where, run = _split(os.fspath(path))
    try:
        raw = _read(where, run, format)
    except OSError as error:
        raise MetricLogError(f"{where} cannot be read: {error.strerror or error}") from error
    if raw.other_runs:
        older = {f"older runs (name one to read it): {', '.join(raw.other_runs)}": len(raw.other_runs)}
        raw.excluded = Counter({**older, **raw.excluded})
    source = raw.files[0] if len(raw.files) == 1 else f"{where}#{run}" if run else where
    return build_log(raw, str(source), framework, mapping)


def _split(path: str) -> tuple[Path, str | None]:
    """`store.db#run` as its two parts, where no file has that whole name."""
    where, mark, run = path.rpartition("#")
    if mark and not Path(path).exists() and Path(where).exists():
        return Path(where), run
    return Path(path), None


def _read(where: Path, run: str | None, format: str | None) -> RawLog:
    if not where.exists():
        raise MetricLogError(f"{where} does not exist; give a run folder or a metrics log")
    if not where.is_dir():
        return _read_file(where, run, format)
    kind, files, others = folder_log(where)
    if format is not None and kind and kind != format:
        raise MetricLogError(f"{where} holds a log of format {kind}, not {format}; give the file itself")
    if kind == "rlprobe":
        from trimtab.metric_logs.formats.table_files import read_rlprobe

        raw = read_rlprobe(files[0])
    elif kind == "tensorboard":
        from trimtab.metric_logs.formats.tensorboard_wandb import read_tensorboard

        raw = read_tensorboard(files)
    elif kind == "mlflow":
        from trimtab.metric_logs.formats.table_files import read_mlflow_folder

        raw = read_mlflow_folder(files[0])
    else:
        raw = _read_file(files[0], run, kind or format)
    raw.files = raw.files or files
    raw.other_runs += [str(path.relative_to(where)) for path in others]
    return raw


def _read_file(path: Path, run: str | None, format: str | None) -> RawLog:
    require_regular(path, MetricLogError)
    with path.open("rb") as file:
        head = file.read(65_536)
    data: bytes | None = None
    if head.startswith(b"\x1f\x8b"):
        data = _unzipped(path)
        head = data[:65_536]
    if not head.strip():
        raise MetricLogError(f"{path} is empty")
    kind = format or file_format(head, lambda: _is_one_json(path.read_bytes() if data is None else data))
    if not format and kind in (None, "csv", "json") and not path.name.endswith(DATA_SUFFIXES):
        whole = path.read_bytes() if data is None else data  # rows may begin far behind a long banner
        kind = "console" if has_console_row(whole) else kind
    if kind is None:
        raise MetricLogError(
            f"{path} is not a known log; it can be {', '.join(FORMATS)} (force one with --format)"
        )
    if kind in _TEXT:
        try:
            raw = _TEXT[kind](path.read_bytes() if data is None else data)
        except ValueError as error:
            raise MetricLogError(f"{path} cannot be read as {kind}: {str(error).splitlines()[0]}") from error
        return one_run(raw, path, run) if kind == "csv" and is_panel(raw) else raw
    if data is not None:
        raise MetricLogError(f"{path} is a compressed {kind} file; unpack it first (gunzip)")
    return _read_binary(path, run, kind)


def _read_binary(path: Path, run: str | None, kind: str) -> RawLog:
    """Each format brings its reader when it is met."""
    if kind in ("parquet", "rlprobe"):
        from trimtab.metric_logs.formats.table_files import read_parquet

        return read_parquet(path)
    if kind in ("tensorboard", "wandb"):
        from trimtab.metric_logs.formats.tensorboard_wandb import read_tensorboard, read_wandb

        return read_tensorboard([path]) if kind == "tensorboard" else read_wandb(path)
    from trimtab.metric_logs.formats.table_files import read_sqlite

    return read_sqlite(path, run)


def _unzipped(path: Path) -> bytes:
    """The whole of a gzip file; MetricLogError when it is damaged."""
    try:
        with gzip.open(path) as file:
            return read_capped(file, path, MetricLogError)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise MetricLogError(f"{path} is a damaged gzip file: {error}") from error


def _is_one_json(data: bytes) -> bool:
    """Is the file one JSON object over several lines, or a trainer's state in one? Two objects one after the
    other are lines."""
    text = as_utf8(data).lstrip()
    first = text.split(b"\n", 1)[0]
    if not text[len(first) :].strip() and b'"log_history"' in first:
        return True  # also with NaN in it, as Python writes it
    try:
        msgspec.json.decode(first, type=msgspec.Raw)
        return False
    except msgspec.DecodeError:
        return not _ends_an_object(first)


def _ends_an_object(line: bytes) -> bool:
    """A first line that ends like a whole object (NaN in it, or damage) is a line of JSONL."""
    return line.rstrip().endswith(b"}")

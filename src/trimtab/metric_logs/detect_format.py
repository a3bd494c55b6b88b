"""Detection of a log's format by content, not by name; and where in a folder the log lies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from trimtab.errors import MetricLogError
from trimtab.metric_logs.formats.console import has_console_row
from trimtab.metric_logs.formats.text_formats import as_utf8

FORMATS = (
    "jsonl", "json", "csv", "parquet", "rlprobe", "trainer_state", "tensorboard", "wandb", "trackio",
    "mlflow", "console",
)  # fmt: skip
"""Formats that can be read; `format=` takes one of these."""

DATA_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".jsonl.gz", ".csv.gz", ".json.gz")
"""Names of files that hold data, not what a console showed."""


def file_format(head: bytes, whole_json: Callable[[], bool]) -> str | None:
    """The format of a file off its first bytes; None when it is none of ours. `sqlite` stands for both
    stores.

    `whole_json` is asked whether the file is one JSON value, which its head cannot tell.

    >>> file_format(b"PAR1...", lambda: False), file_format(b"step,reward\\n1,0.5\\n", lambda: False)
    ('parquet', 'csv')
    """
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"SQLite format 3\0"):
        return "sqlite"
    if head.startswith(b":W&B"):
        return "wandb"
    if b"brain.Event:" in head[:64] or (len(head) > 12 and head[1:8] == b"\0" * 7 and head[12:13] == b"\x09"):
        return "tensorboard"
    text = as_utf8(head).lstrip()
    if not text.startswith((b'{"', b'[{"')) and has_console_row(text):
        return "console"
    if text[:1] == b"{":
        return "json" if whole_json() else "jsonl"
    if text[:1] == b"[":
        return "json"
    lines = [line.decode("utf-8", "replace") for line in text.split(b"\n")[:2]]
    separators = max(lines[0].count(mark) for mark in ",\t;")
    if separators and b"\0" not in text and not re.match(r"^[\s\d.,;+-]*$", lines[0]):
        return "csv"
    return "jsonl" if b"\n{" in text[:4096] else None


def folder_log(folder: Path) -> tuple[str, list[Path], list[Path]]:
    """(format, files to read, other runs) of the log in a folder. MetricLogError when it holds none, or
    several."""
    if (folder / "steps.parquet").is_file():
        return "rlprobe", [folder], []
    states = [folder / "trainer_state.json", *folder.glob("checkpoint-*/trainer_state.json")]
    states = [path for path in states if path.is_file()]
    if states:
        return "trainer_state", [max(states, key=_checkpoint)], []
    for kind, pattern in (
        ("wandb", "*.wandb"),
        ("wandb", "*run-*/*.wandb"),
        ("wandb", "wandb/*run-*/*.wandb"),
    ):
        paths = [path for path in folder.glob(pattern) if "latest-run" not in path.parts]
        if paths:
            return kind, [_newest(paths)], _others(paths)
    events = [path for path in folder.rglob("*tfevents*") if path.is_file()]
    if events:
        parents = sorted(
            {path.parent for path in events}, key=lambda p: max(_time(e) for e in p.glob("*tfevents*"))
        )
        return "tensorboard", sorted(parents[-1].glob("*tfevents*")), parents[-2::-1]
    runs = (
        [folder]
        if (folder / "metrics").is_dir()
        else [p.parent for p in folder.glob("*/*/metrics") if p.is_dir()]
    )
    runs = [run for run in runs if any(path.is_file() for path in (run / "metrics").rglob("*"))]
    if runs:
        return "mlflow", [_newest(runs)], _others(runs)
    files = [
        path
        for path in sorted(folder.iterdir())
        if path.name.endswith((*DATA_SUFFIXES, ".db")) and path.is_file()
    ]
    named = [path for path in files if path.name in ("metrics.jsonl", "history.jsonl", "mlflow.db")]
    if len(named or files) == 1:
        return "", [(named or files)[0]], []
    if files:
        raise MetricLogError(
            f"{folder} holds several files ({', '.join(p.name for p in files[:5])}); give the one that is "
            f"the log"
        )
    raise MetricLogError(
        f"{folder} is neither a trimtab run folder (it has no run.json) nor a log we know; give a metrics "
        "file, or a folder of TensorBoard, W&B, MLflow, trackio, rlprobe or Hugging Face Trainer; agent logs "
        f"are read by: trimtab traces diagnose {folder}"
    )


def _checkpoint(path: Path) -> tuple[int, float]:
    number = re.fullmatch(r"checkpoint-(\d+)", path.parent.name)
    return (int(number[1]) if number else 1 << 62), _time(path)


def _time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _newest(paths: Iterable[Path]) -> Path:
    return max(paths, key=lambda path: (_time(path), str(path)))


def _others(paths: Iterable[Path]) -> list[Path]:
    """All but the newest, the newer first."""
    return sorted(paths, key=lambda path: (_time(path), str(path)))[-2::-1]

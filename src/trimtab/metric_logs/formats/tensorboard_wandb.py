"""TensorBoard event files and W&B offline runs: the two binary logs, read without their packages."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trimtab.metric_logs.formats.protobuf import fields, leveldb_records, signed, tf_records
from trimtab.metric_logs.formats.text_formats import strict_json
from trimtab.metric_logs.formats.types import RawLog, by_step

_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8"}
"""TensorFlow's type numbers of scalars that trainers write: float, double, int32, int64."""


Event = tuple[int, str, float]
"""Step, tag and value of one scalar."""


def read_tensorboard(files: list[Path]) -> RawLog:
    """Scalars of the newest run in event files, which are in the order of their names; other summaries are
    not read. A file that goes on where one before it was, or holds other tags, is of the same run."""
    log = RawLog("tensorboard", [])
    runs: list[tuple[list[Path], list[Event]]] = []
    damaged: set[Path] = set()
    for path in files:
        events: list[Event] = []
        try:
            for record in tf_records(path.read_bytes()):
                events.extend(_scalars(record))
        except (ValueError, struct.error):
            damaged.add(path)
        if not events:
            continue
        if runs and _same_run(runs[-1][1], events):
            runs[-1][0].append(path)
            runs[-1][1].extend(events)
        else:
            runs.append(([path], events))
    if runs:
        log.files, newest = runs[-1]
        older = [path for paths, _ in runs[-2::-1] for path in paths]
        log.other_runs = [path.name for path in older]
        log.rows = by_step(newest)
        damaged -= {*older}
    if damaged:
        log.excluded["event files that end in a damaged record"] = len(damaged)
    return log


def _same_run(run: list[Event], events: list[Event]) -> bool:
    """Do a later file's events go on with a run (a resume, also from before its end), or hold other tags of
    it? A run of its own begins where the first began, or at its own first interval between two rows."""
    tags, known = {tag for _, tag, _ in events}, {tag for _, tag, _ in run}
    if 2 * len(tags & known) < len(tags):
        return True
    steps = sorted({step for step, _, _ in events})
    interval = steps[1] - steps[0] if steps[1:] else 0
    before = [step for step, _, _ in run]
    return steps[0] > max(before) or steps[0] > max(interval, min(before))


def _scalars(event: bytes) -> Iterator[Event]:
    """(step, tag, value) of an Event: step 2, summary 5; Summary: value 1; Value: tag 1, simple_value 2,
    tensor 8."""
    step, summaries = 0, []
    for number, value in fields(event):
        if number == 2 and isinstance(value, int):
            step = signed(value)
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in fields(summary):
            if number != 1 or not isinstance(value, bytes):
                continue
            parts = dict(fields(value))
            tag, simple, tensor = parts.get(1), parts.get(2), parts.get(8)
            reading: float | None = None
            if isinstance(simple, bytes):
                reading = float(struct.unpack("<f", simple)[0])
            elif isinstance(tensor, bytes):
                reading = _tensor(tensor)
            if isinstance(tag, bytes) and reading is not None:
                yield step, tag.decode("utf-8", "replace"), reading


def _tensor(data: bytes) -> float | None:
    """A TensorProto of one number: dtype 1, tensor_content 4, float_val 5, double_val 6; None for anything
    else."""
    parts = dict(fields(data))
    kind = parts.get(1)
    form = _DTYPES.get(kind) if isinstance(kind, int) else None
    for number, expected in ((4, form), (5, "<f4"), (6, "<f8")):
        raw = parts.get(number)
        if form and expected == form and isinstance(raw, bytes):
            code = {"<f4": "<f", "<f8": "<d", "<i4": "<i", "<i8": "<q"}[form]
            return float(struct.unpack(code, raw)[0]) if len(raw) == struct.calcsize(code) else None
    return None


def read_wandb(path: Path) -> RawLog:
    """The history of a `.wandb` file. Record: history 2; HistoryRecord: item 1, step 2; its items' values are
    JSON."""
    log = RawLog("wandb", [])
    try:
        for record in leveldb_records(path.read_bytes()):
            for number, history in fields(record):
                if number == 2 and isinstance(history, bytes):
                    log.rows.append(_history(history, log))
    except ValueError:
        log.excluded["the file ends in a damaged record"] += 1
    return log


def _history(data: bytes, log: RawLog) -> dict[str, Any]:
    """One call of `log`: HistoryItem: key 1, nested_key 2, value_json 16 (wandb before 0.30 and after) or
    number 6, integer 5."""
    row: dict[str, Any] = {}
    for number, item in fields(data):
        if not isinstance(item, bytes):
            continue
        if number == 2:
            row.setdefault("_step", next((v for n, v in fields(item) if n == 1 and isinstance(v, int)), 0))
            continue
        if number != 1:
            continue
        key: list[str] = []
        value: Any = None
        known = False
        for name, part in fields(item):
            if name in (1, 2) and isinstance(part, bytes):
                key.append(part.decode("utf-8", "replace"))
            elif name == 16 and isinstance(part, bytes):
                try:
                    value, known = strict_json(part, log.excluded), True
                except ValueError:
                    log.excluded["values that are not JSON"] += 1
            elif name == 6 and isinstance(part, bytes) and len(part) == 8:
                value, known = struct.unpack("<d", part)[0], True
            elif name == 5 and isinstance(part, int):
                value, known = signed(part), True
        if key and known:
            row["/".join(key)] = value
    return row

"""Numbers of a run folder and of each tracker's own files, read without trimtab's sinks: (step, name) -> value."""

from __future__ import annotations

import base64
import json
import math
import sqlite3
import struct
import zlib
from pathlib import Path

import numpy as np

from trimtab.metric_logs.formats.protobuf import fields, leveldb_records

Numbers = dict[tuple[int, str], float]


def store_numbers(folder: Path) -> Numbers:
    """What the rows of a run folder hold, off their JSON."""
    numbers: Numbers = {}
    for path in sorted(folder.glob("*.jsonl")):
        kind = path.name.partition(".")[0]
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if kind == "steps":
                numbers |= {(row["step"], f"trimtab/metrics/{k}"): v for k, v in row["metrics"].items()}
                numbers |= {(row["step"], f"trimtab/nonfinite/{k}"): v for k, v in row["nonfinite"].items()}
            elif kind == "readings":
                for key, value in row["values"].items():
                    if not (key in row["reasons"] and math.isnan(value)):
                        numbers[row["step"], f"trimtab/{row['slice']}/{key}"] = value
            elif kind == "series":
                numbers |= _series(row)
    return numbers


def _series(row: dict) -> Numbers:
    names, slices = row["names"], row["slices"]
    shape = (2, len(names), len(slices))
    values = np.frombuffer(zlib.decompress(base64.b64decode(row["numbers"])), "<f4").reshape(shape)[0]
    seen = np.frombuffer(zlib.decompress(base64.b64decode(row["counts"])), "<u4").reshape(shape)[1]
    return {
        (row["step"], f"trimtab/{slices[j]}/step/{names[i]}"): float(values[i, j])
        for i, j in np.argwhere(seen > 0).tolist()
    }


def tensorboard_numbers(folder: Path) -> Numbers:
    """Scalars of event files, by TensorBoard's own accumulator; float32."""
    numbers: Numbers = {}
    accumulator = accumulate(folder)
    for tag in accumulator.Tags()["scalars"]:
        numbers |= {(one.step, tag): one.value for one in accumulator.Scalars(tag)}
    return numbers


def accumulate(folder: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    everything = {"scalars": 0, "histograms": 0, "tensors": 0}
    (path,) = {path.parent for path in folder.rglob("events.*")}
    return EventAccumulator(str(path), size_guidance=everything).Reload()


def mlflow_numbers(path: Path) -> Numbers:
    """Metrics of MLflow's SQLite file, off its table."""
    with sqlite3.connect(path) as file:
        rows = file.execute("select step, key, value, is_nan from metrics").fetchall()
    return {(step, key): math.nan if is_nan else value for step, key, value, is_nan in rows}


def trackio_numbers(path: Path) -> Numbers:
    """Metrics of trackio's SQLite file, off its table."""
    with sqlite3.connect(path) as file:
        rows = file.execute("select step, metrics from metrics").fetchall()
    numbers: Numbers = {}
    for step, text in rows:
        for key, value in json.loads(text).items():
            if key != "trimtab/events" and not isinstance(value, dict):
                numbers[step, key] = float(value)
    return numbers


def wandb_rows(folder: Path) -> list[dict]:
    """History rows of W&B's offline files: LevelDB records of protobuf, values as JSON."""
    rows = []
    for path in sorted(folder.rglob("*.wandb")):
        for record in leveldb_records(path.read_bytes()):
            for number, history in fields(record):
                if number == 2:
                    rows.append(_wandb_row(history))
    return rows


def _wandb_row(history: bytes) -> dict:
    row: dict = {}
    for number, item in fields(history):
        if number != 1:
            continue
        parts = list(fields(item))
        path = [v.decode() for n, v in parts if n in (1, 2)]
        into = row
        for name in path[:-1]:  # a histogram is a dictionary
            into = into.setdefault(name, {})
        into[path[-1]] = _wandb_value(parts)
    return row


def _wandb_value(parts: list) -> object:
    values = dict(parts)
    if 16 in values:
        return json.loads(values[16])
    if isinstance(values.get(6), bytes):
        return struct.unpack("<d", values[6])[0]
    return values.get(5, 0)


def wandb_numbers(folder: Path) -> Numbers:
    """Numbers of W&B's offline files."""
    numbers: Numbers = {}
    for row in wandb_rows(folder):
        step = int(row["trimtab/step"])
        for key, value in row.items():
            ours = key.startswith("trimtab/") and key not in ("trimtab/step", "trimtab/events")
            if ours and not isinstance(value, dict):
                numbers[step, key] = float(value)
    return numbers


def same(one: float, two: float) -> bool:
    """Equal, bit for bit but for the payload of NaN."""
    return one == two or (math.isnan(one) and math.isnan(two))

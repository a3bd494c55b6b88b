"""The binary readers against files made by hand after the published formats, and every reader against mutated bytes."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import sqlite3
import struct

import duckdb
import pytest

from trimtab.errors import MetricLogError
from trimtab.metric_logs import read_metric_log
from trimtab.report.metric_log_diagnosis import diagnose_log, log_diagnosis, log_diagnosis_lines


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def part(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def event(step: int, tag: str, value: float, style: str) -> bytes:
    if style == "simple":
        body = b"\x15" + struct.pack("<f", value)
    elif style == "float":
        body = part(8, part(1, 1) + part(5, struct.pack("<f", value)))
    else:
        body = part(8, part(1, 2) + part(4, struct.pack("<d", value)))
    data = b"\x09" + struct.pack("<d", 1.0) + part(2, step) + part(5, part(1, part(1, tag.encode()) + body))
    return struct.pack("<QI", len(data), 0) + data + b"\0" * 4


def wandb_file(rows, padding=0):
    data, block = b":W&B\xe1\xbe\0", 32_768
    for i, row in enumerate(rows):
        items = {**row, "text": "x" * padding}
        record = part(1, i) + part(
            2,
            b"".join(
                part(1, part(2, k.encode()) + part(16, json.dumps(v).encode())) for k, v in items.items()
            )
            + part(2, part(1, i)),
        )
        first = True
        while record or first:
            room = block - len(data) % block
            if room < 7:
                data += b"\0" * room
                continue
            chunk, record = record[: room - 7], record[room - 7 :]
            kind = (1 if first else 4) if not record else (2 if first else 3)
            data += struct.pack("<IHB", 0, len(chunk), kind) + chunk
            first = False
    return data


@pytest.mark.parametrize("style", ["simple", "float", "double"])
def test_event_files_in_every_style_of_scalar(tmp_path, style):
    path = tmp_path / "events.out.tfevents.1"
    values = [0.5, math.nan, math.inf, -0.25]
    path.write_bytes(b"".join(event(step, "train/kl", value, style) for step, value in enumerate(values)))
    rows = read_metric_log(tmp_path).rows
    assert [(step, repr(row["kl"])) for step, row in rows] == [
        (step, repr(v)) for step, v in enumerate(values)
    ]


@pytest.mark.parametrize("padding", [0, 3, 8_000, 32_700, 32_750, 100_000])
def test_wandb_records_over_block_borders(tmp_path, padding):
    rows = [{"train/reward": 0.5 * i, "train/global_step": 2 * i} for i in range(12)]
    (tmp_path / "run-x.wandb").write_bytes(wandb_file(rows, padding))
    log = read_metric_log(tmp_path)
    assert log.rows == [(2 * i, {"reward": 0.5 * i}) for i in range(12)]
    assert log.excluded == {}


def samples(folder):
    """Small valid files of every format."""
    rows = [
        {"step": i, "reward": 0.1 * i, "kl": 0.02, "loss": math.nan if i == 7 else 1.0} for i in range(20)
    ]
    table = io.StringIO()
    writer = csv.DictWriter(table, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    duckdb.sql(
        f"copy (select range as step, 0.5 as reward from range(20)) to '{folder / 'p'}' (format parquet)"
    )
    store = sqlite3.connect(folder / "db")
    store.execute(
        "create table metrics (id integer, run_id text, timestamp text, run_name text, step integer, metrics text)"
    )
    store.executemany(
        "insert into metrics values (1, 'a', 't', 'r', ?, ?)", [(r["step"], json.dumps(r)) for r in rows]
    )
    store.commit()
    store.close()
    return {
        "jsonl": "".join(json.dumps({"step": r["step"], "data": r}) + "\n" for r in rows).encode(),
        "json": json.dumps({"log_history": rows}, indent=1).encode(),
        "csv": table.getvalue().encode(),
        "parquet": (folder / "p").read_bytes(),
        "sqlite": (folder / "db").read_bytes(),
        "events": b"".join(event(r["step"], "loss", r["loss"], "float") for r in rows),
        "wandb": wandb_file(rows, 3_000),
    }


def mutated(data, chance):
    found = bytearray(data)
    for _ in range(chance.choice([1, 3, 20])):
        at = chance.randrange(len(found)) if found else 0
        kind = chance.random()
        if kind < 0.5 and found:
            found[at] = chance.randrange(256)
        elif kind < 0.7:
            del found[at:]
        elif kind < 0.9:
            found[at:at] = chance.choice(
                [b"null", b"{", b"]", b"\xff", b"1e999", b'"\\ud800"', b",", b"\n", b"-9", b"\0"]
            )
        else:
            del found[at : at + chance.randrange(50)]
    return bytes(found)


def test_no_damage_is_more_than_one_clear_line(tmp_path):
    chance = random.Random(0)
    read, lines = 0, []
    for name, data in samples(tmp_path).items():
        path = tmp_path / "log"
        path.write_bytes(data)
        assert len(read_metric_log(path).rows) == 20, name
        for _ in range(40):
            path.write_bytes(mutated(data, chance))
            try:
                "\n".join(log_diagnosis_lines(log_diagnosis(diagnose_log(path)))).encode()
                read += 1
            except MetricLogError as error:
                lines.append(str(error))
    assert read > 100
    assert not [line for line in lines if "\n" in line]

"""A log read as tables, a piece at a time, says what the same log says row by row, whatever its lines hold."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from trimtab.metric_logs import log as columns
from trimtab.metric_logs import read_metric_log
from trimtab.metric_logs.formats import text_formats as text_files
from trimtab.metric_logs.formats.column_blocks import blocks_of, column_of, rows_of

LINES = {
    "plain": lambda i: json.dumps({"step": i, "kl": 0.1 * i, "reward": i % 3}),
    "gaps": lambda i: json.dumps({"step": i} | ({"kl": 0.1 * i} if i % 3 else {}) | ({"reward": 1.0} if i % 7 else {})),
    "other order": lambda i: json.dumps({"kl": 0.5, "step": i} if i % 2 else {"step": i, "kl": 0.25}),
    "not finite": lambda i: json.dumps({"step": i, "kl": math.nan if i == 20 else 1.0, "reward": math.inf if i == 30 else 0.0}),
    "null": lambda i: json.dumps({"step": i, "kl": None if i == 40 else 1.0}),
    "text": lambda i: json.dumps({"step": i, "kl": "0.5" if i % 2 else "NaN", "who": "me"}),
    "text where nobody looks": lambda i: json.dumps({"step": i, "kl": 0.5, "who": "me", "done": i > 5}),
    "truth": lambda i: json.dumps({"step": i, "kl": 0.5, "reward": i > 50}),
    "nested": lambda i: json.dumps({"step": i, "data": {"kl": 0.5 * i}}),
    "twice": lambda i: json.dumps({"step": i // 2, "kl": 0.5 * i}),
    "back": lambda i: json.dumps({"step": i if i != 60 else 3, "kl": 0.5 * i}),
    "half steps": lambda i: json.dumps({"step": i / 2, "kl": 0.5}),
    "steps as floats": lambda i: json.dumps({"step": float(i), "kl": 0.5}),
    "huge": lambda i: json.dumps({"step": i, "kl": 10**400 if i == 9 else 2}),
    "damaged": lambda i: '{"step": 5, "kl"' if i == 33 else json.dumps({"step": i, "kl": 0.5}),
    "empty lines": lambda i: "" if i % 5 == 0 else json.dumps({"step": i, "kl": 0.5}),
    "two in a line": lambda i: json.dumps({"step": i, "kl": 0.5}) * (2 if i == 12 else 1),
    "one over two lines": lambda i: '{"step": 44,\n"kl": 0.5}' if i == 44 else json.dumps({"step": i, "kl": 0.5}),
    "a list between": lambda i: "[1]" if i == 8 else json.dumps({"step": i, "kl": 0.5}),
    "nothing in it": lambda i: "{}" if i == 8 else json.dumps({"step": i, "kl": 0.5}),
}  # fmt: skip


def said(path) -> str:
    log = read_metric_log(path, framework="ours")
    rows = [(step, {name: row[name] for name in sorted(row)}) for step, row in log.rows]
    return repr((rows, log.mapped, log.unmapped, log.excluded, log.notes))


@pytest.mark.parametrize("ending", ["\n", "", '\n{"step": 99'], ids=["newline", "none", "cut"])
@pytest.mark.parametrize("name", LINES)
def test_pieces_and_tables_change_nothing(tmp_path, monkeypatch, name, ending) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text("\n".join(LINES[name](i) for i in range(80)) + ending)
    whole = said(path)
    monkeypatch.setattr(text_files, "_CHUNK", 100)
    assert said(path) == whole, "in pieces"
    monkeypatch.setattr(text_files, "_ROWS", text_files.msgspec.json.Decoder(int))
    assert said(path) == whole, "line by line"
    monkeypatch.setattr(text_files, "blocks_of", lambda rows, first: None)
    assert said(path) == whole, "without tables"
    monkeypatch.setattr(columns, "blocks_of", lambda rows, first: None)
    assert said(path) == whole, "by merged rows"


def test_what_is_no_line_of_its_own_is_counted(tmp_path) -> None:
    path = tmp_path / "m.jsonl"
    for name in ("two in a line", "damaged"):
        path.write_text("\n".join(LINES[name](i) for i in range(80)) + "\n")
        log = read_metric_log(path)
        assert (len(log.rows), log.excluded) == (79, {"malformed lines": 1}), name
    path.write_text("\n".join(LINES["one over two lines"](i) for i in range(80)) + "\n")
    assert read_metric_log(path).excluded == {"malformed lines": 2}
    path.write_text('{"step": 1, "kl": 1}{"step": 2, "kl": 1}\n\n{"step": 3, "kl": 1}\n')
    assert read_metric_log(path).rows == [(3, {"kl": 1.0})], "as many objects as lines, but not one a line"


def test_blocks_there_and_back() -> None:
    rows = [{"a": 1.0, "b": 2.0}, {"a": 3.0}, {}, {"a": 5.0, "b": math.inf}]
    blocks = blocks_of(rows, 4)
    assert rows_of(blocks) == rows
    places, values = column_of(blocks, "a")
    assert (places.tolist(), values.tolist()) == ([4, 5, 7], [1.0, 3.0, 5.0])
    assert column_of(blocks, "c") is None
    assert blocks_of([], 0) == []
    for wrong in (None, "1", True, [1.0], 10**400):
        assert blocks_of([{"a": 1.0}, {"a": wrong}], 0) is None
    assert np.isnan(column_of(blocks_of([{"a": math.nan}], 0), "a")[1]).all()

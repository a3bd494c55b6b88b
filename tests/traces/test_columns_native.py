"""The compiled reader of steps: what it reads is what `traces.steps` reads, and what it cannot read it refuses."""

from __future__ import annotations

import json
import random
import shutil
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.traces.make import steps, write_lines
from tests.traces.test_columns import random_log
from trimtab.errors import TraceError
from trimtab.traces import columns_native
from trimtab.traces.columns import tabulate_steps
from trimtab.traces.columns_count import Job, count_shard
from trimtab.traces.columns_native import REFUSED, Scanner, scanner
from trimtab.traces.columns_part import _seconds
from trimtab.traces.columns_refused import _or_nan, fields_of
from trimtab.traces.columns_scan import scan_rows
from trimtab.traces.columns_shards import Shard
from trimtab.traces.columns_sql import BAD, END, PARSE_ERROR
from trimtab.traces.json_records import parse_json
from trimtab.traces.reading import ReadReport
from trimtab.traces.tool_errors import ERROR_START, starts_as_error
from trimtab.traces.values import as_time

NUMBERS = ("step", "ts", "latency", "tokens", "reward", "total")


@pytest.fixture(scope="module")
def reader() -> Scanner:
    found = scanner()
    if found is None:
        pytest.skip("there is no C compiler here")
    return found


def scanned(reader: Scanner, data: bytes) -> Any:
    return reader.scan(np.frombuffer(data, np.uint8)).copy()


def check(reader: Scanner, line: bytes) -> bool:
    """Is the line read, and as Python reads it? False where it is refused."""
    (row,) = scanned(reader, line)
    if row["kind"] == REFUSED:
        return False
    found = fields_of(reader, parse_json(line))
    for name in ("kind", "eh"):
        assert row[name] == found[name], (name, line)
    assert row["tool_hash"] == (reader.name_key(found["tool"]) if found["tool"] else 0)
    np.testing.assert_equal(
        _seconds(np.array([row["ts"]]))[0], _or_nan(as_time(parse_json(line).get("timestamp")))
    )
    for name in NUMBERS:
        np.testing.assert_equal(
            float(row[name]) + 0.0, float(found.get(name, np.nan)) + 0.0, err_msg=f"{name} {line!r}"
        )
    if "h" in found:
        assert row["h"] == found["h"], line
    assert bool(row["told"]) == found.get("told", False)
    if found.get("err"):
        at = row["err_at"]
        assert at > 0
        assert json.loads(b'"' + line[at : at + row["err_len"]] + b'"') == found["err"]
    if row["kind"] == END:
        assert row["success"] == found["success"]
        for name in ("task", "group", "stop"):
            at = row[f"{name}_at"]
            said = None if at < 0 else line[at : at + row[f"{name}_len"]].decode()
            assert said == found[name], (name, line)
    return True


def test_lines_of_a_usual_log_are_not_refused(reader):
    rows = [row for row in random_log(random.Random(3), 80, 0.3) if row["type"] != "tool_parse_error"]
    read = [check(reader, json.dumps(row).encode()) for row in rows]
    assert np.mean(read) > 0.95  # an assistant's message may be a blank


TEXTS = st.one_of(
    st.text(max_size=12), st.sampled_from(["Error: x", "a\nb", " ", "", "é", "\u3000", "x" * 40, "\\", '"'])
)
ANY = st.one_of(st.none(), st.booleans(), st.integers(-5, 2**60), st.floats(allow_nan=False), TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=2), st.lists(TEXTS, max_size=2))  # fmt: skip
TYPES = st.sampled_from(
    ["tool_call", "tool_result", "tool_parse_error", "assistant_message", "episode_end", "user_message", "x"]
)
TIMES = st.one_of(st.floats(0, 2e9), st.datetimes().map(lambda t: t.isoformat()), ANY)
STEPS = st.fixed_dictionaries(
    {"episode_id": st.one_of(TEXTS, st.integers(0, 99)), "type": TYPES},
    optional=dict.fromkeys(("step", "tool", "args", "result", "error", "content", "tokens", "success", "reward", "total_tokens", "latency_s", "duration_s", "task_id", "task", "group_id", "stop_reason", "odd"), ANY)
    | {"timestamp": TIMES, "metadata": st.one_of(ANY, st.dictionaries(st.sampled_from(["task_id", "task", "prompt_id", "group", "group_id", "stop_reason", "termination_reason"]), ANY))},
)  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(STEPS, st.booleans(), st.sampled_from([None, (",", ":")]))
def test_what_is_read_is_what_python_reads(reader, step, ascii_only, separators):
    check(reader, json.dumps(step, ensure_ascii=ascii_only, separators=separators).encode())


@settings(max_examples=1500, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_damaged_line_is_refused_or_read_as_python_reads_it(reader, rng):
    line = bytearray(json.dumps(rng.choice(CLEAN), ensure_ascii=rng.random() < 0.5).encode())
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(line))
        piece = rng.choice([b"", b'"', b"\\", b",", b"{", b"}", b"\x00", b"\xff", b"\xc3", b"0", b"-", b".", b"e", b"u", b" ", b"\t", b"null", line[at : at + 9]])  # fmt: skip
        line[at : at + rng.randint(0, 2)] = piece
    for one in bytes(line).splitlines():
        if one.strip():
            check(reader, one.rstrip())  # parse_json raises BadJson where a line was read that is none


CLEAN = [
    *steps("é1"),
    {"episode_id": "b", "type": "tool_result", "tool": "t", "result": {"a": [1, -2.5e3, "\u2028\n"], "b": {}}, "error": None, "step": 3},
    {"episode_id": "b", "type": "episode_end", "metadata": {"task_id": 7, "stop_reason": "stop"}, "reward": 0.1, "success": False},
    {"episode_id": "c", "type": "tool_call", "args": {"q": "天\\", "n": 1e-3}, "timestamp": "2024-05-01T10:00:00.250Z"},
]  # fmt: skip


@pytest.mark.parametrize("bad", [b"\xc1\x80", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\x80", b"\xc3", b"\xe2\x82"])  # fmt: skip
def test_text_that_is_not_utf8_is_refused(reader, bad):
    line = b'{"episode_id": "a", "type": "x", "o": "%s"}'
    assert scanned(reader, line % bad)["kind"].tolist() == [REFUSED]
    assert check(reader, line % "\x80\u07ff\u0800\ud7ff\uffff\U00010000\U0010ffff".encode())


@pytest.mark.parametrize(
    "bad",
    [b"{oops", b"[1]", b'"x"', b"null", b"1", b'{"episode_id": "z"}', b'{"type": "x"}', b'{"episode_id": "a", "type": "x"} x', b'{"episode_id": "a", "type": "x",}',
     b'{"episode_id": "a", "type": "x", "step": 01}', b'{"episode_id": "a", "type": "x", "step": 1.}', b'{"episode_id": "a", "type": "x", "o": NaN}',
     b'{"episode_id": "a", "type": "x", "o": "\x01"}', b'{"episode_id": "a", "type": "x", "o": "\xed\xa0\x80"}', b'{"episode_id": "a", "type": "x", "o": "\\x"}',
     b'{"episode_id": "a", "type": "x", "o": "\\ud800"}', b'{"episode_id": "a", "episode_id": "b", "type": "x"}', b'{"episode_id": "a", "type": "x", "o": ' + b"[" * 99 + b"]" * 99 + b"}"],
)  # fmt: skip
def test_what_is_not_strictly_a_step_is_refused(reader, bad):
    assert scanned(reader, bad)["kind"].tolist() == [REFUSED]


@settings(max_examples=500, deadline=None)
@given(st.from_regex(ERROR_START, fullmatch=False), st.booleans())
def test_no_result_that_starts_as_an_error_is_passed_over(reader, text, ascii_only):
    step = {"episode_id": "a", "type": "tool_result", "result": text}
    (row,) = scanned(reader, json.dumps(step, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"))
    assert not starts_as_error(text) or row["kind"] == REFUSED or row["err_at"] >= 0


@pytest.mark.parametrize("text", ["0", "-0", "0.1", "1700000000.1234567", "9007199254740993", "1e22", "1E-7", "123456789012345678901234567890", "2.2250738585072014e-308", "0.30000000000000004"])  # fmt: skip
def test_numbers_are_rounded_as_python_rounds_them(reader, text):
    (row,) = scanned(reader, b'{"episode_id": "a", "type": "x", "tokens": %s, "timestamp": %s}' % (text.encode(), text.encode()))  # fmt: skip
    assert row["ts"] == float(text)


def test_rows_stand_where_lines_stand_and_refused_ones_are_filled_in(reader):
    lines = [b"", b'{"episode_id": "a", "type": "x"}', b"  ", b"{oops", b'{"episode_id": "a", "type": "tool_parse_error", "tool": "t", "content": "c"}', b'{"episode_id": "\\u0061", "type": "x", "tool": "t"}']  # fmt: skip
    data = b"\r\n".join(lines)
    rows = scan_rows(reader, Shard("", 0, 0, 0, data), ())
    assert rows.num_lines == 4
    assert [line for line, _ in rows.problems] == [4]
    assert rows.columns["row"].tolist() == [0, 2, 3]
    assert (rows.columns["kind"] != BAD).all()
    assert rows.columns["kind"].tolist()[1] == PARSE_ERROR
    assert len(set(rows.columns["eh"].tolist())) == 1  # an escaped id is the same id
    assert (rows.tools, rows.columns["tool"].tolist()) == (["t"], [-1, 0, 0])


def test_without_a_compiler_duckdb_reads_and_a_worker_says_so(tmp_path, monkeypatch):
    path = write_lines(tmp_path / "log.jsonl", steps("a"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    scanner.cache_clear()
    try:
        assert scanner() is None
        assert tabulate_steps([str(path)], ReadReport()).ids == ["a"]
        with pytest.raises(TraceError, match="TRIMTAB_COMPILE=0"):
            count_shard(Job(Shard(str(path), 0, 0, 9), (), True, np.zeros(0, np.uint64), compiled=True))
        monkeypatch.undo()
        monkeypatch.setenv("TRIMTAB_COMPILE", "0")
        scanner.cache_clear()
        assert scanner() is None
    finally:
        scanner.cache_clear()


def test_it_is_built_once_into_the_cache(tmp_path, monkeypatch, reader):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built = columns_native._built()
    when = built.stat().st_mtime_ns
    assert columns_native._built() == built
    assert built.stat().st_mtime_ns == when
    assert [path.name for path in (tmp_path / "trimtab").iterdir()] == [built.name]

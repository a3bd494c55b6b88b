"""A log cut into shards, threads or machines: each line once, whatever the cut, and the table of the whole."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random

import numpy as np
import pytest

from tests.traces.make import steps, write_lines
from tests.traces.test_columns import random_log, same
from trimtab.errors import TraceError
from trimtab.traces.choose_engine import table_of
from trimtab.traces.columnar import cross_shard as columns_loose
from trimtab.traces.columnar import extract as columns_rows
from trimtab.traces.columnar import shards as columns_shards
from trimtab.traces.columnar.duckdb_connection import Desk
from trimtab.traces.columnar.engine import tabulate_steps
from trimtab.traces.columnar.ray import ray_map
from trimtab.traces.columnar.shard_counts import Job, count_shard
from trimtab.traces.columnar.shards import LinesBefore, lines_of, shards_of
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.files.lines import iter_lines

TEXTS = {
    "plain": b'{"a": 1}\n\n{"b": 2}\n  \n{"c": "%s"}\n{"d": 4}' % (b"x" * 90),
    "mark": b'\xef\xbb\xbf{"a": 1}\n{"b": 2}\n',
    "crlf": b'{"a": 1}\r\n{"b": 2}\r\n\r\n',
    "empty": b"",
    "blank": b"\n\n\n",
    "no newline": b'{"a": 1}',
}


@pytest.mark.parametrize("size", [1, 7, 8, 9, 40, 10_000])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("through", ["memory", "a pipe"])
def test_shards_have_each_line_once_with_its_number(tmp_path, monkeypatch, name, packed, size, through):
    if through == "a pipe":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(columns_shards, "SHARD_BYTES", size)
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(TEXTS[name]) if packed else TEXTS[name])
    desk = Desk()
    before, found, report, plain = LinesBefore(), [], ReadReport(), ReadReport()
    for number, shard in enumerate(shards_of(str(path), report)):
        assert shard.number == number
        first = before(shard)
        found += [(first + line.number, line.text, line.ended) for line, _ in lines_of(shard)]
        with desk.path(shard) as pipe, open(pipe, "rb") as file:
            assert file.read().split() == b"\n".join(line.text for line, _ in lines_of(shard)).split()
    assert found == [tuple(line) for line in iter_lines(str(path), plain)]
    assert report.notes == plain.notes


@pytest.mark.parametrize("size", [2_000, 20_000])
@pytest.mark.parametrize("through", ["memory", "a pipe"])
def test_the_cut_does_not_show(tmp_path, monkeypatch, size, through):
    if through == "a pipe":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    path = write_lines(tmp_path / "log.jsonl", random_log(random.Random(5), 40, 0.2))
    monkeypatch.setattr(columns_shards, "SHARD_BYTES", size)
    assert len(list(shards_of(str(path), ReadReport()))) > 2
    same(path)


def test_an_episode_that_goes_on_after_its_end_is_read_once_more(tmp_path, monkeypatch):
    monkeypatch.setattr(columns_shards, "SHARD_BYTES", 500)
    late = {"episode_id": "a", "type": "tool_call", "tool": "late", "step": 90, "timestamp": 2000.0}
    again = [row | {"episode_id": "b", "step": row["step"] + 20} for row in steps("b")]
    table = same(
        write_lines(
            tmp_path / "log.jsonl", [*steps("a"), *steps("b"), *steps("c"), late, *again, *steps("d")]
        )
    )
    assert list(table.ids) == ["a", "b", "c", "b#2", "d"]  # a second end, after steps of its own
    assert table.counts["calls"].tolist() == [3, 2, 2, 2, 2]


def test_steps_of_open_episodes_are_held_in_files_when_there_are_many(tmp_path, monkeypatch):
    rows = [row for row in random_log(random.Random(2), 60, 0.2) if row["type"] != "episode_end"]
    path = write_lines(tmp_path / "log.jsonl", rows)
    monkeypatch.setattr(columns_shards, "SHARD_BYTES", 8_000)
    monkeypatch.setattr(columns_loose.Loose.__init__, "__defaults__", (200,))
    spilled = []
    packed = columns_loose._packed
    monkeypatch.setattr(columns_loose, "_packed", lambda c: (spilled.append(1), packed(c))[1])
    same(path)
    assert spilled


def test_lines_longer_than_duckdb_is_asked_to_read(tmp_path, monkeypatch):
    long = [{"episode_id": "a", "type": "user_message", "step": -1, "content": "x" * 35_000_000}]
    path = write_lines(tmp_path / "log.jsonl", [*long, *steps("a"), *steps("b")])
    same(path)
    monkeypatch.setattr(columns_rows, "MAX_BYTES", columns_rows.MAX_BYTES[:1])
    monkeypatch.setattr(columns_shards, "MAX_LINE_BYTES", 100_000)
    report = ReadReport()
    assert list(tabulate_steps([str(path)], report).ids) == ["a", "b"]
    assert [(p.line, p.reason) for p in report.problems] == [(1, "line longer than 100,000 bytes")]
    assert report.num_lines == 15


def test_a_cut_gzip_is_read_up_to_the_cut(tmp_path):
    rng = random.Random(1)
    rows = [row | {"content": str(rng.random())} for i in range(200) for row in steps(f"e{i}")]
    whole = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    table = same(path)
    assert 50 < table.num_episodes < 150


def test_a_byte_order_mark_and_zstandard_are_no_obstacle(tmp_path):
    path = write_lines(tmp_path / "log.jsonl", steps("a") + steps("b"))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    table = table_of([path], ReadReport(), engine="columns")
    assert (list(table.ids), table.total("calls")) == (["a", "b"], 4)
    zstandard = pytest.importorskip("pyarrow")
    with zstandard.CompressedOutputStream(str(tmp_path / "log.jsonl.zst"), "zstd") as out:
        out.write(path.read_bytes())
    assert list(table_of([tmp_path / "log.jsonl.zst"], ReadReport(), engine="columns").ids) == ["a", "b"]


@pytest.mark.parametrize("gone", [True, False])
def test_a_file_that_cannot_be_read_again_is_an_error_and_sendfile_is_not_needed(tmp_path, monkeypatch, gone):
    path = write_lines(tmp_path / "log.jsonl", steps("a"))
    jobs = _jobs(str(path))
    if gone:
        path.unlink()
        with pytest.raises(TraceError, match="cannot be read"):
            count_shard(jobs[0])
    else:
        monkeypatch.delattr(os, "sendfile")
        assert list(count_shard(jobs[0]).table.ids) == ["a"]


def test_tools_with_odd_names_and_words_without_ink(tmp_path):
    tools = ["it's", "$cases", "{0}", "null", "sök", "a\nb", "SIZE", "(no name)"]
    rows = [
        {
            "episode_id": "e",
            "type": kind,
            "tool": tool,
            "step": 2 * i + (kind == "tool_result"),
            "result": "r",
        }
        for i, tool in enumerate([*tools, *tools])
        for kind in ("tool_call", "tool_result")
    ]
    for i, content in enumerate(["\u00a0\u2003", "\x1c\x0b", "\u200b", "é", " \u3000.", "天"]):
        rows.append({"episode_id": "e", "type": "user_message", "step": 100 + 2 * i, "content": "go"})
        rows.append({"episode_id": "e", "type": "assistant_message", "step": 101 + 2 * i, "content": content})
    table = same(write_lines(tmp_path / "log.jsonl", rows))
    assert table.counts["void_turns"].tolist() == [2]
    assert table.tools["it's"].calls == 2


def test_metadata_that_is_no_object(tmp_path):
    rows = [row | {"metadata": value} for value, name in zip(["x", [1], 7, {"task_id": 7}], "abcd", strict=True) for row in steps(name)]  # fmt: skip
    table = same(write_lines(tmp_path / "log.jsonl", rows))
    assert table.tasks == ["7"]


def test_more_tools_than_have_rows_over_several_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(columns_shards, "SHARD_BYTES", 3_000)
    rows = [row | {"tool": f"t{i % 90}"} for i in range(200) for row in steps(f"e{i}", calls=1)]
    table = same(write_lines(tmp_path / "log.jsonl", rows))
    assert len(table.tools) == 65


def test_what_a_worker_answers_travels(tmp_path, monkeypatch):
    monkeypatch.setattr(columns_shards, "SHARD_BYTES", 3_000)
    path = write_lines(tmp_path / "log.jsonl", random_log(random.Random(3), 40, 0.2))

    def far(jobs):
        for job in jobs:
            yield pickle.loads(pickle.dumps(count_shard(pickle.loads(pickle.dumps(job)))))

    here, there = tabulate_steps([str(path)], ReadReport()), tabulate_steps([str(path)], ReadReport(), far)
    assert list(here.ids) == list(there.ids)
    assert here.tools == there.tools
    assert here.evidence == there.evidence
    assert {name: column.tolist() for name, column in here.counts.items()} == {
        name: column.tolist() for name, column in there.counts.items()
    }


def test_ray_counts_the_same_and_says_what_it_lacks(tmp_path, monkeypatch):
    path = write_lines(tmp_path / "log.jsonl", random_log(random.Random(4), 40, 0.2))
    with pytest.raises(TraceError, match="leave --engine records out"):
        table_of([path], ReadReport(), engine="records", ray="local")
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'trimtab[ray]'")
    monkeypatch.setattr(columns_shards, "SHARD_BYTES", 3_000)
    here = tabulate_steps([str(path)], ReadReport())
    report = ReadReport()
    there = table_of([path], report, ray="local")
    assert list(here.ids) == list(there.ids)
    assert (here.tools, here.evidence) == (there.tools, there.evidence)
    assert report.num_episodes == len(here.ids)
    with pytest.raises(TraceError, match="no Ray at"):
        table_of([path], ReadReport(), ray="127.0.0.1:1")
    gone = tmp_path / "gone.jsonl"
    gone.write_bytes(path.read_bytes())
    jobs = _jobs(str(gone))
    gone.unlink()
    with ray_map("local") as mapped, pytest.raises(TraceError, match="same path"):
        list(mapped(jobs))


def _jobs(path):
    return [Job(shard, (), True, np.zeros(0, np.uint64)) for shard in shards_of(path, ReadReport())]


def test_without_ray_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    path = write_lines(tmp_path / "log.jsonl", steps("a"))
    with pytest.raises(TraceError, match=r"trimtab\[ray\]"):
        table_of([path], ReadReport(), ray="local")

"""A log cut into shards, over processes or machines: each line once, whatever the cut, and the table of the whole."""

from __future__ import annotations

import gzip
import json
import random
import re

import pytest

from tests.traces import samples
from tests.traces.make import chat, steps, tau, write_lines
from tests.traces.sharding import equal, in_shards, random_log, same
from trimtab.errors import TraceError
from trimtab.traces import table_of_logs
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.files import shards
from trimtab.traces.files.lines import iter_lines
from trimtab.traces.files.shards import cut, lines_from, plain_copy
from trimtab.traces.read import read_episodes
from trimtab.traces.registry import FORMATS
from trimtab.traces.shard_table import Job, Reading, tabulate_shard
from trimtab.traces.table.required_files import RequiredFiles
from trimtab.traces.table_of_logs import table_of
from trimtab.traces.workers import num_workers, process_map, ray_map

TEXTS = {
    "plain": b'{"a": 1}\n\n{"b": 2}\n  \n{"c": "%s"}\n{"d": 4}' % (b"x" * 90),
    "crlf": b'{"a": 1}\r\n{"b": 2}\r\n\r\n',
    "blank": b"\n\n\n",
    "no newline": b'{"a": 1}',
}


@pytest.mark.parametrize("size", [1, 7, 8, 9, 40, 10_000])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", TEXTS)
def test_shards_have_each_line_once_with_its_number(tmp_path, monkeypatch, name, packed, size):
    monkeypatch.setattr(shards, "SHARD_BYTES", size)
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(TEXTS[name]) if packed else TEXTS[name])
    (tmp_path / "copies").mkdir()
    lines = [
        (line.number, line.text, line.ended)
        for one in cut(str(path), *plain_copy(str(path), str(tmp_path / "copies")))
        for line in lines_from(one.path, one.start, one.end, one.lines_before)
    ]
    assert lines == [tuple(line) for line in iter_lines(str(path), ReadReport())]


def _records(name):
    """Twelve records of a format, with ids of their own where it has any; a copy, and another of the same id."""
    records = []
    for i in range(12):
        record = json.loads(json.dumps(samples.RECORDS[name]))
        for key in ("id", "request_id", "task_id", "example_id"):
            if key in record:
                record[key] = f"r{i}" if isinstance(record[key], str) else i
        records.append(record)
    other = json.loads(json.dumps(records[3]).replace("reward", "reward_"))
    return [*records, records[5], other]


@pytest.mark.parametrize("name", [name for name in samples.RECORDS if FORMATS[name].by_line])
def test_every_format_of_lines_is_read_alike_in_shards(tmp_path, name):
    records = _records(name)
    lines = [json.dumps(record).encode() for record in records]
    lines[2:2] = [b"{oops", b"", b"[1]"]
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines) + b'\n{"cut": ')
    assert same(path, sizes=(100, 5_000, 10**8)).num_episodes >= 1


@pytest.mark.parametrize("name", [name for name in samples.RECORDS if not FORMATS[name].by_line])
def test_documents_are_shards_of_their_own(tmp_path, name):
    suffix = {"swe-agent": ".traj", "mini-swe-agent": ".traj.json"}.get(name, ".json")
    for i in range(3):
        (tmp_path / f"{i}{suffix}").write_text(json.dumps(samples.RECORDS[name]))
    same(tmp_path, sizes=(100,))


def test_chats_of_many_kinds_with_copies_errors_tools_and_files(tmp_path):
    rng, rows = random.Random(0), []
    for i in range(300):
        path = rng.choice(["a.md", "docs/../b.md", "c"])
        messages = chat(
            name=rng.choice(["read", "search", f"t{i}"]), arguments=json.dumps({"path": path}),
            result=rng.choice(["found", "Error: no seats", "oops"]),
        )  # fmt: skip
        rows.append(
            {
                "id": f"m{i % 280}",
                "messages": messages,
                "reward": rng.choice([0, 1, None]),
                "task_id": f"t{i % 7}",
            }
        )
    one, two = write_lines(tmp_path / "1.jsonl", rows), write_lines(tmp_path / "2.jsonl", [*rows[:9], {"messages": chat()}, {"messages": chat()}])  # fmt: skip
    table = same(one, two, patterns=(re.compile("oops"),), files=["a.md", "b.md"], sizes=(2_000, 10**8))
    assert len(table.tools) == 65
    assert any("#2" in name for name in table.ids)
    assert {name: row.calls > 0 for name, row in table.files.items()} == {"a.md": True, "b.md": True}


def test_tau_bench_lines_and_mapped_records_and_steps(tmp_path):
    same(write_lines(tmp_path / "tau.jsonl", [tau(i, 0, i % 2, chat()) for i in range(9)]), sizes=(500,))
    rows = [{"run": {"uuid": f"u{i}"}, "data": chat(), "score": i % 2} for i in range(9)]
    mapping = {"id": "run.uuid", "messages": "data", "reward": "score", "success": "nothing"}
    same(write_lines(tmp_path / "own.jsonl", rows), mapping=mapping, sizes=(500,))
    renamed = [{"e": row.pop("episode_id"), "t": row.pop("type"), **row} for row in steps("a") + steps("b")]
    same(
        write_lines(tmp_path / "steps.jsonl", renamed), mapping={"episode_id": "e", "type": "t"}, sizes=(500,)
    )


def test_strict_stops_at_the_same_line_in_shards(tmp_path):
    rows = [json.dumps(row) for name in "abcdef" for row in steps(name)]
    rows[17:17] = ["{oops"]
    rows[30:30] = ["[1]"]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(rows))
    with pytest.raises(TraceError, match=r"log\.jsonl:18: not JSON"):
        read_episodes([path], strict=True)
    with pytest.raises(TraceError, match=r"log\.jsonl:18: not JSON"):
        in_shards([path], ReadReport(strict=True))


def test_an_episode_that_goes_on_after_its_end_and_one_that_is_spread_over_the_log(tmp_path):
    late = {"episode_id": "a", "type": "tool_call", "tool": "late", "step": 90, "timestamp": 2000.0}
    again = [row | {"episode_id": "b", "step": row["step"] + 20} for row in steps("b")]
    spread = [row | {"episode_id": "z"} for row in steps("z", calls=9)]
    rows = [*steps("a"), *steps("b"), *steps("c"), late, *again, *steps("d")]
    for i, row in enumerate(spread):
        rows.insert(2 * i, row)
    table = same(write_lines(tmp_path / "log.jsonl", rows))
    assert list(table.ids) == ["z", "a", "b", "c", "b#2", "d"]


def test_a_line_that_is_too_long_is_malformed_in_shards(tmp_path, monkeypatch):
    path = write_lines(tmp_path / "log.jsonl", [*steps("a"), {"x": "y" * 5_000}, *steps("b")])
    for limit in (4_000, 300):
        monkeypatch.setattr(shards, "MAX_LINE_BYTES", limit)
        report = ReadReport()
        assert list(in_shards([path], report, 10**8).ids) == ["a", "b"]
        assert [(p.line, p.reason) for p in report.problems] == [(8, f"line longer than {limit:,} bytes")]


def test_a_cut_gzip_is_read_up_to_the_cut(tmp_path):
    rng = random.Random(1)
    rows = [row | {"content": str(rng.random())} for i in range(60) for row in steps(f"e{i}")]
    whole = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    assert 10 < same(path, sizes=(3_000,)).num_episodes < 50


def test_large_logs_go_through_worker_processes(tmp_path, monkeypatch):
    path = write_lines(tmp_path / "log.jsonl", random_log(random.Random(5), 60, 0.2))
    small, progress = table_of([path], ReadReport()), []
    monkeypatch.setattr(table_of_logs, "LARGE_BYTES", 1)
    monkeypatch.setattr(shards, "SHARD_BYTES", 20_000)
    report = ReadReport(progress=progress.append)
    equal(table_of([path], report), small)
    assert sum(progress) == path.stat().st_size
    with pytest.raises(TraceError, match="steps"):
        table_of([path], ReadReport(), "unheard-of")


def test_an_error_in_a_worker_is_the_users_error_and_a_broken_pool_is_no_end(tmp_path):
    gone = Job(
        shards.Shard("x", str(tmp_path / "x"), 0, 9), "steps", Reading({}, False, (), {}, RequiredFiles())
    )
    with process_map() as mapper:
        with pytest.raises(TraceError, match="cannot be read"):
            list(mapper(tabulate_shard, [gone]))
        assert list(mapper(abs, [-1, 2, -3, 4, -5])) == [1, 2, 3, 4, 5]
    assert num_workers() >= 1


def test_without_ray_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    path = write_lines(tmp_path / "log.jsonl", steps("a"))
    with pytest.raises(TraceError, match=r"trimtab\[ray\]"):
        table_of([path], ReadReport(), ray="local")


def test_ray_makes_the_same_table_and_says_what_it_lacks(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'trimtab[ray]'")
    path = write_lines(tmp_path / "log.jsonl", random_log(random.Random(4), 40, 0.2))
    monkeypatch.setattr(shards, "SHARD_BYTES", 3_000)
    equal(table_of([path], ReadReport(), ray="local"), table_of([path], ReadReport()))
    with pytest.raises(TraceError, match="no Ray at"):
        table_of([path], ReadReport(), ray="127.0.0.1:1")
    gone = Job(
        shards.Shard("x", str(tmp_path / "x"), 0, 9), "steps", Reading({}, False, (), {}, RequiredFiles())
    )
    with ray_map("local") as mapper, pytest.raises(TraceError, match="cannot be read"):
        list(mapper(tabulate_shard, [gone]))

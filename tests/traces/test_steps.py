"""One event a line: interleaved, repeated, out of order, and mapped from other names."""

from __future__ import annotations

import json
import random

import pytest

from tests.report.test_trace_diagnosis import run
from tests.traces.make import chat, steps, write_lines
from trimtab.errors import TraceError
from trimtab.traces.read import read_episodes


def test_an_episode_of_steps(tmp_path):
    (found,), report = read_episodes([write_lines(tmp_path / "s.jsonl", steps("a", calls=2))])
    assert (found.id, found.reward, found.success, found.tokens, found.duration_s) == (
        "a",
        1.0,
        True,
        25,
        3.0,
    )
    assert [(c.name, c.arguments, c.result, c.latency_s, c.step) for c in found.calls] == [
        ("search", {"q": 0}, "r0", 0.5, 1),
        ("search", {"q": 1}, "r1", 0.5, 3),
    ]
    assert [t.role for t in found.turns] == ["user", "assistant", "assistant", "assistant"]
    assert report.formats == {str(tmp_path / "s.jsonl"): "steps"}


def test_interleaved_shuffled_and_doubled_lines_give_the_same_episodes(tmp_path):
    rows = [row for name in "abc" for row in steps(name, calls=3)]
    clean, _ = read_episodes([write_lines(tmp_path / "clean.jsonl", rows)])
    mixed = rows + rows[:5]
    random.Random(1).shuffle(mixed)
    found, report = read_episodes([write_lines(tmp_path / "mixed.jsonl", mixed)])
    assert report.notes["steps that are copies of another, dropped"] == 5
    assert report.notes["steps out of order, sorted"] > 5
    for episode in (*clean, *found):
        episode.source = ""
    assert sorted(found, key=lambda e: e.id) == clean


def test_results_answer_the_oldest_open_call_of_their_tool(tmp_path):
    kinds = [
        ("tool_call", "a"),
        ("tool_call", "b"),
        ("tool_call", "a"),
        ("tool_result", "a"),
        ("tool_result", "b"),
        ("tool_result", "c"),
    ]
    rows = [
        {"episode_id": "e", "type": kind, "tool": tool, "step": i, "result": f"{tool}{i}"}
        for i, (kind, tool) in enumerate(kinds)
    ]
    (found,), report = read_episodes([write_lines(tmp_path / "s.jsonl", rows)])
    assert [(c.name, c.result) for c in found.calls] == [("a", "a3"), ("b", "b4"), ("a", None)]
    assert len(found.turns) == 2  # one assistant turn with three calls in parallel, and the orphan
    assert report.notes["tool results that answer no call, kept as turns"] == 1
    assert found.calls[0].latency_s is None


def test_errors_and_parse_errors(tmp_path):
    rows = [
        {"episode_id": "e", "type": "tool_call", "tool": "a"},
        {"episode_id": "e", "type": "tool_result", "tool": "a", "result": "Error: x", "error": None},
        {"episode_id": "e", "type": "tool_call", "tool": "a"},
        {"episode_id": "e", "type": "tool_result", "tool": "a", "result": "Error: x"},
        {"episode_id": "e", "type": "tool_call", "tool": "a"},
        {"episode_id": "e", "type": "tool_result", "tool": "a", "error": "TimeoutError"},
        {"episode_id": "e", "type": "tool_parse_error", "content": "<tool_call>{", "error": "no end"},
    ]
    (found,), _ = read_episodes([write_lines(tmp_path / "s.jsonl", rows)])
    assert [(c.error, c.error_from) for c in found.calls] == [
        ("Error: x", "text"),  # an error field that is null beside a text that is one
        ("Error: x", "text"),
        ("TimeoutError", "log"),
        ("no end", "parse"),
    ]
    assert found.calls[3].bad_arguments == "<tool_call>{"


def test_lines_without_episode_or_type_and_mixed_types(tmp_path):
    good = [
        {
            "episode_id": 7,
            "type": "tool_call",
            "tool": None,
            "args": [1],
            "step": "x",
            "tokens": "many",
            "timestamp": "never",
        }
    ]
    rows = [*good, {"type": "tool_call"}, {"episode_id": "e"}, {"episode_id": None, "type": "other"}]
    (found,), report = read_episodes([write_lines(tmp_path / "s.jsonl", rows)])
    assert (found.id, found.calls[0].name, found.calls[0].arguments, found.tokens) == ("7", "", [1], None)
    assert [(p.line, p.reason) for p in report.problems] == [
        (2, "no episode_id"),
        (3, "no type"),
        (4, "no episode_id"),
    ]


def test_mapped_fields(tmp_path):
    path = write_lines(
        tmp_path / "m.jsonl", [{"run": {"uuid": "u1"}, "data": [{"turns": chat()}], "score": {"value": 0.25}}]
    )
    (found,), report = read_episodes(
        [path], mapping={"id": "$.run.uuid", "messages": "data[0].turns", "reward": "score.value"}
    )
    assert (found.id, found.reward, found.calls[0].result) == ("u1", 0.25, "found")
    assert report.formats == {str(path): "mapped"}
    rows = [
        {"ep": "e", "kind": row["type"], **{k: v for k, v in row.items() if k not in ("episode_id", "type")}}
        for row in steps("e")
    ]
    names = {
        "episode_id": "ep",
        "type": "kind",
        "tool": "tool",
        "result": "result",
        "reward": "reward",
        "step": "step",
    }
    (found,), _ = read_episodes([write_lines(tmp_path / "s.jsonl", rows)], mapping=names)
    assert (len(found.calls), found.reward) == (2, 1.0)


@pytest.mark.parametrize(
    ("mapping", "why"), [({"rewrad": "a"}, "no such field"), ({"id": "a"}, "needs messages")]
)
def test_a_mapping_that_cannot_be(tmp_path, mapping, why):
    with pytest.raises(TraceError, match=why):
        read_episodes([write_lines(tmp_path / "m.jsonl", [{"a": 1}])], mapping=mapping)


def test_a_path_that_is_not_found_is_counted_and_one_that_no_record_has_is_said_plainly(tmp_path):
    rows = [{"data": chat(), "score": 1.0, **({"who": {"id": i}} if i else {"who": None})} for i in range(5)]
    half = [write_lines(tmp_path / f"{i}.jsonl", rows[i::2]) for i in range(2)]
    mapping = {"messages": "data", "reward": "score.nope", "id": "who.id", "model": "who"}
    found, report = read_episodes(half, mapping=mapping)
    assert (len(found), [e.reward for e in found]) == (5, [None] * 5)
    assert report.notes == {
        "records read, and --map reward=score.nope is in none of them": 5,
        "records in which --map id=who.id is not found": 1,  # a model of null is there
    }
    options = [f"--map={name}={path}" for name, path in mapping.items()]
    assert "5 records read, and --map reward=score.nope is in none of them" in run("diagnose", *half, *options)[1]  # fmt: skip


def test_of_mapped_steps_only_a_path_that_no_line_has_is_said(tmp_path):
    names = ("episode_id", "type", "tool", "content", "result")
    mapping = {**{name: name for name in names}, "duration_s": "took"}
    _, report = read_episodes([write_lines(tmp_path / "s.jsonl", steps("e"))], mapping=mapping)
    assert report.notes == {"records read, and --map duration_s=took is in none of them": len(steps("e"))}


def test_a_map_that_would_do_nothing_is_refused(tmp_path):
    path, mapping = write_lines(tmp_path / "m.jsonl", [{"messages": chat()}]), {"messages": "messages"}
    for format in ("messages", "steps", "trl"):
        with pytest.raises(TraceError, match=f"--map changes nothing of --format {format}"):
            read_episodes([path], format, mapping)
    assert len(read_episodes([path], "mapped", mapping)[0]) == 1
    with pytest.raises(TraceError, match="--follow reads no mapped logs"):
        run("diagnose", path, "--follow", "--map", "messages=messages")


def test_no_mutated_line_stops_a_reader_or_loses_its_neighbours(tmp_path):
    """Cut, doubled and overwritten bytes: no exception, no hang, and untouched lines come through."""
    rng = random.Random(0)
    seeds = [
        json.dumps({"id": "x", "messages": chat()}),
        *map(json.dumps, steps("x")),
        '{"trimtab": 1, "id": "x", "turns": []}',
    ]
    path = tmp_path / "f.jsonl"
    for turn in range(300):
        data = bytearray(rng.choice(seeds).encode())
        for _ in range(rng.randint(1, 6)):
            place = rng.randrange(len(data))
            data[place : place + rng.randint(0, 8)] = rng.choice(
                [b"", b"\xff", b"[", b'"', b"{}", b"\0", b"1e999", b"null", b"\\ud800"]
            )
        first = json.dumps({"id": "first", "messages": chat()}).encode()
        path.write_bytes(
            first + b"\n" + bytes(data).replace(b"\n", b"") + b"\n" + first.replace(b"first", b"last") + b"\n"
        )
        found, report = read_episodes([path], format="messages")
        assert {"first", "last"} <= {e.id for e in found}, (turn, data)
        assert report.num_malformed <= 1

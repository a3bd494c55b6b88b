"""Step lines no tidy writer writes: read alike in one piece and in shards, or counted as malformed."""

from __future__ import annotations

import json

import pytest

from tests.traces.make import steps, write_lines
from tests.traces.sharding import in_shards, same
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.read import read_episodes
from trimtab.traces.table_of_logs import table_of


@pytest.mark.parametrize("bad", [b"\xc1\x80", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\x80", b"\xc3", b"\xe2\x82"])  # fmt: skip
def test_text_that_is_not_utf8_is_malformed_here_as_there(tmp_path, bad):
    good = "\x80\u07ff\u0800\ud7ff\uffff\U00010000\U0010ffff".encode()
    line = b'{"episode_id": "a", "type": "tool_call", "tool": "t", "step": 50, "args": "%s"}'
    path = write_lines(tmp_path / "log.jsonl", steps("a"))
    path.write_bytes(path.read_bytes() + line % bad + b"\n" + line % good + b"\n")
    assert same(path).counts["calls"].tolist() == [3]


@pytest.mark.parametrize(
    "odd",
    [b'{"episode_id": "a", "type": "x"} x', b'{"episode_id": "a", "type": "x", "step": 01}',
     b'{"episode_id": "a", "type": "x", "step": 1.}', b'{"episode_id": "a", "type": "x", "o": NaN}', b'{"episode_id": "a", "type": "x", "o": "\x01"}',
     b'{"episode_id": "a", "type": "x", "o": "\\x"}', b'{"episode_id": "a", "type": "x", "o": "\\ud800"}', b'{"episode_id": "\\u0061", "type": "x"}',
     b'{"episode_id": "a", "type": "x", "o": ' + b"[" * 99 + b"]" * 99 + b"}", b'{"episode_id": "a", "type": "x", "step": true}'],
)  # fmt: skip
def test_lines_at_the_edge_of_json_are_read_or_not_as_there(tmp_path, odd):
    path = write_lines(tmp_path / "log.jsonl", steps("a"))
    path.write_bytes(path.read_bytes() + odd + b"\n")
    same(path)


SAYS_NONE = (None, False, 0, 0.0, "", " ", "\t\n", "0", "false", "False", "none", "None", "null", {}, [])
SAYS_ERROR = (True, 1, -1, 2.5, "no", "0 rows", "nil", {"code": 500}, [0], "  x")


@pytest.mark.parametrize("read", [table_of, in_shards])
def test_what_an_error_field_says(tmp_path, read):
    rows = []
    for tool, errors in (("fine", SAYS_NONE), ("bad", SAYS_ERROR)):
        for error in errors:
            rows += [
                {"type": "tool_call", "tool": tool},
                {"type": "tool_result", "tool": tool, "result": "r", "error": error},
            ]
    rows.append({"type": "episode_end", "success": True})
    path = write_lines(
        tmp_path / "log.jsonl", [{"episode_id": "a", "step": i, **row} for i, row in enumerate(rows)]
    )
    tools = read([path], ReadReport()).tools
    assert (tools["fine"].calls, tools["fine"].failed) == (len(SAYS_NONE), 0)
    assert (tools["bad"].calls, tools["bad"].failed) == (len(SAYS_ERROR), len(SAYS_ERROR))


@pytest.mark.parametrize("read", [table_of, in_shards])
def test_results_without_a_call_and_episodes_without_an_end_are_counted(tmp_path, read):
    rows = [
        *steps("a"),
        *steps("b")[:-1],
        {"episode_id": "b", "type": "tool_result", "step": 90, "tool": "x", "result": "r"},
    ]
    report = ReadReport()
    read([write_lines(tmp_path / "log.jsonl", rows)], report)
    assert report.notes == {
        "episodes without an episode_end": 1,
        "tool results that answer no call, kept as turns": 1,
    }


@pytest.mark.parametrize("latency", ["nan", float("nan"), float("inf"), None])
@pytest.mark.parametrize("read", [table_of, in_shards])
def test_a_latency_that_is_no_number_is_that_of_the_times(tmp_path, read, latency):
    rows = [{**row, "latency_s": latency} if row["type"] == "tool_result" else row for row in steps("a")]
    tools = read([write_lines(tmp_path / "log.jsonl", rows)], ReadReport()).tools
    assert (tools["search"].timed, tools["search"].p50) == (2, 0.5)


@pytest.mark.parametrize("read", [table_of, in_shards])
def test_a_total_of_tokens_is_whole(tmp_path, read):
    rows = [*steps("a")[:-1], {**steps("a")[-1], "total_tokens": 5.5}]
    table = read([write_lines(tmp_path / "log.jsonl", rows)], ReadReport())
    assert table.tokens.tolist() == [25.0]


@pytest.mark.parametrize("read", [table_of, in_shards])
def test_names_that_nothing_reads_are_noted(tmp_path, read):
    rows = [{**row, "latency_ms": 5, "run": None} for row in steps("a")]
    rows.append({"episode_id": "a", "step": 90, "type": "message", "content": "x", "model": "m"})
    report = ReadReport()
    read([write_lines(tmp_path / "log.jsonl", rows)], report)
    assert report.notes == {
        "steps with fields that nothing reads, of a file's first 500 lines: latency_ms, model": 8,
        "steps of a kind that is none of ours, kept as turns of that role, of a file's first 500 lines: message": 1,
    }
    report = ReadReport()
    later = [*(row for i in range(100) for row in steps(f"e{i}")), {**rows[-1], "episode_id": "e99"}]
    read([write_lines(tmp_path / "later.jsonl", later)], report)
    assert not report.notes


@pytest.mark.parametrize("read", [table_of, in_shards])
def test_names_of_many_files_and_of_lines_that_are_no_steps(tmp_path, read):
    files = []
    for i, extra in enumerate(({"b": 1, "c": 1}, {"c": 1, "b": 1}, {"d": 1})):
        path = write_lines(
            tmp_path / f"{i}.jsonl", [row for k in range(2) for row in steps(f"e{i}{k}", calls=1)]
        )
        lines = [json.dumps(json.loads(line) | extra) for line in path.read_text().splitlines()]
        dirt = ["{bad", '{"episode_id": null, "type": "x", "odd": 1}']
        path.write_text("\n".join([*dirt, *lines, *dirt]) + "\n")
        files.append(path)
    report = ReadReport()
    read(files, report)
    assert report.notes == {"steps with fields that nothing reads, of a file's first 500 lines: b, c, d": 30}


YES = (True, 1, 1.0, "true", "True", "1.0", "1", "yes", "PASSED")
NO = (False, 0, 0.0, -0.0, "false", "0", "No", "fail", "failure")
UNREAD = ("maybe", 0.5, 2, "", [1], {"a": 1}, "NaN")


@pytest.mark.parametrize("read", [table_of, in_shards])
def test_what_a_success_says(tmp_path, read):
    rows = [
        row if row["type"] != "episode_end" else {**row, "success": said}
        for i, said in enumerate((*YES, *NO, *UNREAD, None))
        for row in steps(f"e{i}")
    ]
    report = ReadReport()
    table = read([write_lines(tmp_path / "log.jsonl", rows)], report)
    assert table.success.tolist() == [1] * len(YES) + [0] * len(NO) + [-1] * (len(UNREAD) + 1)
    assert report.notes == {"successes that are neither true nor false, ignored": len(UNREAD)}


def test_numbers_too_large_for_a_step_or_a_count(tmp_path):
    """Steps that are no whole numbers are none, so the file's order holds; a total that is none is that of the steps."""
    for number in (1.7e18, 1e20, float("inf"), 2.5, 10**400):
        rows = [
            {
                **row,
                **({"step": number} if i == 3 else {}),
                **({"total_tokens": number} if "success" in row else {}),
            }
            for i, row in enumerate(steps("a"))
        ]
        table = same(write_lines(tmp_path / "log.jsonl", rows))
        assert (table.counts["unanswered"].tolist(), table.tokens.tolist()) == ([0], [25.0])


def test_a_reward_too_large_is_infinite(tmp_path):
    rows = [row | ({"reward": 10**400} if "reward" in row else {}) for row in steps("a")]
    path = write_lines(tmp_path / "log.jsonl", rows)
    for read in (table_of, in_shards):
        assert read([path], ReadReport()).nan_rewards == 1


@pytest.mark.parametrize("said", [True, 1, "true", 1.0])
def test_an_error_that_only_says_so_has_the_words_of_the_result(tmp_path, said):
    rows = [
        {**row, "error": said, "result": result} if row["type"] == "tool_result" else row
        for i, result in enumerate(("HTTP 503: connection timed out", "", None))
        for row in steps(f"e{i}")
    ]
    table = same(write_lines(tmp_path / "log.jsonl", rows))
    assert (table.tools["search"].failed, table.tools["search"].faults["tool"]) == (6, 2)
    assert table.tools["search"].kinds.shown(16, "(other)") == {
        "HTTP 503: connection timed out": 2,
        "error": 4,
    }


@pytest.mark.parametrize("said", [False, "false"])
def test_that_there_was_no_error_is_the_logs_word(tmp_path, said):
    """A file that begins `Error:` was read all the same; null says nothing, and then the text does."""
    rows = [
        {**row, "error": error, "result": "Error: no such thing"} if row["type"] == "tool_result" else row
        for i, error in enumerate((said, None))
        for row in steps(f"e{i}")
    ]
    table = same(write_lines(tmp_path / "log.jsonl", rows))
    assert (table.tools["search"].failed, table.error_flags_in_log) == (2, True)
    assert table.counts["failed"].tolist() == [0, 2]


def test_arguments_that_are_json_text_are_the_object(tmp_path):
    rows = [{**row, "args": json.dumps(row["args"])} if "args" in row else row for row in steps("a")]
    path = write_lines(tmp_path / "log.jsonl", [*rows, *({**row, "episode_id": "b"} for row in rows)])
    episodes, _ = read_episodes([path])
    assert [call.arguments for call in episodes[0].calls] == [{"q": 0}, {"q": 1}]
    same(path)
    odd = [
        {**row, "args": text} if "args" in row else row
        for text in ("{oops", "[1]", "find x")
        for row in steps(text)
    ]
    kept, _ = read_episodes([write_lines(tmp_path / "odd.jsonl", odd)])
    assert [e.calls[0].arguments for e in kept] == ["{oops", "[1]", "find x"]


def test_a_tool_named_by_half_a_surrogate_stops_nothing(tmp_path):
    rows = [{**row, "tool": "sea\ud83d"} if "tool" in row else row for row in steps("a")]
    path = write_lines(tmp_path / "log.jsonl", [*rows, *steps("b")])
    tables = [read([path], ReadReport()) for read in (table_of, in_shards)]
    assert [sorted(row.calls for row in table.tools.values()) for table in tables] == [[2, 2]] * 2


def test_numbers_of_one_name_do_not_hide_those_of_another(tmp_path):
    more = {"latency_s": "n/a", "duration_s": 0.25}
    table = same(write_lines(tmp_path / "log.jsonl", [{**row, **more} for row in steps("a")]))
    assert (table.tools["search"].timed, table.tools["search"].p50) == (2, 0.25)


def test_only_an_answered_call_is_told_of_by_the_log(tmp_path):
    orphan = {
        "episode_id": "a",
        "type": "tool_result",
        "step": 80,
        "tool": "calc",
        "result": "x",
        "error": "boom",
    }
    assert not same(write_lines(tmp_path / "log.jsonl", [*steps("a"), orphan])).error_flags_in_log


def test_a_parse_error_with_a_blank_error_has_words_of_ours(tmp_path):
    rows = [
        {
            "episode_id": "a",
            "type": "tool_parse_error",
            "step": 80,
            "tool": "search",
            "content": "{",
            "error": "",
        }
    ]
    table = same(write_lines(tmp_path / "log.jsonl", [*steps("a"), *rows]))
    assert table.tools["search"].kinds.shown(16, "(other)") == {"the call could not be parsed": 1}


@pytest.mark.parametrize("time", [float("nan"), float("inf"), "NaN", "soon"])
def test_a_time_that_is_none_leaves_the_others(tmp_path, time):
    rows = [{**row, "timestamp": time} if i == 0 else row for i, row in enumerate(steps("a"))]
    table = same(write_lines(tmp_path / "log.jsonl", rows))
    assert (table.time.tolist(), table.duration_s.tolist()) == ([1000.5], [2.5])

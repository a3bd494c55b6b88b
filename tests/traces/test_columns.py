"""The columnar engine makes the table the readers make, of clean logs and of every kind of dirt."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.traces.make import steps, write_lines
from trimtab.traces.columnar import language as columns_words
from trimtab.traces.columnar import shards as columns_shards
from trimtab.traces.columnar.engine import tabulate_steps
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.read import iter_episodes
from trimtab.traces.table.build import tabulate
from trimtab.traces.table.language import MARKS
from trimtab.traces.table.types import COUNTS, TraceTable

WORDS = [
    "привет", "Прогноз погоды на завтра", "今日は", "今日の天気はどうですか、晴れでしょうか", "good morning all", "ok 42", "42", "naïve — “quoted”", "日本 and thirty letters more",
    "I'm sorry, but I can't help with that.", "Well. Unfortunately, I cannot assist", "I can't find row 7", "They said I will not help", "Als KI: as an AI language model, nein",
    "x" * 239 + ". I can't help", "I can’t help you, мой друг, " * 20, "a" * 9 + "é",
    "\u0130 CAN'T HELP", "ελληνικά γράμματα", "한국어 텍스트 열 글자 이상입니다", "🚫 🙂", "\U00020000\U00020001",
    "调用 search_documents 工具，再看 Visual Studio Code", "查 \u00e9l\u00e8ve  two\nthree four 了", "Погода: one two, three four", "да one two three",
]  # fmt: skip
ERRORS = ["TimeoutError: 5 s", "HTTP 503", "Error: no row 7", "unknown tool x", "ValueError: bad", ""]


def both(path: Path) -> tuple[TraceTable, TraceTable, ReadReport, ReadReport]:
    by_record, by_column = ReadReport(), ReadReport()
    plain = tabulate(iter_episodes([path], by_record, "steps"))
    return plain, tabulate_steps([str(path)], by_column), by_record, by_column


def same(path: Path) -> TraceTable:
    plain, table, by_record, by_column = both(path)
    assert list(table.ids) == plain.ids
    for name in COUNTS:
        assert table.counts[name].tolist() == plain.counts[name].tolist(), name
    for name in (
        "reward",
        "tokens",
        "duration_s",
        "cost",
        "success",
        "truncated",
        "time",
        "wrong",
        "wrong_turn",
        "wrong_step",
    ):
        np.testing.assert_allclose(
            getattr(table, name), getattr(plain, name), rtol=1e-6, atol=1e-6, err_msg=name
        )
    for name in MARKS:
        assert table.marks[name].tolist() == plain.marks[name].tolist(), name
    for codes, names in (
        ("task", "tasks"),
        ("group", "groups"),
        ("stop", "stops"),
        ("first_error", "first_errors"),
    ):
        found = [[*getattr(t, names), None][code] for t in (table, plain) for code in getattr(t, codes)]
        assert found[: len(plain.ids)] == found[len(plain.ids) :], codes
    assert set(table.tools) == set(plain.tools)
    for name, row in plain.tools.items():
        other = table.tools[name]
        for field in (
            "calls",
            "failed",
            "unknown",
            "faults",
            "kinds",
            "episodes",
            "timed",
            "first",
            "last",
            "sum_ff",
            "sum_fc",
            "sum_cc",
        ):
            assert getattr(other, field) == getattr(row, field), (name, field)
        for figure in ("p50", "p95", "p99", "p95_low", "p95_high"):
            np.testing.assert_allclose(getattr(other, figure), getattr(row, figure), rtol=1e-4)
        mine, theirs = table.tool_names.index(name), plain.tool_names.index(name)
        assert (table.used[:, mine] == plain.used[:, theirs]).all()
        assert (table.erred[:, mine] == plain.erred[:, theirs]).all()
    assert table.nan_rewards == plain.nan_rewards
    assert by_column.num_malformed == by_record.num_malformed
    assert sorted(by_column.problems) == sorted(by_record.problems)
    assert by_column.notes == by_record.notes
    assert by_column.num_lines == by_record.num_lines
    assert set(table.evidence) == set(plain.evidence)
    for what, places in table.evidence.items():
        if what != "loop_calls":  # each engine takes its own first five where there are more
            known = {(e.episode, e.step) for e in plain.evidence[what]}
            assert len(places) == len(plain.evidence[what])
            if len(places) < 5:
                assert {(e.episode, e.step) for e in places} == known, what
    return table


def random_log(rng: random.Random, episodes: int, dirt: float, words: bool = False) -> list[dict[str, Any]]:
    """Interleaved episodes with parallel calls, orphans, repeats, loops, parse errors and missing fields."""
    open_now: list[list[dict[str, Any]]] = []
    for number in range(episodes):
        rows: list[dict[str, Any]] = []
        for _ in range(rng.randint(0, 12)):
            kind = rng.choice(
                [
                    "tool_call",
                    "tool_call",
                    "tool_result",
                    "tool_result",
                    "assistant_message",
                    "user_message",
                    "tool_parse_error",
                    "other",
                ]
            )
            row: dict[str, Any] = {
                "type": kind,
                "tool": rng.choice(["a", "b", "c", None, ""]) if "tool" in kind else None,
            }
            if kind == "tool_call":
                row["args"] = rng.choice([{"q": 1}, {"q": 2}, None, "text", [1, 2]])
            if kind == "tool_result":
                row |= {
                    "result": rng.choice(["r", "s", "Error: in text 5", {"x": 1}, None]),
                    "error": rng.choice([None, None, *ERRORS]),
                }
            if "message" in kind:
                row["content"] = rng.choice(["hello", "", " ", None, *(WORDS if words else ())])
            if words and rng.random() < 0.5:
                row["type"] = {
                    "user_message": "user",
                    "assistant_message": "assistant",
                    "other": "system",
                }.get(kind, kind)
                if kind == "other":
                    row["content"] = rng.choice(WORDS)
                if kind == "tool_result":
                    row["result"] = rng.choice(WORDS)
            rows.append(row)
        if rng.random() < 0.2:
            pair = [
                {"type": "tool_call", "tool": "l", "args": {"z": 1}},
                {"type": "tool_result", "tool": "l", "result": "same"},
            ]
            rows += [dict(row) for _ in range(rng.randint(2, 5)) for row in pair]
        if rng.random() < 0.8:
            end = {
                "type": "episode_end",
                "reward": rng.choice([0, 1, 0.5, None]),
                "success": rng.choice([True, False, None]),
                "total_tokens": rng.choice([None, 50]),
                "total_cost": rng.choice([None, 0.25, "0.5"]),
            }
            rows.append(
                end
                | {
                    "metadata": rng.choice(
                        [
                            {},
                            {
                                "task_id": f"t{number % 7}",
                                "group_id": rng.choice([None, f"g{number % 3}"]),
                                "stop_reason": rng.choice(["stop", "max_steps"]),
                            },
                            None,
                        ]
                    )
                }
            )
        if rows and rng.random() < 0.3:
            said = {rng.choice(["task_id", "prompt_id", "group"]): f"r{number % 3}"}
            rows[rng.choice([0, 0, -1])] |= said if rng.random() < 0.5 else {"metadata": said}
        loose = rng.random() < dirt
        for i, row in enumerate(rows):
            row |= {
                "episode_id": f"e{number}",
                "step": None if loose and rng.random() < 0.3 else i,
                "timestamp": 1e9 + number + 0.25 * i,
            }
            row["tokens"] = rng.choice([None, 7, 20])
        if rng.random() < dirt and rows:
            rows += [dict(rng.choice(rows)) for _ in range(2)]
            rng.shuffle(rows)
        open_now.append(rows)
    mixed = []
    while open_now := [rows for rows in open_now if rows]:
        mixed.append(rng.choice(open_now[:4]).pop(0))
    return mixed


@pytest.mark.parametrize("seed", range(12))
def test_random_logs_give_the_same_table(tmp_path, seed, monkeypatch):
    monkeypatch.setattr(columns_shards, "SHARD_BYTES", 30_000)
    rng = random.Random(seed)
    same(write_lines(tmp_path / "log.jsonl", random_log(rng, 60, 0.0 if seed < 3 else 0.3)))


@pytest.mark.parametrize("kind", ["user_message", "assistant_message", "tool_result"])
def test_only_the_first_20_000_characters_of_a_text_have_a_script(tmp_path, kind):
    late = [
        "ab " * 6_666 + "конец",
        "ab " * 6_666 + "c конец",
        "я" * 20_000 + "end of it all",
        "Z" + "я" * 20_001,
    ]
    log = [
        {"episode_id": f"e{i}", "step": step, "type": type, "content": text}
        for i, one in enumerate(late)
        for step, (type, text) in enumerate(
            [
                ("user_message", "42!"),
                (kind, one),
                ("assistant_message", "this is the end, of it all, at last"),
                ("episode_end", None),
            ]
        )
    ]
    table = same(write_lines(tmp_path / "log.jsonl", log))
    wanted = {"user_message": [0, 0, 1, 0], "assistant_message": [0, 0, 1, 1], "tool_result": [0, 0, 0, 0]}
    assert table.marks["switches"].tolist() == wanted[kind]


@pytest.mark.parametrize("seed", range(3))
def test_words_of_many_scripts_and_refusals_are_told_alike(tmp_path, seed, monkeypatch):
    monkeypatch.setattr(columns_shards, "SHARD_BYTES", 300_000)
    monkeypatch.setattr(columns_words, "_BATCH", 5_000)
    table = same(write_lines(tmp_path / "log.jsonl", random_log(random.Random(seed), 300, 0.2, words=True)))
    assert table.marks["switches"].sum() > 5
    assert table.marks["refusals"].sum() > 5


def test_dirty_lines_are_located_the_same_and_surrogates_are_read_after_all(tmp_path):
    good = [json.dumps(row).encode() for name in "abc" for row in steps(name)]
    bad = [
        b"{oops",
        b"[1]",
        b'"x"',
        b"null",
        b'{"type": "tool_call"}',
        b'{"episode_id": "z"}',
        b"\xff\xfe",
        b'{"episode_id": "a", "ty',
    ]
    surrogate = b'{"episode_id": "a", "type": "tool_call", "tool": "search", "args": "\\ud800", "step": 99, "timestamp": 1099.0}'
    lines = [line for pair in zip(good, [*bad, surrogate, *[b"", b"  "] * 20], strict=False) for line in pair]
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join(lines))
    table = same(path)
    assert table.counts["calls"][0] == 3


def test_times_as_text_and_milliseconds(tmp_path):
    for convert in (
        lambda s: f"2024-05-01T00:00:{s:06.3f}Z",
        lambda s: f"2024-05-01 00:00:{s:06.3f}",
        lambda s: 1.7e12 + 1000 * s,
    ):
        rows = [row | {"timestamp": convert(row["timestamp"] - 1000)} for row in steps("a")]
        table = same(write_lines(tmp_path / "log.jsonl", rows))
        assert table.tools["search"].p50 == pytest.approx(0.5, abs=1e-3)


def test_a_gzip_file_nan_rewards_and_numbers_as_text(tmp_path):
    rows = (
        steps("a", reward=float("nan"))
        + steps("b")
        + [{"episode_id": 7, "type": "tool_call", "tool": "x", "step": "0", "tokens": "12"}]
    )
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    table = same(path)
    assert table.nan_rewards == 1
    assert list(table.ids) == ["a", "b", "7"]


def test_an_episode_that_never_says_step_0_nor_ends(tmp_path):
    same(
        write_lines(
            tmp_path / "log.jsonl",
            [{"episode_id": "late", "type": "tool_call", "tool": "a", "step": 5}, *steps("b")],
        )
    )


def test_empty_and_one_line(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("")
    assert tabulate_steps([str(path)], ReadReport()).num_episodes == 0
    same(write_lines(path, steps("a")[:1]))


def test_many_tools_are_gathered(tmp_path):
    rows = [{"episode_id": "e", "type": "tool_call", "tool": f"t{i}", "step": i} for i in range(80)]
    plain, table, _, _ = both(write_lines(tmp_path / "log.jsonl", rows))
    assert set(table.tools) == set(plain.tools)
    assert table.tools["(other)"].calls == plain.tools["(other)"].calls == 16


def _asked(number: int, end: dict[str, Any] | None = None, **said: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"type": kind.removesuffix("2"), "content": text} for kind, text in said.items()
    ]
    rows += [{"type": "assistant_message", "content": f"answer {number}"}]
    rows += [{"type": "episode_end", "reward": float(number % 2), **(end or {})}]
    return [{"episode_id": f"e{number}", "step": step, **row} for step, row in enumerate(rows)]


def test_attempts_at_one_prompt_are_a_group_where_the_log_names_none(tmp_path):
    log = [
        *_asked(0, system="be kind", user_message="2+2?"),
        *_asked(1, system="be terse", user_message="2+2?"),
        *_asked(2, system="be kind", user_message="2+2?"),
        *_asked(3, system="be kind", user_message="2+2? "),
        *_asked(4, user_message=" \u3000", user_message2="more"),
        *_asked(5, user_message="more"),
        *_asked(6, user_message="more", user_message2="and more"),
        *_asked(7, user_message="\n"),
        *_asked(8, system="be kind"),
        *_asked(9, user_message="2+2?", system="be kind"),
        *_asked(10, system="be terse", user="2+2?"),
        *_asked(11, {"metadata": {"task_id": "t"}}, user_message="more"),
        *_asked(12, {"group": "g"}, user_message="more"),
    ]
    table = same(write_lines(tmp_path / "log.jsonl", log))
    names = [*table.groups, None]
    assert [names[code] for code in table.group] == [
        "prompt of episode e0", "prompt of episode e1", "prompt of episode e0", None, "prompt of episode e4", "prompt of episode e4",
        None, None, None, None, "prompt of episode e1", "t", "g",
    ]  # fmt: skip
    assert table.by_prompt == 6


def test_content_of_parts_is_read_as_its_words(tmp_path):
    def parts(text: str) -> list[dict[str, Any]]:
        return [{"type": "text", "text": text}]

    log = []
    for i, (asked, said, result) in enumerate(
        [("2+2?", "I'm sorry, but I can't help with that.", "ok"), ("Прогноз погоды", "今日の天気はどうですか、晴れ", "ok"), ("2+2?", "  ", "Error: boom"),
         ("2+2?", "[{not a list}]", '[{"a": 1}]')]
    ):  # fmt: skip
        rows = [
            ("user_message", parts(asked), {}),
            ("tool_call", None, {"tool": "t", "args": {"q": parts("x")}}),
        ]
        rows += [("tool_result", None, {"tool": "t", "result": parts(result) if i < 3 else result})]
        rows += [("assistant_message", parts(said), {}), ("episode_end", None, {"reward": 0})]
        log += [
            {"episode_id": f"e{i}", "step": step, "type": kind, "content": text, **more}
            for step, (kind, text, more) in enumerate(rows)
        ]
    path = write_lines(tmp_path / "log.jsonl", log)
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:3], b"", b"{oops", b"", *lines[3:]]) + b"\n")
    table = same(path)
    assert table.marks["refusals"].tolist() == [1, 0, 0, 0]
    assert table.marks["switches"].tolist() == [0, 1, 0, 0]
    assert table.counts["failed"].tolist() == [0, 0, 1, 0]
    assert table.counts["void_turns"].tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(
    "kinds",
    [
        ("user", "assistant", "tool", "system"),
        ("user_message", "assistant_message", "tool_result", "system_message"),
    ],
)
def test_roles_are_read_as_kinds_of_steps_and_the_other_way_round(tmp_path, kinds):
    user, assistant, tool, system = kinds
    rows = [
        {"type": system, "content": "s"},
        {"type": user, "content": "q"},
        {"type": "tool_call", "tool": "t", "args": {}},
    ]
    rows += [
        {"type": tool, "tool": "t", "content": "Error: boom"},
        {"type": assistant, "content": "a"},
        {"type": "episode_end"},
    ]
    path = write_lines(
        tmp_path / "log.jsonl", [{"episode_id": "e", "step": i, **row} for i, row in enumerate(rows)]
    )
    table = same(path)
    assert [int(table.counts[name][0]) for name in ("turns", "calls", "failed", "unanswered")] == [2, 1, 1, 0]
    (episode,) = iter_episodes([path], ReadReport(), "steps")
    assert [turn.role for turn in episode.turns] == ["system", "user", "assistant", "assistant"]


def test_prompts_that_come_again_by_chance_make_no_groups(tmp_path):
    log = [row for i in range(9) for row in _asked(i, user_message="hello" if i < 4 else f"question {i}")]
    table = same(write_lines(tmp_path / "log.jsonl", log))
    assert (table.groups, table.by_prompt, table.group.tolist()) == ([], 0, [-1] * 9)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    ("name", "column", "names"),
    [("task_id", "task", "tasks"), ("task", "task", "tasks"), ("prompt_id", "task", "tasks"), ("group_id", "group", "groups"),
     ("group", "group", "groups"), ("stop_reason", "stop", "stops"), ("termination_reason", "stop", "stops")],
)  # fmt: skip
def test_an_end_names_task_group_and_stop_in_its_metadata_or_beside_it(tmp_path, inside, name, column, names):
    said = {"metadata": {name: "x"}, name: None} if inside else {"metadata": {name: "y"}, name: "x"}
    table = same(write_lines(tmp_path / "log.jsonl", _asked(0, said, user_message="q")))
    assert [getattr(table, names)[code] for code in getattr(table, column)] == ["x"]

"""Step logs to tables, clean ones and every kind of dirt, in one piece and in shards alike."""

from __future__ import annotations

import gzip
import json
import random
from typing import Any

import pytest

from tests.traces.make import steps, write_lines
from tests.traces.sharding import in_shards, random_log, same
from trimtab.errors import TraceError
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.read import iter_episodes


@pytest.mark.parametrize("seed", range(6))
def test_random_logs_give_the_same_table(tmp_path, seed):
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
def test_words_of_many_scripts_and_refusals_are_told_alike(tmp_path, seed):
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
    with pytest.raises(TraceError, match="holds no record"):
        in_shards([path], ReadReport())
    same(write_lines(path, steps("a")[:1]))


def test_many_tools_are_gathered(tmp_path):
    rows = [{"episode_id": "e", "type": "tool_call", "tool": f"t{i}", "step": i} for i in range(80)]
    table = same(write_lines(tmp_path / "log.jsonl", rows))
    assert table.tools["(other)"].calls == 16


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

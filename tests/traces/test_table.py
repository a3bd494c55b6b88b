"""The table of the checks: what each planted thing counts, and what it does not."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from trimtab.traces.core.episode import Call, Episode, Turn
from trimtab.traces.errors.attribution import fault_of
from trimtab.traces.errors.kinds import error_kind_of
from trimtab.traces.table.build import tabulate
from trimtab.traces.table.loops import MAX_PERIOD, MIN_ROUNDS, longest_loop, num_repeats
from trimtab.traces.table.schema_check import misfit, schemas_by_name
from trimtab.traces.table.types import MAX_TOOLS, OTHER


def episode(*calls: Call, id: str = "e", **fields) -> Episode:
    return Episode(id=id, turns=[Turn(role="assistant", calls=list(calls), step=1)], **fields)


def _brute(keys):
    best = 0
    for start, period in itertools.product(range(len(keys)), range(1, MAX_PERIOD + 1)):
        end = start + period
        while end < len(keys) and keys[end] == keys[end - period]:
            end += 1
        if end - start >= MIN_ROUNDS * period:
            best = max(best, end - start)
    return best


def test_loops_against_brute_force():
    rng = random.Random(0)
    for _ in range(2_000):
        keys = [rng.choice("ab" if rng.random() < 0.7 else "abc") for _ in range(rng.randint(0, 14))]
        found = longest_loop(keys)
        assert found.calls == _brute(keys), keys
        if found.calls:
            block = keys[found.start : found.start + found.period]
            stretch = keys[found.start : found.start + found.calls]
            assert stretch == list(itertools.islice(itertools.cycle(block), found.calls))


def test_twice_is_no_loop_and_three_times_is():
    assert longest_loop("abab") == longest_loop("xaab") == (0, 0, 0)
    assert longest_loop("abababa") == (7, 0, 2)


def test_identical_is_arguments_and_result_not_the_tool():
    table = tabulate([
        episode(Call(name="a", arguments={"x": 1}, result="r"), Call(name="a", arguments={"x": 2}, result="r")),
        episode(Call(name="a", arguments={"x": 1}, result="r"), Call(name="a", arguments={"x": 1}, result="s")),
        episode(*[Call(name="a", arguments={"x": 1}, result="r")] * 3),
    ])  # fmt: skip
    assert table.counts["repeats"].tolist() == [0, 0, 2]
    assert table.counts["loop_calls"].tolist() == [0, 0, 3]
    assert table.evidence["loop_calls"][0].text.startswith("3 calls in a block of 1, from a(")
    assert num_repeats([]) == 0


def test_every_column_of_one_episode():
    tools = [{"type": "function", "function": {"name": "a", "parameters": {"required": ["x"]}}}]
    calls = [
        Call(name="a", arguments={"x": 1}, result="ok", latency_s=2.0, step=3),
        Call(name="a", arguments={}, result="HTTP 503", error="HTTP 503", error_from="log", step=4),
        Call(name="b", arguments=None, step=5),
        Call(name="a", bad_arguments="{", error="no JSON", error_from="parse", step=6),
    ]
    turns = [Turn(role="assistant", content=" ", step=0), Turn(role="user", content="")]
    one = Episode(
        id="e",
        turns=[*turns, Turn(role="assistant", calls=calls)],
        tools=tools,
        reward=math.nan,
        success=True,
        task="t",
        stop_reason="Max-Tokens",
        source="f:1",
    )
    table = tabulate([one])
    assert {name: int(values[0]) for name, values in table.counts.items()} == {
        "turns": 2, "calls": 4, "failed": 2, "tool_faults": 1, "bad_arguments": 1, "unknown_tools": 1, "schema_errors": 1,
        "repeats": 0, "loop_calls": 0, "void_turns": 1, "unanswered": 1, "empty_answers": 0,
    }  # fmt: skip
    assert (table.truncated[0], table.success[0], table.nan_rewards, table.tasks, table.stops) == (
        1,
        1,
        1,
        ["t"],
        ["Max-Tokens"],
    )
    assert table.first_errors == ["a: HTTP 503"]
    row = table.tools["a"]
    assert (row.calls, row.failed, row.timed, row.p50, dict(row.faults)) == (
        3,
        2,
        1,
        2.0,
        {"tool": 1, "policy": 1},
    )
    assert (row.sum_ff, row.sum_fc, row.sum_cc) == (4, 6, 9)
    assert [e.step for e in table.evidence["unknown_tools"]] == [5]
    assert table.evidence["schema_errors"][0].text.startswith("'x' is missing in a(")
    assert table.evidence["failed"][0].source == "f:1"
    assert table.num_checked_schemas == 2


def test_no_schema_is_no_verdict_on_names():
    table = tabulate(
        [
            episode(
                Call(
                    name="made_up", result="Error: unknown tool made_up", error="Error: unknown tool made_up"
                )
            ),
            episode(Call(name="x", result="1")),
        ]
    )
    assert table.counts["unknown_tools"].tolist() == [1, 0]
    assert table.num_checked_schemas == 0


def test_made_up_names_are_gathered():
    table = tabulate([episode(*[Call(name=f"t{i}", result="") for i in range(MAX_TOOLS + 5)])])
    assert len(table.tools) == MAX_TOOLS + 1
    assert table.tools[OTHER].calls == 5
    assert sum(row.calls for row in table.tools.values()) == MAX_TOOLS + 5
    assert table.used.sum() == MAX_TOOLS + 1


def test_empty_and_absent():
    table = tabulate([])
    assert table.num_episodes == 0
    assert table.used.shape == (0, 0)
    table = tabulate([Episode(id="e")])
    assert math.isnan(table.reward[0])
    assert (table.success[0], table.truncated[0], table.task[0], table.nan_rewards) == (-1, -1, -1, 0)


@pytest.mark.parametrize(
    ("rewards", "successes", "solved_at", "expected", "source"),
    [
        ([1.0, 0.0, None], [None] * 3, None, [1, 0, -1], "reward of 1"),
        ([0.7, 0.0, None], [None] * 3, None, [-1, -1, -1], ""),
        ([0.7, 0.2, None], [None] * 3, 0.5, [1, 0, -1], "reward of at least 0.5"),
        ([0.7, 0.2, None], [False, True, None], None, [0, 1, -1], "the log's success"),
        ([math.nan, 1.0, 0.0], [None] * 3, None, [-1, 1, 0], "reward of 1"),
    ],
)
def test_what_counts_as_solved(rewards, successes, solved_at, expected, source):
    table = tabulate(
        [
            Episode(id=str(i), reward=r, success=s)
            for i, (r, s) in enumerate(zip(rewards, successes, strict=True))
        ]
    )
    solved, where = table.solved(solved_at)
    assert solved.tolist() == expected
    assert where.startswith(source)
    assert bool(where) == bool(source)


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"q": "a", "n": 1}, ""), ({"q": "a", "n": 1.0}, ""), ({"q": "a", "n": 1.5}, "'n' is not of type integer"),
        ({"q": "a", "n": True}, "'n' is not of type integer"), ({"q": None}, ""), ({"q": 1}, "'q' is not of type string or null"),
        ({"q": "a", "k": "z"}, "'k' is none of its choices"), ({}, "'q' is missing"), ([1], "the arguments are no object"),
        (None, "'q' is missing"), ({"q": "a", "new": 1}, ""),
    ],
)  # fmt: skip
def test_schema(arguments, wrong):
    schema = {
        "properties": {
            "q": {"type": ["string", "null"]},
            "n": {"type": "integer"},
            "k": {"enum": ["x"]},
            "new": 7,
        },
        "required": ["q"],
    }
    assert misfit(arguments, schema) == wrong


def test_schemas_of_any_shape():
    odd = [
        {},
        {"function": 3},
        {"name": 5},
        {"function": {"name": "f", "parameters": "x"}},
        {"name": "g", "input_schema": {"a": 1}},
    ]
    assert schemas_by_name(odd) == {"f": {}, "g": {"a": 1}}
    assert misfit({"x": 1}, {"properties": [], "required": "x"}) == ""


def test_kinds_and_faults():
    assert error_kind_of("Error: payment of 375, but paid 299") == error_kind_of(
        "Error: payment of 12, but paid 3"
    )
    assert error_kind_of("") == "error"
    assert error_kind_of("requests.exceptions.ReadTimeout: 5 s") == "requests.exceptions.ReadTimeout"
    for text, whose in (
        ("Read timed out", "tool"), ("HTTP 429 Too Many Requests", "tool"), ("HTTP 404 Not Found", "policy"), ("KeyError: 'x' is missing", "policy"),
        ("flight HAT030 not available on date 2024-05-13", "policy"), ("not enough seats", "policy"), ("oops", "unknown"),
    ):  # fmt: skip
        assert fault_of(text) == whose, text


def test_evidence_shows_the_error_that_was_counted():
    """A time-out in a field beside the output so far; an error without any result."""
    calls = [
        Call(
            name="bash", arguments={"cmd": "ls"}, result="a.txt", error="timed out", error_from="log", step=1
        ),
        Call(name="get", error="HTTP 503", error_from="log", step=2),
        Call(name="get", result="ok", step=3),
    ]
    table = tabulate([episode(*calls)])
    assert table.evidence["failed/bash"][0].text == 'bash({"cmd": "ls"}) -> timed out'
    assert table.evidence["failed/get"][0].text == "get() -> HTTP 503"
    assert [e.text for e in table.evidence["tool_faults"]] == ['bash({"cmd": "ls"}) -> timed out']

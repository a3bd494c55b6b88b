"""Two logs: a planted difference is found, also under different tasks; none is found where there is none."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.report.test_trace_diagnosis import run
from tests.traces.make import write_lines
from tests.traces.test_table import episode
from trimtab.report.traces.compare import compare_tables
from trimtab.traces.core.episode import Call, Episode
from trimtab.traces.native.native_format import dump_episode
from trimtab.traces.table.build import tabulate
from trimtab.traces.table.merge import joined
from trimtab.traces.table.types import COUNTS


def log(seed: int, extra_calls: float, tools=("a", "b"), tasks: int = 20, each: int = 5) -> list[Episode]:
    rng = np.random.default_rng(seed)
    found = []
    for task in range(tasks):
        for i in range(each):
            n = rng.poisson(2 + task / 4 + extra_calls)
            calls = [Call(name=str(rng.choice(tools)), arguments={"k": k}, result="x") for k in range(n)]
            found.append(episode(*calls, id=f"{task}/{i}", task=f"t{task}", reward=float(rng.random() < 0.5)))
    return found


def test_joined_is_the_table_of_both_logs():
    a, b = log(0, 0.0), log(1, 1.0, tools=("b", "c"), tasks=25)
    both, expected = joined(tabulate(a), tabulate(b)), tabulate(a + b)
    assert (both.ids, both.tasks, both.tool_names) == (expected.ids, expected.tasks, expected.tool_names)
    for name in ("task", "reward", "success", "used", "erred", "stop", "first_error"):
        np.testing.assert_array_equal(getattr(both, name), getattr(expected, name))
    for name in COUNTS:
        np.testing.assert_array_equal(both.counts[name], expected.counts[name])


def test_nothing_differs_where_nothing_does_and_a_planted_difference_is_found():
    wrong = sum(
        compare_tables(tabulate(log(2 * i, 0.0)), tabulate(log(2 * i + 1, 0.0)))["exit_code"]
        for i in range(30)
    )
    assert wrong <= 4
    found = compare_tables(tabulate(log(1, 1.5)), tabulate(log(2, 0.0)))
    assert (found["verdict"], found["exit_code"], found["shared_tasks"]) == ("different", 1, 20)
    calls = next(row for row in found["contrasts"] if row["name"] == "tool calls")
    assert calls["real_within"]
    assert calls["within_low"] < 1.5 < calls["within_high"]
    assert calls["mixed"] == 20
    assert found["outcome"]["name"] == "is solved"


def test_the_command(tmp_path):
    paths = []
    for name, extra, tools in (("a", 2.0, ("a", "only")), ("b", 0.0, ("a", "b"))):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(dump_episode(e) + "\n" for e in log(5, extra, tools)))
        paths.append(path)
    code, text = run("compare", *paths)
    assert code == 1
    assert text.startswith("DIFFERENT: A against B")
    assert "tool calls: " in text
    assert "tools called in A only: only" in text
    code, text = run("compare", *paths, "--json")
    assert json.loads(text)["exit_code"] == code == 1
    assert run("compare", paths[0], paths[0])[0] == 0
    few = write_lines(tmp_path / "few.jsonl", [{"trimtab": 1, "id": "x"}])
    code, text = run("compare", few, few)
    assert code == 2
    assert "fewer than 10 episodes" in text


def test_episodes_that_name_no_task_are_not_called_tasks(tmp_path):
    for name, solved in (("a", 5), ("b", 35)):
        rows = [{"trimtab": 1, "id": str(i), "reward": float(i < solved)} for i in range(40)]
        write_lines(tmp_path / f"{name}.jsonl", rows)
    code, text = run("compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert code == 1
    assert "80 episodes, of which none names its task: different" in text
    assert "no task is named; 0 other features" in text


def test_an_empty_side_is_an_error(tmp_path):
    from trimtab.errors import TraceError
    from trimtab.report.traces.compare import compare_traces

    few = write_lines(tmp_path / "few.jsonl", [{"trimtab": 1, "id": "x"}])
    bad = write_lines(tmp_path / "bad.jsonl", [{"trimtab": 1, "id": 3}])
    with pytest.raises(TraceError, match="no episode to compare"):
        compare_traces([few], [bad])


def test_rewards_stand_in_where_one_side_alone_says_what_is_solved(tmp_path):
    """A has rewards between 0 and 1, B has a success as well: their mean rewards can be compared, what is solved cannot."""
    for name, base, more in (("a", 0.1, {}), ("b", 0.7, {"success": True})):
        rows = [
            {"trimtab": 1, "id": str(i), "task": str(i // 4), "reward": base + 0.05 * (i % 4), **more}
            for i in range(60)
        ]
        write_lines(tmp_path / f"{name}.jsonl", rows)
    code, text = run("compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert code == 1
    assert "  mean reward: A 0.175 of 60, B 0.775 of 60" in text
    assert "not observed" not in text

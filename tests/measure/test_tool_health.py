"""Tools by their records: against plain Python over the list of calls, live, resumed and merged over ranks."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

import trimtab
from tests.measure.episodes import on_disk
from tests.support import make_batch
from trimtab import RunError, ToolCall
from trimtab.measure.sequences.tool_health import MAX_SHOWN, MAX_TOOLS, MAX_VALUES, ToolHealth
from trimtab.measure.state.requirements import Requirements
from trimtab.report.run_view import load_view

DECLARED = {
    "required_tools": ["search", "docs"],
    "key_arguments": {"read_file": "path"},
    "required_files": ["./AGENTS.md", "src/a.py"],
}


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def calls_of(rng, steps, per_step=9):
    """Steps of random calls: search, stock and read_file with some failures."""
    table = []
    for step in range(steps):
        row = []
        for _ in range(per_step):
            name = str(rng.choice(["search", "stock", "read_file"]))
            error = str(rng.choice(["", "", "Timeout: slow", "KeyError: 'x'"]))
            arguments = {"path": str(rng.choice(["src/a.py", "src/b.py"]))} if name == "read_file" else {}
            row.append(
                ToolCall(name, arguments, int(rng.integers(0, 500)), error, float(rng.exponential(0.2)), step)
            )
        table.append(row)
    return table


def write(folder, table, steps, **open_with):
    with trimtab.open_run(folder, strict=True, **open_with) as run:
        for step in steps:
            run.observe(make_batch(np.random.default_rng(step), sequences=4, step=step))
            for call in table[step]:
                run.tool_call(call)
            run.flush(step)
    return on_disk(folder)


def test_per_tool_numbers_against_the_calls(rng, tmp_path):
    table = calls_of(rng, 20)
    found = write(tmp_path / "run", table, range(20), **DECLARED)
    for window in (0, 1):
        calls = [call for row in table[10 * window : 10 * window + 10] for call in row]
        for name in ("search", "stock", "read_file"):
            mine = [call for call in calls if call.name == name]
            values = {key: found[f"tool/{name}", key][window] for (s, key) in found if s == f"tool/{name}"}
            assert values["tools/calls"].value == len(mine)
            assert values["tools/share"].value == pytest.approx(len(mine) / len(calls))
            assert values["tools/calls_per_episode"].value == pytest.approx(len(mine) / 40)
            assert values["tools/failure_frac"].value == pytest.approx(np.mean([bool(c.error) for c in mine]))
            for label, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
                exact = np.sort([c.latency_s for c in mine])[math.ceil(q * len(mine)) - 1]
                assert values[f"tools/latency_{label}_s"].value == pytest.approx(exact, rel=0.016)
            sizes = np.sort([c.result_size for c in mine])
            assert values["tools/result_size_p50"].value == pytest.approx(
                sizes[math.ceil(len(mine) / 2) - 1], rel=0.016
            )
            kinds = Counter(c.error.split(":")[0] for c in mine if c.error)
            for kind, count in kinds.items():
                assert found[f"tool/{name}/error={kind}", "tools/failures"][window].value == count
        paths = Counter(c.arguments["path"] for c in calls if c.name == "read_file")
        for path, count in paths.items():
            assert found[f"tool/read_file/path={path}", "tools/calls"][window].value == count
        assert found["all", "aggregate/tool_calls"][window].value == pytest.approx(90 / 40)
        assert found["all", "aggregate/tool_failure_frac"][window].value == pytest.approx(
            np.mean([bool(c.error) for c in calls])
        )
        assert found["all", "aggregate/tool_latency_s"][window].value == pytest.approx(np.mean([c.latency_s for c in calls]), rel=1e-5)  # fmt: skip


def test_what_is_required_and_not_used_is_named(rng, tmp_path):
    found = write(tmp_path / "run", calls_of(rng, 10), range(10), **DECLARED)
    neglected = found["all", "tools/neglected"][0]
    assert neglected.value == 2
    assert neglected.reason == "docs: never called; AGENTS.md: never called"
    docs = found["tool/docs", "tools/calls"][0], found["tool/docs", "tools/steps_since_call"][0]
    assert [r.value for r in docs] == [0, 10]
    rate = found["tool/docs", "tools/failure_frac"][0]
    assert (rate.status, rate.n_tokens) == ("not observed", 0)
    assert found["file/src/a.py", "tools/calls"][0].value > 0


def test_rare_and_abandoned_tools():
    health = ToolHealth(Requirements(required_tools=["search", "docs"]))
    last = []
    for step in range(40):
        calls = [ToolCall("stock")] * 300
        calls += [ToolCall("docs")] if step % 10 == 0 else []
        calls += [ToolCall("search")] * 30 if step < 15 else []
        last = health.close(step, calls, 1) or last
    table = {(r.slice, r.key): r for r in last}
    assert table["tool/search", "tools/steps_since_call"].value == 25
    assert table["all", "tools/neglected"].reason == "search: abandoned since step 14; docs: 1 of 3001 calls"


def test_a_name_nobody_declared_is_not_abandoned_before_it_was_in_use():
    """A slip of the policy's, called once, is no tool it gave up."""
    health, last = ToolHealth(Requirements(required_tools=["docs"])), []
    for step in range(30):
        calls = [ToolCall("search")] + ([ToolCall("serach")] if step == 3 else [])
        last = health.close(step, calls, 1) or last
    since = {r.slice: r.value for r in last if r.key == "tools/steps_since_call"}
    assert since == {"tool/docs": 30, "tool/search": 0}


def test_tables_are_bounded(rng):
    health = ToolHealth(Requirements(key_arguments={"read_file": "path"}))
    for step in range(10):
        calls = [ToolCall(f"made_up_{step}_{i}", error=f"E{i}: x") for i in range(50)]
        calls += [ToolCall("read_file", {"path": f"{step}_{i}"}) for i in range(100)]
        readings = health.close(step, [calls[-1], *calls], 1)
    assert len(health.tools) == MAX_TOOLS + 1
    assert len(health.values["read_file", "path"]) == MAX_VALUES + 1
    names = {r.slice for r in readings}
    assert sum(name.startswith("tool/read_file/path=") for name in names) == MAX_SHOWN
    total = {r.slice: r.value for r in readings if r.key == "tools/calls" and r.slice.count("/") == 1}
    assert sum(total.values()) == 10 * 151


def test_a_resumed_run_remembers_when_tools_were_called(rng, tmp_path):
    table = calls_of(rng, 35)
    for step in range(12, 35):
        table[step] = [call for call in table[step] if call.name != "search"]
    whole = write(tmp_path / "whole", table, range(35), **DECLARED)
    write(tmp_path / "parts", table, range(17), **DECLARED)
    parts = write(tmp_path / "parts", table, range(17, 35), **DECLARED)
    assert parts["tool/search", "tools/steps_since_call"][-1].value == 29 - 11
    names = {k for k in whole if k[1].startswith("tools/")}
    assert names == {k for k in parts if k[1].startswith("tools/")}
    for key in names:
        assert [r.step for r in whole[key]] == [r.step for r in parts[key]]
        assert [r.value for r in whole[key]] == pytest.approx([r.value for r in parts[key]], nan_ok=True)


def test_merged_ranks_count_all_calls(rng, tmp_path):
    table = calls_of(rng, 10)
    for rank in range(2):
        with trimtab.open_run(tmp_path / "run", rank=rank, strict=True, **DECLARED) as run:
            for step in range(10):
                run.observe(make_batch(rng, sequences=4, step=step))
                for call in table[step][rank::2]:
                    run.tool_call(call)
                run.flush(step)
    view = load_view(tmp_path / "run")
    count = sum(call.name == "search" for row in table for call in row)
    assert [r.value for r in view.series("tools/calls", "tool/search")] == [count]
    assert view.series("tools/neglected", "all")[0].value == 2
    assert view.series("aggregate/tool_calls", "all")[0].value == pytest.approx(90 / 80)


def test_the_trainers_own_tool_numbers_go_first(tmp_path):
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        for step in range(10):
            run.tool_call(ToolCall("search", error="x"))
            run.flush(step, {"tool_failure_frac": 0.25})
    assert {r.value for r in on_disk(tmp_path / "run")["all", "aggregate/tool_failure_frac"]} == {0.25}


def test_declarations_that_cannot_hold_are_refused(tmp_path):
    with pytest.raises(RunError, match="key_arguments"):
        trimtab.open_run(tmp_path / "run", required_files=["a"])
    with pytest.raises(RunError, match="plain string"):
        trimtab.open_run(tmp_path / "run", required_tools="search")

"""Required tools that are no longer used: found by time, by policy and in rates; not where the order is the files' or chance."""

from __future__ import annotations

import numpy as np
import pytest

from tests.measure.test_traces import readings
from tests.traces.test_table import episode
from trimtab.detect.traces.rules import trace_findings
from trimtab.measure.state.requirements import Requirements
from trimtab.measure.traces.run_all import trace_readings
from trimtab.traces.core.episode import Call
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.table.build import tabulate
from trimtab.traces.table.required_files import RequiredFiles


def _log(uses, times=None, versions=None, tasks=None):
    return [
        episode(
            *([Call(name="search", result="x")] if use else []), Call(name="other", result="y"), id=f"e{i}",
            time=None if times is None else float(times[i]), policy_version=None if versions is None else versions[i],
            task=None if tasks is None else str(tasks[i]),
        )
        for i, use in enumerate(uses)
    ]  # fmt: skip


def _said(log):
    return readings(log, required_tools=["search"])["traces/neglected", "all"]


def test_a_stray_call_does_not_hide_that_a_tool_is_abandoned():
    uses = np.random.default_rng(0).random(400) < 0.7
    uses[200:] = False
    uses[380] = True
    one = _said(_log(uses))
    assert one.text == f"search abandoned: called in {uses[:200].sum()} of 200 episodes before, 1 of 200 episodes since episode e200 (p 0.002)"  # fmt: skip
    assert [f.rule.name for f in trace_findings([one])] == ["tool_neglected"]


def test_the_last_of_three_policies_abandons_it_whose_files_lie_interleaved():
    """Nothing says when; versions are step-8, step-9 and step-10, in the order of their names."""
    rng = np.random.default_rng(1)
    versions = np.sort(rng.permutation(np.repeat(["step-10", "step-8", "step-9"], 100)))
    uses = (rng.random(300) < 0.6) & (versions != "step-10")
    one = _said(_log(uses, versions=versions.tolist()))
    assert one.text == f"search abandoned: called in {uses.sum()} of 200 episodes before, 0 of 100 episodes since policy version step-10 (p 0.002)"  # fmt: skip
    assert _said(_log(uses)).reading.value == 0


def test_training_steps_are_an_order_where_no_policy_and_no_time_is_named():
    """As in a folder of dumps by step, read as 1, 10, 11, 12, 2, ..."""
    steps = [int(name) for name in sorted(str(step) for step in range(1, 13)) for _ in range(20)]
    log, new = _log([step <= 6 for step in steps]), _log([step > 6 for step in steps])
    for one, other, step in zip(log, new, steps, strict=True):
        one.step = other.step = step
    assert _said(new).reading.value == 0
    assert "called in 120 of 120 episodes before, 0 of 120 episodes since policy version step 7 (p 0.002)" in _said(log).text  # fmt: skip


def test_times_of_all_episodes_win_over_the_order_of_files():
    """Two ranks one after the other in the log; and a file of new episodes, with a new tool, before one of old ones."""
    uses = np.random.default_rng(2).random(200) < 0.8
    late = np.arange(200) % 100 >= 50
    assert "since episode e50 (p 0.002)" in _said(_log(uses & ~late, times=np.arange(200) % 100)).text
    assert _said(_log(uses & (np.arange(200) < 100), times=(np.arange(200) + 100) % 200)).reading.value == 0


def test_a_tool_that_some_tasks_need_is_not_abandoned_by_chance():
    rng, alarms = np.random.default_rng(3), 0
    for i in range(100):
        tasks = np.repeat(np.arange(20), 4) if i % 2 else np.tile(np.arange(20), 4)
        need = rng.choice([0.0, 0.9], 20, p=[0.8, 0.2])
        alarms += _said(_log(rng.random(80) < need[tasks], tasks=tasks)).reading.value > 0
    assert alarms <= 5


@pytest.mark.parametrize(("until", "text"), [(40, "named in 30 of 40 episodes before, 0 of 40"), (80, "")])
def test_files_are_judged_alike(until, text):
    names = ["a.md" if i < until and i % 4 else "b.md" for i in range(80)]
    log = [
        episode(Call(name="read", arguments={"path": n}, result="x"), id=str(i)) for i, n in enumerate(names)
    ]
    table = tabulate(log, RequiredFiles(["a.md"], {"read": "path"}))
    declared = Requirements(required_files=("a.md",), key_arguments={"read": "path"})
    found = {m.reading.key: m for m in trace_readings(table, ReadReport(), declared)}
    assert text in found["traces/neglected"].text
    assert found["traces/neglected"].reading.value == bool(text)


def test_rarely_is_in_few_episodes_and_not_in_few_of_the_calls():
    """An agent that ends each of 60 episodes with one `search` after 150 other calls uses it always."""
    ends = [
        episode(*[Call(name="other", result="y")] * 150, Call(name="search", result="x"), id=f"e{i}")
        for i in range(60)
    ]
    assert _said(ends).reading.value == 0
    rare = _said(_log([i in (3, 290) for i in range(300)]))
    assert rare.text == "search called rarely: in 2 of 300 episodes"

"""The kinds of errors that a tool's failures are shown by: the most frequent, in logs and in a run."""

from __future__ import annotations

from trimtab.measure.sequences.step_aggregates import STEP_WINDOW
from trimtab.measure.sequences.tool_health import ToolHealth
from trimtab.measure.traces.builder import Maker
from trimtab.measure.traces.outcomes import outcomes
from trimtab.measure.traces.tools import tool_readings
from trimtab.report.traces.trace_diagnosis import _tools
from trimtab.traces.core.episode import Call, Episode, Turn
from trimtab.traces.core.tool_call import ToolCall
from trimtab.traces.table.build import tabulate


def test_the_most_frequent_kinds_are_shown_though_rare_ones_come_first(tmp_path):
    """The log of the issue: most failures were "(other)", the most frequent kind among them."""
    words = [a + b for a in "abcdefghijklmnopqrstuvwxyz" for b in "abcdefghijklmnopqrstuvwxyz"]
    errors = [*words, *["sh: ```bash: command not found"] * 300, *["late"] * 200]
    calls = [Call(name="sh", result=text, error=text) for text in errors]
    log = [
        Episode(id=str(i), turns=[Turn(role="assistant", calls=[one])], success=i % 2 == 0)
        for i, one in enumerate(calls)
    ]
    table = tabulate(log)
    (row,) = [one for one in _tools(table) if one["tool"] == "sh"]
    assert list(row["kinds"].items())[:2] == [("sh: ```bash: command not found", 300), ("late", 200)]
    assert row["kinds"]["(other)"] == len(words) - 14
    assert (row["kinds_max_undercount"], sum(row["kinds"].values())) == (0, row["failed"])
    text = next(one for one in tool_readings(Maker(table)) if one.reading.key == "tools/failure_frac").text
    assert "300 x sh: ```bash: command not found; 200 x late" in text
    first = [one for one in outcomes(table, table.solved()[0]) if one.by == "first error"]
    assert [(one.name, one.episodes) for one in first[:2]] == [
        ("sh: sh: ```bash: command not found", 300),
        ("sh: late", 200),
    ]


def test_counts_that_are_not_exact_say_so():
    calls = [
        Call(name="sh", result="x", error=f"{a}{b}{c}")
        for a in "abcdefghijklm"
        for b in "abcdefghijklm"
        for c in "abcdefghijklm"
    ]
    calls += [Call(name="sh", result="x", error="late")] * 500
    table = tabulate([Episode(id="e", turns=[Turn(role="assistant", calls=calls)])])
    low, high = table.tools["sh"].kinds.bounds("late")
    assert low <= 500 < high
    text = next(one for one in tool_readings(Maker(table)) if one.reading.key == "tools/failure_frac").text
    assert f": {low} to {high} x late" in text


def test_live_kinds_are_the_most_frequent_of_the_window():
    health = ToolHealth()
    kinds = [*(f"{a}{b}" for a in "abcde" for b in "abcdefgh"), *["late"] * 30]
    calls = [ToolCall("sh", error="x", kind=kind) for kind in kinds]
    readings = [r for step in range(STEP_WINDOW) for r in health.close(step, calls if step == 0 else (), 1)]
    failures = {r.slice: r.value for r in readings if r.key == "tools/failures"}
    assert failures["tool/sh/error=late"] == 30
    assert failures["tool/sh/error=other"] == 40 - 15
    assert sum(failures.values()) == len(kinds)

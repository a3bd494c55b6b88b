"""What TRL 1.16 writes of completions that called tools: messages, in whose arguments Parquet fills in the fields of other calls."""

from __future__ import annotations

import pyarrow
import pyarrow.parquet

from trimtab.traces.read import read_episodes


def call(name, **arguments):
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}]}  # fmt: skip


def row(*completion):
    return {"step": 1, "prompt": [{"role": "user", "content": "?"}], "completion": list(completion), "exact": 1.0, "advantage": 0.5}  # fmt: skip


def test_arguments_are_those_that_were_given_and_a_tool_that_raised_failed(tmp_path):
    result = {"role": "tool", "name": "add", "content": "3"}
    raised = {"role": "tool", "name": "look", "content": "{'error': 'nothing at row 7'}"}
    rows = [
        row(call("add", a=1, b=2), result, {"role": "assistant", "content": "3."}),
        row(call("look", q={"at": 7}), raised, call("add", a=1, b=None), result),
    ]
    path = tmp_path / "completions_00001.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    (one, two), report = read_episodes([path])
    assert list(report.formats.values()) == ["trl"]
    assert [(c.name, c.arguments, c.result, c.error) for c in (*one.calls, *two.calls)] == [
        ("add", {"a": 1, "b": 2}, "3", ""),
        ("look", {"q": {"at": 7}}, "{'error': 'nothing at row 7'}", "{'error': 'nothing at row 7'}"),
        ("add", {"a": 1}, "3", ""),
    ]
    assert [turn.content for turn in one.turns] == ["?", "", "3."]
    (nulls,) = report.notes.values()
    assert nulls == 5  # q; a and b; b and q
    assert one.task == two.task

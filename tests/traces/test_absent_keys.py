"""Absence is data: a key that a log lacks is unknown in the record, not false, 0 or empty (issue 17.3)."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.traces import samples
from tests.traces.test_tau2 import INFO, call, run
from trimtab.errors import TraceError
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.read import read_episodes
from trimtab.traces.registry import FORMATS

UNKNOWN_IS_EMPTY = {"id", "name", "role", "error", "error_from", "source", "for_training", "step"}
"""Fields whose documented word for unknown is no None: empty text, -1 or False."""
EMPTY_IS_SAID = {"result"}
"""A result's message without text says that the tool answered nothing; None is a call without an answer."""


def _values(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _values(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _values(inner, (*at, index))
    else:
        yield at, value


def _without(value: Any, key: str) -> Any:
    """The value without a key, at every depth; an OpenTelemetry attribute of that name is left out too."""
    if isinstance(value, dict):
        return {name: _without(inner, key) for name, inner in value.items() if name != key}
    if isinstance(value, list):
        kept = (
            one for one in value if not (isinstance(one, dict) and one.get("key") == key and "value" in one)
        )
        return [_without(one, key) for one in kept]
    return value


def _keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["key"]} if isinstance(value.get("key"), str) and "value" in value else set()
        return own.union(value, *map(_keys, value.values()))
    return set().union(*map(_keys, value)) if isinstance(value, list) else set()


def _read(name: str, records: list[Any]) -> list[Any]:
    given = [Record("f", i, value) for i, value in enumerate(copy.deepcopy(records), 1)]
    return [msgspec.to_builtins(e, enc_hook=str) for e in FORMATS[name].read({})(given, ReadReport())]


@pytest.mark.parametrize("name", samples.RECORDS)
def test_a_key_that_is_absent_is_no_value(name):
    """Issue 17.3: no reader makes false, 0 or an empty text of a key that the log lacks."""
    records = samples.RECORDS[name]
    known = {repr(value) for _, value in _values(records)}
    for key in sorted(_keys(records)):
        try:
            episodes = _read(name, _without(records, key))
        except TraceError:
            continue  # another format without it
        for path, value in _values(episodes):
            field = next(part for part in reversed(path) if isinstance(part, str))
            if value in (False, 0, "") and field not in UNKNOWN_IS_EMPTY | EMPTY_IS_SAID:
                assert repr(value) in known, (key, path, value)


def test_an_error_is_looked_for_where_tau2_names_no_error_field(tmp_path):
    """Issue 17.3: tau2-bench's results without `error` are judged by their texts, as those of any other log."""
    texts = ["Error: user not found", "found"]
    messages = [{"role": "assistant", "content": None, "tool_calls": [call("a", "find"), call("b", "find")]}]
    messages += [
        {"id": i, "role": "tool", "content": text, "requestor": "assistant"}
        for i, text in zip("ab", texts, strict=True)
    ]
    (tmp_path / "r.json").write_text(
        json.dumps({"timestamp": "t", "info": INFO, "tasks": [], "simulations": [run(messages=messages)]})
    )
    (one,), _ = read_episodes([tmp_path / "r.json"])
    assert [(c.error, c.error_from) for c in one.calls] == [(texts[0], "text"), ("", "")]


@pytest.mark.parametrize("name", samples.RECORDS)
def test_no_log_says_that_a_call_went_well_without_a_field_that_does(name):
    """Issue 17.3: `error_from` is `log` only where the log has a field of errors, states or outcomes."""
    flags = {
        "error",
        "is_error",
        "isError",
        "status",
        "failed",
        "error_from",
        "state",
        "parse_error",
        "exit_code",
    }
    records = samples.RECORDS[name]
    for key in flags:
        records = _without(records, key)
    try:
        episodes = _read(name, records)
    except TraceError:
        return
    calls = [c for e in episodes for turn in e.get("turns", ()) for c in turn.get("calls", ())]
    assert not [c for c in calls if c.get("error_from") == "log"]

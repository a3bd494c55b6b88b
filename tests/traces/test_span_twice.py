"""Spans that come twice: exporters send again what was not acknowledged, and files overlap."""

from __future__ import annotations

import pytest

from tests.traces.make import write_lines
from tests.traces.spans import CALL, USER, chat, parts, read, tool
from trimtab.traces.read import read_episodes

SPANS = [
    chat("a", 1, [USER], [parts("assistant", CALL)], id="1", **{"gen_ai.usage.output_tokens": 4}),
    tool("a", 4, 1.5, id="2", **{"gen_ai.tool.call.id": "c1", "gen_ai.tool.call.result": "rainy"}),
    chat("a", 6, [], [parts("assistant", "Rainy.")], id="3", **{"gen_ai.usage.output_tokens": 2}),
]
NOTE = "spans that come twice (trace and span id), read once"


def check(found, report, **notes):
    assert [(turn.role, turn.content) for turn in found.turns] == [
        ("user", "Weather?"),
        ("assistant", None),
        ("assistant", "Rainy."),
    ]
    assert [call.result for call in found.calls] == ["rainy"]
    assert found.tokens == 6
    assert report.notes == notes


def test_a_span_that_was_sent_again_is_read_once(tmp_path):
    (found,), report = read(tmp_path, *SPANS, *SPANS)
    check(found, report, **{NOTE: 3})


@pytest.mark.parametrize("again", [SPANS, SPANS[::-1]])
def test_spans_that_two_files_have_whole_are_read_once(tmp_path, again):
    for name, spans in (("a", SPANS), ("b", again)):
        write_lines(tmp_path / f"{name}.jsonl", [{"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}])
    (found,), report = read_episodes([tmp_path])
    check(found, report, **{"episodes that are copies of one already read, dropped": 1})


def test_of_a_span_that_was_sent_before_it_ended_the_later_is_read(tmp_path):
    early = chat("a", 1, [USER], [], id="1") | {"endTimeUnixNano": "0"}
    (found,), _ = read(tmp_path, early, SPANS[0])
    assert [turn.role for turn in found.turns] == ["user", "assistant"]


def test_spans_without_an_id_are_all_read(tmp_path):
    spans = [{**one, "spanId": ""} for one in SPANS]
    (found,), report = read(tmp_path, *spans)
    assert (len(found.turns), len(found.calls)) == (3, 1)
    assert not report.notes

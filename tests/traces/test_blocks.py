"""Messages whose content is blocks: reasoning in its own field, calls and results read, nothing written into the text for them."""

from __future__ import annotations

import json

import pytest

from tests.traces.make import write_lines
from trimtab.traces.blocks import unpacked
from trimtab.traces.export.samples import messages_of
from trimtab.traces.read import read_episodes
from trimtab.traces.reading import ReadReport

USE = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": 1}}
ANTHROPIC = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hmm", "signature": "x"}, {"type": "text", "text": "I look."}, USE, {**USE, "id": "toolu_2"}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True, "content": "boom"},
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "found"}]},
        {"type": "text", "text": "Go on."},
    ]},
    {"role": "assistant", "content": [{"type": "text", "text": "bye"}]},
]  # fmt: skip


def test_anthropic_messages(tmp_path):
    row = {
        "id": "a",
        "system": "be nice",
        "tools": [{"name": "search", "input_schema": {"type": "object"}}],
        "messages": ANTHROPIC,
    }
    (found,), report = read_episodes([write_lines(tmp_path / "a.jsonl", [row])])
    assert [(t.role, t.content, t.reasoning) for t in found.turns] == [
        ("system", "be nice", None),
        ("user", "hi", None),
        ("assistant", "I look.", "hmm"),
        ("user", "Go on.", None),
        ("assistant", "bye", None),
    ]
    assert [(c.name, c.arguments, c.result, c.error, c.error_from) for c in found.calls] == [
        ("search", {"q": 1}, "found", "", ""),
        ("search", {"q": 1}, "boom", "boom", "log"),
    ]
    assert found.tools == [
        {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
    ]
    assert not report.notes
    assert "[t" not in json.dumps([m["content"] for m in messages_of(found)])


def test_inspect_reasoning_is_no_text(tmp_path):
    thought = {"type": "reasoning", "reasoning": "let me think", "signature": "abc", "redacted": False}
    hidden = {"type": "reasoning", "reasoning": "gAAAA", "redacted": True, "summary": "in short"}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [thought, hidden, {"type": "text", "text": "I run."}]},
    ]
    log = {"version": 2, "eval": {"model": "m"}, "samples": [{"id": 1, "epoch": 1, "messages": messages}]}
    (found,), report = read_episodes([write_lines(tmp_path / "log.json", [log])])
    assert (found.turns[1].content, found.turns[1].reasoning) == ("I run.", "let me think\nin short")
    assert messages_of(found)[1]["reasoning_content"] == "let me think\nin short"
    assert report.notes == {"reasoning that the provider encrypted, left out": 1}


@pytest.mark.parametrize(
    ("message", "made"),
    [
        ({"role": "user", "content": []}, [{"role": "user", "content": []}]),
        ({"role": "user", "content": ["a"]}, [{"role": "user", "content": ["a"]}]),
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
                }
            ],
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": "4"},
            [{"role": "tool", "tool_call_id": "c", "content": "4"}],
        ),
        (
            {"role": "assistant", "reasoning": "a", "content": [{"type": "redacted_thinking", "data": "x"}]},
            [{"role": "assistant", "reasoning": "a", "content": None}],
        ),
    ],
)
def test_edges(message, made):
    assert unpacked(message, ReadReport()) == made


def test_what_is_not_read_is_named_and_counted():
    report = ReadReport()
    (made,) = unpacked(
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}, report
    )
    assert made["content"] == "a[image_url]"
    assert report.notes == {"parts of messages that are no text, written as [kind]": 1}


@pytest.mark.parametrize("part", ['[{"type": "image", "x": %s}]', '{"x": %s}'])
def test_a_value_nested_to_pythons_limit_is_read_or_malformed(tmp_path, part):
    """Parsing may succeed some frames short of the limit at which writing the same value as text does not."""
    seen = set()
    for depth in range(850, 1001):
        path = tmp_path / "log.jsonl"
        content = part % ("[" * depth + "]" * depth)
        lines = ['{"messages": [{"role": "user", "content": ' + text + "}]}\n" for text in (content, '"a"')]
        path.write_text("".join(lines))
        episodes, report = read_episodes([path])
        assert len(episodes) + report.num_malformed == 2
        seen.add(len(episodes))
    assert seen == {1, 2}

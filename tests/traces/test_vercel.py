"""Messages of the Vercel AI SDK: ModelMessages, and UIMessages of versions 4 and 5, whose parts hold a whole answer."""

from __future__ import annotations

import pytest

from tests.traces.make import write_lines
from trimtab.traces.export.samples import messages_of
from trimtab.traces.read import read_episodes
from trimtab.traces.table.episode_facts import facts_of

ASK = {"role": "user", "content": "weather"}


def read(tmp_path, *messages, **fields):
    row = {"messages": [ASK, *messages], **fields}
    (found,), report = read_episodes([write_lines(tmp_path / "a.jsonl", [row])])
    return found, dict(report.notes)


def shape(episode):
    return [
        (t.content, [(c.name, c.arguments, c.result, c.error, c.error_from) for c in t.calls])
        for t in episode.turns[1:]
    ]


@pytest.mark.parametrize(
    ("back", "result", "error", "source"),
    [
        ({"output": {"type": "text", "value": "18"}}, "18", "", ""), ({"output": {"type": "json", "value": {"t": 18}}}, '{"t": 18}', "", ""),
        ({"output": {"type": "error-text", "value": "no city"}}, "no city", "no city", "log"), ({"output": {"type": "error-json", "value": {"code": 5}}}, '{"code": 5}', '{"code": 5}', "log"),
        ({"output": {"type": "content", "value": [{"type": "text", "text": "18"}, {"type": "image-data", "data": "aa"}]}}, "18[image blake2b:", "", ""),
        ({"output": {"type": "execution-denied", "reason": "no"}}, "no", "no", "log"), ({"result": {"t": 18}}, '{"t": 18}', "", ""), ({"result": "gone", "isError": True}, "gone", "gone", "log"),
        ({"result": "Error: odd", "isError": False}, "Error: odd", "", "log"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("given", ["input", "args"])
def test_model_messages(tmp_path, given, back, result, error, source):
    said = [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "I look."}, {"type": "tool-call", "toolCallId": "c", "toolName": "w", given: {"c": "P"}}]  # fmt: skip
    answer = [{"type": "tool-result", "toolCallId": "c", "toolName": "w", **back}]
    found, _ = read(tmp_path, {"role": "assistant", "content": said}, {"role": "tool", "content": answer}, {"role": "assistant", "content": "18"})  # fmt: skip
    (text, ((name, arguments, came, *told),)), last = shape(found)
    assert (text, name, arguments, last) == ("I look.", "w", {"c": "P"}, ("18", []))
    assert came.startswith(result) if result.endswith("blake2b:") else came == result
    assert told == [error, source]
    assert found.turns[1].reasoning == "hm"


def test_several_results_in_one_message_and_what_was_approved(tmp_path):
    calls = [{"type": "tool-call", "toolCallId": c, "toolName": "w", "input": {}} for c in "ab"]
    back = [{"type": "tool-approval-response", "approvalId": "x", "approved": True}]
    back += [{"type": "tool-result", "toolCallId": c, "toolName": "w", "output": {"type": "text", "value": c}} for c in "ba"]  # fmt: skip
    found, notes = read(tmp_path, {"role": "assistant", "content": calls}, {"role": "tool", "content": back})
    assert shape(found) == [(None, [("w", {}, "a", "", ""), ("w", {}, "b", "", "")])]
    assert notes == {}


OUTS = [("w", {"c": "P"}, '{"t": 18}', "", ""), ("w", {"c": "R"}, "no city", "no city", "log")]


def part(version, city, number, **ended):
    if version == 4:
        inner = {"toolCallId": f"c{number}", "toolName": "w", "args": {"c": city}, **ended}
        return {"type": "tool-invocation", "toolInvocation": inner}
    kind = {"type": "tool-w"} if version == 5 else {"type": "dynamic-tool", "toolName": "w"}
    return {**kind, "toolCallId": f"c{number}", "input": {"c": city}, **ended}


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("version", [5, "dynamic"])
def test_a_ui_message_is_a_turn_for_each_of_its_steps(tmp_path, version, steps):
    start = [{"type": "step-start"}]
    parts = [
        *start[:steps], {"type": "reasoning", "text": "hm"}, {"type": "text", "text": "I look.", "state": "done"},
        part(version, "P", 1, state="output-available", output={"t": 18}), part(version, "R", 2, state="output-error", errorText="no city"),
        *(start if steps == 2 else []), {"type": "text", "text": "18"},
    ]  # fmt: skip
    found, notes = read(tmp_path, {"id": "2", "role": "assistant", "parts": parts})
    assert shape(found) == [("I look.", OUTS), ("18", [])]
    assert [m["role"] for m in messages_of(found)] == ["user", "assistant", "tool", "tool", "assistant"]
    assert (found.turns[1].reasoning, notes) == ("hm", {})


@pytest.mark.parametrize("with_parts", [True, False])
def test_version_4_has_the_calls_beside_the_text_too(tmp_path, with_parts):
    one = part(4, "P", 1, state="result", result={"t": 18})
    message = {"role": "assistant", "content": "18", "toolInvocations": [one["toolInvocation"]]}
    if with_parts:
        message["parts"] = [one, {"type": "text", "text": "18"}]
    found, _ = read(tmp_path, message)
    assert shape(found) == [(None, OUTS[:1]), ("18", [])]


def test_a_call_without_an_end_has_no_result_and_the_providers_are_declared(tmp_path):
    parts = [
        part(5, "P", 1, state="input-available"),
        part(5, "R", 2, state="output-available", output="x", providerExecuted=True),
    ]
    found, _ = read(tmp_path, {"role": "assistant", "parts": parts}, tools=[{"name": "other"}])
    assert [call.result for call in found.calls] == [None, "x"]
    assert facts_of(found).counts["unknown_tools"] == 0

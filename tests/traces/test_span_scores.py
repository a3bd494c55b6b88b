"""Evaluations in spans, and several answers to one request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.traces.spans import CALL, USER, attribute, chat, parts, read, span


def judged(*scores: tuple[str | None, float]) -> list[dict[str, Any]]:
    """As GenAI's event `gen_ai.evaluation.result`."""
    return [
        {
            "name": "gen_ai.evaluation.result",
            "attributes": [
                attribute("gen_ai.evaluation.score.value", score),
                *([attribute("gen_ai.evaluation.name", name)] if name else []),
            ],
        }
        for name, score in scores
    ]


@pytest.mark.parametrize(
    ("scores", "parts_", "reward"),
    [
        ([("toxicity", 0.9), ("latency_s", 3.5)], {"toxicity": 0.9, "latency_s": 3.5}, None),
        ([("toxicity", 0.9), ("Score", 0.25)], {"toxicity": 0.9, "Score": 0.25}, 0.25),
        ([("score", 0.5), ("REWARD", 1.0), ("cost", 2.0)], {"score": 0.5, "REWARD": 1.0, "cost": 2.0}, 1.0),
        ([("judge", 0.25), ("judge", 0.75)], {"judge": 0.75}, 0.75),
        ([(None, 0.5), ("latency_s", 3.5)], {"score": 0.5, "latency_s": 3.5}, 0.5),
        ([], {}, None),
    ],
)
def test_all_evaluations_are_parts_and_the_reward_is_what_is_called_so(tmp_path, scores, parts_, reward):
    one = chat("a", 1, [USER], [parts("assistant", "A")], events=judged(*scores))
    (found,), report = read(tmp_path, one)
    assert (found.reward_parts, found.reward) == (parts_, reward)
    note = "episodes with evaluations of several names (latency_s, toxicity), none reward or score: no reward"
    assert report.notes == ({note: 1} if parts_ and reward is None else {})


def test_evaluations_in_spans_of_their_own_are_parts_too(tmp_path):
    spans = [chat("a", 1, [USER], [parts("assistant", "A")], events=judged(("style", 0.5)))]
    for i, name in enumerate(("reward", "format", "reward")):
        spans.append(span("a", 5 + i, 1, **{"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": float(i)}))  # fmt: skip
    (found,), _ = read(tmp_path, *spans)
    assert (found.reward_parts, found.reward) == ({"style": 0.5, "reward": 2.0, "format": 1.0}, 2.0)


OTHERS = "further answers to one request (n > 1), left out"


@pytest.mark.parametrize(
    "said",
    [
        [parts("assistant", "A"), parts("assistant", "B")],
        [parts("assistant", "A") | {"finish_reason": "stop"}, parts("assistant", CALL) | {"finish_reason": "tool_call"}],
    ],
)  # fmt: skip
def test_of_several_answers_the_first_is_taken_and_the_others_counted(tmp_path, said):
    first = chat("a", 1, [USER], said, **{"gen_ai.response.finish_reasons": ["stop", "tool_call"]})
    again = [USER, said[0], parts("user", "And?")]
    (found,), report = read(tmp_path, first, chat("a", 4, again, [parts("assistant", "C")]))
    assert [t.content for t in found.turns] == ["Weather?", "A", "And?", "C"]
    assert found.calls == []
    assert found.stop_reason == "stop"
    assert report.notes == {OTHERS: 1}


def test_choices_of_openinference_and_of_a_bare_answer(tmp_path):
    calls = [
        {"tool_calls": [{"id": f"c{i}", "function": {"name": "f", "arguments": "{}"}}]} for i in range(3)
    ]
    answer = {
        "choices": [{"index": i, "message": {"role": "assistant", **call}} for i, call in enumerate(calls)]
    }
    bare = span("a", 1, 1, **{"openinference.span.kind": "LLM", "input.value": "?", "output.value": json.dumps(answer)})  # fmt: skip
    (found,), report = read(tmp_path, bare)
    assert [call.id for call in found.calls] == ["c0"]
    assert report.notes == {OTHERS: 2}
    flat = {f"llm.output_messages.{i}.message.content": text for i, text in enumerate("AB")}
    (found,), report = read(tmp_path, span("b", 1, 1, **{"openinference.span.kind": "LLM", "input.value": "?", **flat}))  # fmt: skip
    assert [t.content for t in found.turns] == ["?", "A"]
    assert report.notes == {OTHERS: 1}


def test_items_of_one_answer_are_pieces_of_it(tmp_path):
    items = [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        for text in ("I look.", "Twice.")
    ] + [{"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}]
    one = span("a", 1, 1, **{"openinference.span.kind": "LLM", "input.value": "?", "output.value": json.dumps({"output": items})})  # fmt: skip
    (found,), report = read(tmp_path, one)
    assert [(t.content, len(t.calls)) for t in found.turns] == [("?", 0), ("I look.\nTwice.", 1)]
    assert not report.notes
    pieces = [parts("assistant", {"type": "reasoning", "content": "hm"}), parts("assistant", "I look."), parts("assistant", CALL)]  # fmt: skip
    (found,), report = read(tmp_path, chat("b", 1, [USER], pieces))
    assert [(t.content, t.reasoning, len(t.calls)) for t in found.turns[1:]] == [("I look.", "hm", 1)]
    assert not report.notes


def test_an_evaluation_or_an_agent_alone_is_an_episode_without_turns(tmp_path):
    judged_alone = span("a", 1, 2, **{"session.id": "s", "gen_ai.evaluation.score.value": 0.5})
    (found,), _ = read(tmp_path, judged_alone)
    assert (found.id, found.reward, found.turns, found.duration_s) == ("s", 0.5, [], 2.0)
    (found,), _ = read(tmp_path, span("b", 1, 3, **{"gen_ai.operation.name": "invoke_agent"}))
    assert (found.turns, found.duration_s) == ([], 3.0)

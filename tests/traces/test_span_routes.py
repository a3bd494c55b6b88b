"""Several conversations in one trace: sub-agents, judges, runs side by side, handoffs, contexts begun anew."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.traces.spans import chat, parts, read, span, tool

APART = "conversations within others (sub-agents, judges, runs side by side, contexts begun anew), episodes id/2, id/3, ..."
A = "a".rjust(32, "0")


def agent(start: float, took: float, id: str, parent: str = "", **more: Any) -> dict[str, Any]:
    return span("a", start, took, id=id, parent=parent, **{"gen_ai.operation.name": "invoke_agent", **more})


def langgraph(start: float, took: float, id: str, parent: str, kind: str) -> dict[str, Any]:
    return span("a", start, took, id=id, parent=parent, **{"openinference.span.kind": kind})


def system(text: str) -> dict[str, str]:
    return {"gen_ai.system_instructions": json.dumps([{"type": "text", "content": text}])}


def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return parts("assistant", {"type": "tool_call", "id": id, "name": name, "arguments": arguments})


def result(id: str, text: str) -> dict[str, Any]:
    return parts("tool", {"type": "tool_call_response", "id": id, "response": text})


def texts(found) -> dict[str, list[Any]]:
    return {episode.id.replace(A, "a"): [t.content for t in episode.turns if t.content] for episode in found}


Q, ASK, GOT = parts("user", "Where?"), call("c1", "research", q="x"), result("c1", "There.")


@pytest.mark.parametrize("around", ["tool", "agent", "both"])
def test_a_sub_agent_is_an_episode_of_its_own_and_its_call_keeps_its_result(tmp_path, around):
    parent = {"tool": "tool", "agent": "sub", "both": "sub"}[around]
    inner = call("c1", "fetch", url="u")  # the id of the outer call, as counters give them
    spans = [
        agent(0, 20, "main", **{"gen_ai.agent.name": "main"}),
        chat("a", 1, [Q], [ASK], parent="main"),
        tool("a", 4, 8, "research", id="tool", parent="main", **{"gen_ai.tool.call.id": "c1", "gen_ai.tool.call.result": "There."}),
        agent(4, 8, "sub", "tool" if around == "both" else "main", **{"gen_ai.agent.name": "sub"}),
        chat("a", 5, [parts("user", "Find x.")], [inner], id="s1", parent=parent, **system("You search.")),
        tool("a", 8, 1, "fetch", id="fetch", parent=parent, **{"gen_ai.tool.call.id": "c1", "gen_ai.tool.call.result": "page"}),
        chat("a", 9.5, [parts("user", "Find x."), inner, result("c1", "page")], [parts("assistant", "There.")], id="s2", parent=parent, **system("You search.")),
        chat("a", 14, [Q, ASK, GOT], [parts("assistant", "It is there.")], parent="main"),
    ]  # fmt: skip
    found, report = read(tmp_path, *spans)
    assert texts(found) == {"a": ["Where?", "It is there."], "a/2": ["You search.", "Find x.", "There."]}
    assert [[(c.name, c.result, c.latency_s) for c in e.calls] for e in found] == [
        [("research", "There.", 8.0)],
        [("fetch", "page", 1.0)],
    ]
    assert found[0].duration_s == 20.0
    assert found[1].duration_s == (6.5 if around == "tool" else 8.0)
    assert report.notes == {APART: 1}


def test_sub_agents_side_by_side_are_told_apart(tmp_path):
    asks = parts("assistant", *(call(f"c{i}", "research", q=i)["parts"][0] for i in (1, 2)))
    spans = [agent(0, 30, "main"), chat("a", 1, [Q], [asks], parent="main")]
    for i in (1, 2):
        first = parts("user", "Find it.")  # both are asked in the same words
        inner = call("k", "fetch", url=str(i))
        spans += [
            tool("a", 4 + i / 10, 8, "research", id=f"tool{i}", parent="main", **{"gen_ai.tool.call.id": f"c{i}"}),
            chat("a", 5 + i / 10, [first], [inner], id=f"a{i}", parent=f"tool{i}"),
            tool("a", 7 + i / 10, 1, "fetch", id=f"f{i}", parent=f"tool{i}", **{"gen_ai.tool.call.result": f"page {i}"}),
            chat("a", 9 + i / 10, [first, inner, result("k", f"page {i}")], [parts("assistant", f"found {i}")], id=f"b{i}", parent=f"tool{i}"),
        ]  # fmt: skip
    found, report = read(tmp_path, *spans)
    assert texts(found) == {"a": ["Where?"], "a/2": ["Find it.", "found 1"], "a/3": ["Find it.", "found 2"]}
    assert [c.result for e in found[1:] for c in e.calls] == ["page 1", "page 2"]
    assert report.notes == {APART: 2}


def test_a_judge_within_a_named_conversation_is_apart_and_what_follows_goes_on(tmp_path):
    hi, hello = parts("user", "hi"), parts("assistant", "hello")
    judge = parts("user", "Is 'hello' safe?")
    spans = [
        agent(0, 9, "r", **{"gen_ai.conversation.id": "cv"}),
        chat("a", 1, [hi], [hello], parent="r", **system("SYS at 12:01")),
        chat("a", 2, [judge], [parts("assistant", "yes")], parent="r", **system("You are a judge.")),
        chat("a", 4, [parts("user", "bye")], [parts("assistant", "ciao")], parent="r", **system("SYS at 12:02")),
    ]  # fmt: skip
    found, report = read(tmp_path, *spans)
    assert [e.id for e in found] == ["cv", "cv/2"]
    assert [t.content for t in found[1].turns] == ["You are a judge.", "Is 'hello' safe?", "yes"]
    assert [t.content for t in found[0].turns if t.role != "system"] == ["hi", "hello", "bye", "ciao"]
    assert report.notes[APART] == 1


@pytest.mark.parametrize("same", [True, False])
def test_runs_side_by_side_are_episodes_also_of_one_and_the_same_question(tmp_path, same):
    """Rollouts: one question, first calls in the same words and under the same ids."""
    spans = [span("a", 0, 99, id="root", name="eval")]
    for i in range(3):
        q = parts("user", "Where?" if same else f"Where {i}?")
        asks, got = call("c1", "look"), result("c1", f"seen {i}")
        spans += [
            agent(10 * i, 6, f"agent{i}", "root"),
            chat("a", 10 * i + 1, [q], [asks], id=f"m{i}", parent=f"agent{i}"),
            chat("a", 10 * i + 4, [q, asks, got], [parts("assistant", f"answer {i}")], id=f"n{i}", parent=f"agent{i}"),
        ]  # fmt: skip
    found, report = read(tmp_path, *spans)
    assert [e.id.replace(A, "a") for e in found] == ["a", "a/2", "a/3"]
    assert [e.turns[-1].content for e in found] == ["answer 0", "answer 1", "answer 2"]
    assert [[c.result for c in e.calls] for e in found] == [["seen 0"], ["seen 1"], ["seen 2"]]
    assert [e.duration_s for e in found] == [6.0, 6.0, 6.0]
    assert report.notes == {APART: 2}


def test_questions_that_share_nothing_are_episodes_though_no_agent_is_told(tmp_path):
    spans = [
        chat("a", 3 * i, [parts("user", f"q{i}")], [parts("assistant", f"a{i}")], **system("S")) for i in range(3)
    ]  # fmt: skip
    found, _ = read(tmp_path, *spans)
    assert texts(found) == {"a": ["S", "q0", "a0"], "a/2": ["S", "q1", "a1"], "a/3": ["S", "q2", "a2"]}


def test_nodes_of_a_graph_that_hand_the_history_on_stay_one_conversation(tmp_path):
    """OpenInference takes every LangGraph node named `agent` for an agent; tools run outside of it."""
    history: list[Any] = [Q]
    spans = [langgraph(0, 50, "graph", "", "CHAIN")]
    for i in range(3):
        said = call(f"c{i}", "look", at=i) if i < 2 else parts("assistant", "Done.")
        spans += [
            langgraph(10 * i + 1, 4, f"agent{i}", "graph", "AGENT"),
            chat("a", 10 * i + 2, history, [said], id=f"m{i}", parent=f"agent{i}"),
            langgraph(10 * i + 6, 3, f"tools{i}", "graph", "CHAIN"),
        ]
        if i < 2:
            spans.append(tool("a", 10 * i + 7, 1, "look", id=f"t{i}", parent=f"tools{i}", **{"gen_ai.tool.call.result": f"r{i}"}))  # fmt: skip
            history = [*history, said, result(f"c{i}", f"r{i}")]
    (found,), report = read(tmp_path, *spans)
    assert [(t.role, t.content) for t in found.turns if t.content] == [("user", "Where?"), ("assistant", "Done.")]  # fmt: skip
    assert [(c.result, c.latency_s) for c in found.calls] == [("r0", 1.0), ("r1", 1.0)]
    assert not report.notes


def test_an_agent_that_takes_over_with_the_history_goes_on(tmp_path):
    gives = call("h1", "transfer_to_billing")
    spans = [
        agent(0, 3, "triage", "root", **{"gen_ai.agent.name": "triage"}),
        chat("a", 1, [Q], [gives], parent="triage", **system("You triage.")),
        tool("a", 3.5, 0.1, "transfer_to_billing", parent="triage", **{"gen_ai.tool.call.result": "ok"}),
        agent(4, 3, "billing", "root", **{"gen_ai.agent.name": "billing"}),
        chat("a", 5, [Q, gives, result("h1", "ok")], [parts("assistant", "Paid.")], parent="billing", **system("You bill.")),
    ]  # fmt: skip
    (found,), report = read(tmp_path, *spans)
    assert [t.content for t in found.turns if t.role != "system"] == ["Where?", None, "Paid."]
    assert APART not in report.notes


def test_a_context_begun_anew_is_an_episode_and_nothing_is_written_twice(tmp_path):
    turns = [parts("user", "q0"), parts("assistant", "a0"), parts("user", "q1"), parts("assistant", "a1")]
    summary = [parts("user", "So far: q0, q1."), parts("user", "q1")]
    spans = [
        chat("a", 1, turns[:1], turns[1:2]),
        chat("a", 3, turns[:3], turns[3:]),
        chat("a", 5, [*turns[2:], parts("user", "q2")], [parts("assistant", "a2")]),  # a sliding window
        chat("a", 7, summary, [parts("assistant", "a3")]),
        chat("a", 9, [*summary, parts("assistant", "a3"), parts("user", "q4")], [parts("assistant", "a4")]),
    ]
    found, report = read(tmp_path, *spans)
    assert texts(found) == {
        "a": ["q0", "a0", "q1", "a1", "q2", "a2"],
        "a/2": ["So far: q0, q1.", "q1", "a3", "q4", "a4"],
    }
    assert report.notes == {APART: 1}
    named = {"gen_ai.conversation.id": "cv"}
    spans = [chat("a", 1, turns[:1], turns[1:2], **named), chat("a", 3, turns[:3], turns[3:], **named), chat("a", 7, summary, [parts("assistant", "a3")], **named)]  # fmt: skip
    found, _ = read(tmp_path, *spans)
    assert [e.id for e in found] == ["cv", "cv/2"]


def test_a_prompt_that_grows_by_what_was_answered_is_one_conversation(tmp_path):
    prompts = ["Q: where?\n", "Q: where?\nThought: look\nObservation: left\n"]
    said = ["Thought: look", "Answer: left"]
    spans = [
        span("a", i, 1, **{"openinference.span.kind": "LLM", "input.value": prompt, "output.value": answer})
        for i, (prompt, answer) in enumerate(zip(prompts, said, strict=True))
    ]
    (found,), _ = read(tmp_path, *spans)
    assert [t.content for t in found.turns] == [prompts[0], said[0], prompts[1], said[1]]


def test_the_responses_api_goes_on_where_the_provider_keeps_the_history(tmp_path):
    requests = [{"input": "q0"}, {"input": "q1", "previous_response_id": "resp_1"}]
    spans = [
        span("a", i, 1, **{"openinference.span.kind": "LLM", "input.value": json.dumps(one), "output.value": f"a{i}"})
        for i, one in enumerate(requests)
    ]  # fmt: skip
    (found,), _ = read(tmp_path, *spans)
    assert [t.content for t in found.turns] == ["q0", "a0", "q1", "a1"]


def test_the_same_request_again_stays_and_is_counted(tmp_path):
    spans = [chat("a", i, [Q], [parts("assistant", f"a{i}")]) for i in range(2)]
    (found,), report = read(tmp_path, *spans)
    assert [t.content for t in found.turns] == ["Where?", "a0", "a1"]
    assert report.notes == {"requests without the answers given before, read on in the same conversation": 1}


def test_a_tool_that_all_models_run_under_is_the_run_itself(tmp_path):
    spans = [
        tool("a", 0, 9, "serve", id="root", **{"gen_ai.tool.call.result": "ok"}),
        chat("a", 1, [Q], [parts("assistant", "There.")], parent="root"),
    ]
    (found,), _ = read(tmp_path, *spans)
    assert [(t.role, t.content) for t in found.turns][-2:] == [("user", "Where?"), ("assistant", "There.")]


def test_a_guardrail_that_is_asked_first_is_not_the_roots_conversation(tmp_path):
    spans = [
        agent(0, 9, "main"),
        agent(0.1, 1, "guard", "main"),
        chat("a", 0.2, [parts("user", "Is 'Where?' safe?")], [parts("assistant", "yes")], parent="guard"),
        chat("a", 3, [Q], [parts("assistant", "There.")], parent="main"),
        span("a", 40, 1, id="e", parent="main", **{"gen_ai.evaluation.score.value": 0.5}),
    ]
    found, _ = read(tmp_path, *spans)
    assert texts(found) == {"a": ["Where?", "There."], "a/2": ["Is 'Where?' safe?", "yes"]}
    assert [e.reward for e in found] == [0.5, None]


@pytest.mark.parametrize(
    ("at", "rewards"),
    [
        ({"parent": "root"}, [0.5, None, None]),
        ({}, [0.5, None, None]),
        ({"parent": "agent1"}, [None, 0.5, None]),
        ({"parent": "m2"}, [None, None, 0.5]),
        ({"gen_ai.response.id": "resp1"}, [None, 0.5, None]),
    ],
)
def test_an_evaluation_is_the_roots_unless_it_names_a_span_of_another(tmp_path, at, rewards):
    spans = [span("a", 0, 99, id="root", name="eval")]
    for i in range(3):
        spans += [
            agent(10 * i, 6, f"agent{i}", "root"),
            chat("a", 10 * i + 1, [parts("user", f"q{i}")], [parts("assistant", "a")], id=f"m{i}", parent=f"agent{i}", **{"gen_ai.response.id": f"resp{i}"}),
        ]  # fmt: skip
    spans.append(span("a", 40, 1, id="e", **at, **{"gen_ai.evaluation.score.value": 0.5}))
    found, _ = read(tmp_path, *spans)
    assert [e.reward for e in found] == rewards


@pytest.mark.parametrize("agents", [True, False])
def test_examples_that_every_request_begins_with_are_no_shared_history(tmp_path, agents):
    examples = [parts("user", "Sky?"), parts("assistant", "Blue."), parts("user", "Sea?"), call("e1", "look"), result("e1", "x")]  # fmt: skip
    spans = []
    for i in range(2):
        asks, got = call("c1", "look", at=i), result("c1", f"seen {i}")
        asked = [*examples, parts("user", f"q{i}")]
        parent = f"agent{i}" if agents else ""
        spans += [agent(10 * i, 9, parent)] if agents else []
        spans += [
            chat("a", 10 * i + 1, asked, [asks], id=f"m{i}", parent=parent),
            chat("a", 10 * i + 5, [*asked, asks, got], [parts("assistant", f"a{i}")], id=f"n{i}", parent=parent),
        ]  # fmt: skip
    found, report = read(tmp_path, *spans)
    assert texts(found) == {
        "a": ["Sky?", "Blue.", "Sea?", "q0", "a0"],
        "a/2": ["Sky?", "Blue.", "Sea?", "q1", "a1"],
    }
    assert [e.calls[-1].result for e in found] == ["seen 0", "seen 1"]
    assert report.notes == {APART: 1}


def test_a_history_with_answers_in_other_words_goes_on_under_the_next_turns_agent(tmp_path):
    """Frameworks take the thoughts out of an answer before they send it again."""
    history: list[Any] = []
    spans = []
    for i in range(3):
        history = [*history, parts("user", f"q{i}")]
        spans += [
            span(str(i), 10 * i, 9, id=f"g{i}", **{"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "c"}),
            chat(str(i), 10 * i + 1, history, [parts("assistant", f"<think>hm</think>a{i}")], id=f"m{i}", parent=f"g{i}"),
        ]  # fmt: skip
        history = [*history, parts("assistant", f"a{i}")]
    (found,), report = read(tmp_path, *spans)
    assert [t.content for t in found.turns if t.role == "user"] == ["q0", "q1", "q2"]
    assert len(found.turns) == 6
    assert APART not in report.notes

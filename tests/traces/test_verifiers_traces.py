"""verifiers 0.4's traces.jsonl: graphs of messages, weighted rewards, several agents in an episode."""

from __future__ import annotations

import copy
import math
from collections import Counter

import pytest

from tests.traces.make import write_lines
from trimtab.traces.export.token_columns import tokens_of
from trimtab.traces.read import read_episodes
from trimtab.traces.table.stop_reasons import is_limit


def node(parent, role, content=None, **more):
    return {"parent": parent, "message": {"role": role, "content": content, **more}, "sampled": role == "assistant", "timestamp": 5.0}  # fmt: skip


def trace(**more):
    call = {"id": "c", "type": "function", "name": "search", "arguments": '{"q": "x"}'}
    nodes = [node(None, "user", "?"), node(0, "assistant", tool_calls=[call])]
    nodes += [node(1, "tool", "found", tool_call_id="c"), node(2, "assistant", "It is x.")]
    return {
        "version": 1, "id": "t1", "task": {"type": "T", "data": {"idx": 3}, "key": "cafe" * 16, "hash": "cafe" * 16},
        "agent": {"name": "agent", "trainable": True, "config": {"model": "m"}}, "nodes": nodes,
        "tools": [{"type": "function", "name": "search", "parameters": {"type": "object"}}],
        "calls": [
            {"node": 1, "model": "m1", "finish_reason": "tool_calls", "usage": {"prompt_tokens": 9, "completion_tokens": 4, "cost": 0.25}},
            {"node": 3, "model": "m1", "finish_reason": "stop", "usage": {"prompt_tokens": 9, "completion_tokens": 6, "cost": 0.5}},
        ],
        "rewards": {"right": {"score": 1.0, "weight": 0.5}, "style": {"score": 0.25, "weight": 2.0}, "judge": None},
        "metrics": {"length": 12.0}, "ok": True, "errors": [], "stop_condition": "agent_completed",
        "timing": {"start": 100.0, "boot": {"start": 0.0, "end": 0.0}, "agent": {"start": 101.0, "end": 104.5}},
        **more,
    }  # fmt: skip


def line(*traces, **more):
    return {"id": "e", "env": {"id": "gsm"}, "task": trace()["task"], "group": {"id": "g"}, "ok": True, "traces": list(traces), **more}  # fmt: skip


def read(tmp_path, *lines):
    return read_episodes([write_lines(tmp_path / "traces.jsonl", list(lines))])


def test_a_trace_is_an_episode(tmp_path):
    (one,), report = read(tmp_path, line(trace()))
    assert list(report.formats.values()) == ["verifiers"]
    assert (one.id, one.task, one.group, one.model) == ("t1", "gsm/cafecafecafecafe", "g", "m1")
    assert one.reward == 1.0 * 0.5 + 0.25 * 2.0
    assert one.reward_parts == {"right": 1.0, "style": 0.25, "length": 12.0}
    assert (one.tokens, one.cost, one.time, one.duration_s) == (10, 0.75, 100.0, 4.5)
    assert [(t.role, t.tokens) for t in one.turns] == [("user", None), ("assistant", 4), ("assistant", 6)]
    assert [(c.name, c.arguments, c.result) for c in one.calls] == [("search", {"q": "x"}, "found")]
    assert one.tools == [
        {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
    ]
    assert (one.success, one.stop_reason, report.notes) == (None, "agent_completed", {})


def test_of_several_branches_the_last_is_read(tmp_path):
    graph = trace()
    graph["nodes"] += [node(None, "user", "Summary."), node(4, "assistant", "Go on.")]
    (one,), report = read(tmp_path, line(graph))
    assert [turn.content for turn in one.turns] == ["Summary.", "Go on."]
    assert report.notes["messages of other branches of a trace (compaction, sub-agents), left out"] == 4


@pytest.mark.parametrize("parent", [1, 7, "x", None])
def test_a_damaged_graph_ends(tmp_path, parent):
    graph = trace()
    graph["nodes"][1]["parent"] = parent
    (one,), _ = read(tmp_path, line(graph))
    assert one.id == "t1"


def test_agents_that_are_not_trained_and_episodes_without_a_trace_are_counted(tmp_path):
    judge = {**copy.deepcopy(trace()), "id": "t2", "agent": {"name": "judge", "trainable": False}}
    found, report = read(tmp_path, line(trace(), judge), line(id="f", ok=False))
    assert [e.id for e in found] == ["t1"]
    assert report.notes["traces of agents that are not trained, left out"] == 1
    assert report.notes["episodes of verifiers that failed before an agent ran, left out"] == 1
    alone, _ = read(tmp_path, line(judge))
    assert [e.id for e in alone] == ["t2"]


@pytest.mark.parametrize(
    ("fields", "stop", "reward"),
    [
        ({"ok": False, "errors": [{"type": "SandboxError"}], "rewards": {"right": None}}, "error", None),
        ({"stop_condition": "max_total_tokens"}, "max_total_tokens", 1.0),
        ({"rewards": {"right": {"score": math.nan, "weight": 1.0}}}, "agent_completed", math.nan),
        ({"rewards": {}}, "agent_completed", None),
        ({"calls": [{"node": 3, "finish_reason": "length"}]}, "length", 1.0),
    ],
)
def test_how_it_ended_and_what_it_was_worth(tmp_path, fields, stop, reward):
    (one,), _ = read(tmp_path, line(trace(**fields)))
    assert one.stop_reason == stop
    assert one.reward == pytest.approx(reward, nan_ok=True)
    assert is_limit("max_total_tokens")


def test_the_task_is_its_key_or_its_rows_id_and_the_run_says_the_step(tmp_path):
    named = trace(task={"data": {"id": "row-7"}, "key": "k", "hash": "h"})
    plain = {**trace(task={"data": {"id": "row-7"}, "key": "h", "hash": "h"}), "id": "t2"}
    run = {"type": "train", "id": "r", "work": {"type": "train", "step": 6, "policy": {"start": 4, "end": 5}}}
    found, _ = read(tmp_path, line(named, plain, run=run))
    assert [e.task for e in found] == ["gsm/k", "gsm/row-7"]
    assert {(e.step, e.policy_version) for e in found} == {(6, 4)}


def with_ids():
    """The user's two tokens, a call of scaffold and two sampled, a result's one, an answer of one scaffold and one sampled."""
    given = trace()
    ids = [[1, 2], [3, 4, 5], [6], [7, 8]]
    masks = [[False, False], [False, True, True], [False], [False, True]]
    for node, tokens, mask, logprobs in zip(
        given["nodes"], ids, masks, [[], [-0.5, -1.0], [], [-2.0]], strict=True
    ):
        node |= {"token_ids": tokens, "mask": mask, "logprobs": logprobs}
    return given


def test_token_ids_masks_and_logprobs_reach_the_export_in_the_order_the_model_saw(tmp_path):
    (one,), report = read(tmp_path, line(with_ids()))
    assert [turn.token_ids for turn in one.turns] == [[1, 2], [3, 4, 5, 6], [7, 8]]
    found = tokens_of(one, dropped := Counter())
    assert found == {
        "token_ids": [1, 2, 3, 4, 5, 6, 7, 8], "token_mask": [0, 0, 0, 1, 1, 0, 0, 1],
        "token_logprobs": [None, None, None, -0.5, -1.0, None, None, -2.0],
    }  # fmt: skip
    assert (dropped["log-probabilities that are not finite, written as null"], report.notes) == (0, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [("mask", [True]), ("logprobs", [-1.0]), ("token_ids", [3, 4, "x"]), ("logprobs", ["x", -1.0])],
)
def test_token_ids_that_do_not_fit_are_left_out_and_counted(tmp_path, name, value):
    given = with_ids()
    given["nodes"][1][name] = value
    (one,), report = read(tmp_path, line(given))
    assert [turn.token_ids for turn in one.turns] == [None, None, None]
    assert sum(report.notes.values()) == 1
    assert "do not fit" in next(iter(report.notes))


@pytest.mark.parametrize("absent", [0, 1, 2, 3])
@pytest.mark.parametrize("empty", [None, []])
def test_a_message_without_ids_among_those_with_them_leaves_the_episode_none(tmp_path, absent, empty):
    given = with_ids()
    for name in ("token_ids", "mask", "logprobs"):
        given["nodes"][absent][name] = empty
    (one,), report = read(tmp_path, line(given))
    assert [turn.token_ids for turn in one.turns] == [None, None, None]
    assert list(report.notes.values()) == [1]
    assert "ids left out" in next(iter(report.notes))


def test_what_no_model_saw_after_the_agents_last_message_needs_no_ids(tmp_path):
    given = with_ids()
    given["nodes"].append(node(3, "user", "Thanks."))
    (one,), report = read(tmp_path, line(given))
    assert tokens_of(one)["token_ids"] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert report.notes == {}

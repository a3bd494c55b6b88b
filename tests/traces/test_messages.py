"""Chat messages: every call with its own result, however ids are used; the whole of tau-bench against an independent count."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.traces.make import chat, tau, write_lines
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.messages.turns import turns_of
from trimtab.traces.read import read_episodes
from trimtab.traces.table.build import tabulate

TAU = Path(__file__).parents[3] / "shared" / "data" / "tau-bench" / "gpt-4o-airline.json"


def _calls(messages):
    report = ReadReport()
    return [call for turn in turns_of(messages, report) for call in turn.calls], report


def test_a_reused_id_is_answered_in_turn():
    calls, report = _calls([*chat(result="first"), *chat(result="second")])
    assert [call.result for call in calls] == ["first", "second"]
    assert not report.notes


def test_an_id_still_open_is_answered_in_its_latest_message_and_there_in_order():
    lost, again = chat()[:2], chat(result="second")
    assert [call.result for call in _calls(lost + again)[0]] == [None, "second"]
    twice = [{"role": "assistant", "tool_calls": chat()[1]["tool_calls"] * 2}]
    results = [{"role": "tool", "tool_call_id": "c1", "content": text} for text in ("one", "two")]
    assert [call.result for call in _calls(twice + results)[0]] == ["one", "two"]


def test_parallel_calls_are_answered_by_id_and_without_ids_in_order():
    def call(number, call_id):
        return {"id": call_id, "function": {"name": "f", "arguments": json.dumps({"n": number})}}

    both = [{"role": "assistant", "tool_calls": [call(1, "a"), call(2, "b")]}]
    crossed = [
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        {"role": "tool", "tool_call_id": "a", "content": "one"},
    ]
    assert [c.result for c in _calls(both + crossed)[0]] == ["one", "two"]
    plain = [{"role": "tool", "content": "one"}, {"role": "tool", "name": "f", "content": "two"}]
    assert [c.result for c in _calls(both + plain)[0]] == ["one", "two"]


def test_an_orphan_result_stays_as_a_turn_and_an_unanswered_call_has_none():
    report = ReadReport()
    turns = turns_of([{"role": "tool", "tool_call_id": "?", "content": "late"}, chat()[1]], report)
    assert [(t.role, t.content) for t in turns] == [("tool", "late"), ("assistant", None)]
    assert turns[1].calls[0].result is None
    assert report.notes["tool results that answer no call, kept as turns"] == 1


@pytest.mark.parametrize(
    ("result", "error", "source"),
    [
        ("Error: no seats", "Error: no seats", "text"),
        ("ValueError: bad", "ValueError: bad", "text"),
        ('{"error": "HTTP 500", "data": null}', "HTTP 500", "text"),
        ('{"status": 404, "message": "gone"}', "status 404: gone", "text"),
        ('{"status": 200, "error": null}', "", ""),
        ("No error was found", "", ""),
        ("", "", ""),
    ],
)
def test_errors_read_off_text(result, error, source):
    (call,), _ = _calls(chat(result=result))
    assert (call.error, call.error_from) == (error, source)


def test_an_error_the_log_names_wins_and_bad_arguments_are_kept():
    messages = chat(arguments='{"q": ')
    messages[2]["is_error"] = True
    (call,), report = _calls(messages)
    assert (call.error, call.error_from) == ("found", "log")
    assert call.bad_arguments == '{"q": '
    assert report.notes["calls whose arguments are no JSON, kept as text"] == 1
    (call,), _ = _calls(chat(arguments='{"q": '))
    assert call.error_from == "parse"


@pytest.mark.parametrize(
    ("fields", "content", "error", "source"),
    [
        ({"is_error": False}, "Error: boom", "", "log"), ({"isError": False}, "Error: boom", "", "log"), ({"status": "success"}, "Error: boom", "", "log"),
        ({"error": False}, "Error: boom", "", "log"), ({"is_error": False}, "fine", "", "log"), ({"status": "error"}, "no seats", "no seats", "log"),
        ({"isError": True}, "no seats", "no seats", "log"), ({"error": "late"}, "x", "late", "log"), ({"error": {"type": "timeout", "message": "slow"}}, "", "slow", "log"),
        ({"error": {"code": 5}}, "x", '{"code": 5}', "log"), ({"error": True}, "", "error", "log"), ({"status": "success", "error": "late"}, "x", "late", "log"),
        ({"error": None}, "Error: boom", "Error: boom", "text"), ({"error": "none"}, "x", "", ""), ({"is_error": None, "status": "completed"}, "x", "", ""),
    ],
)  # fmt: skip
def test_a_word_of_the_log_wins_over_the_text(fields, content, error, source):
    messages = chat(result=content)
    messages[2] |= fields
    (call,), _ = _calls(messages)
    assert (call.error, call.error_from) == (error, source)


def test_a_log_that_calls_no_call_failed_tells_all_the_same(tmp_path):
    rows = [{"id": str(i), "messages": chat(result="Error: boom")} for i in range(4)]
    for row in rows:
        row["messages"][2]["is_error"] = False
    table = tabulate(read_episodes([write_lines(tmp_path / "a.jsonl", rows)])[0])
    assert (table.error_flags_in_log, table.total("failed"), table.total("calls")) == (True, 0, 4)


def test_roles_nobody_knows_are_counted_once_a_role():
    report = ReadReport()
    roles = ["user", "critic", "critic", "assistant", None, "developer", *(f"agent{i}" for i in range(9))]
    turns = turns_of([{"role": role, "content": "x"} for role in roles], report)
    assert [turn.role for turn in turns] == [role or "" for role in roles]
    kept = "messages of a role that is none of ours, kept: "
    nobody = "messages without a role, kept; their keys: content, role"
    assert report.notes == {
        f"{kept}critic": 2, nobody: 1, f"{kept}(others)": 2, **{f"{kept}agent{i}": 1 for i in range(7)}
    }  # fmt: skip
    assert report.unread_messages == {nobody: 1}


def test_odd_shapes_stop_nothing():
    odd = [
        7,
        None,
        {
            "role": "assistant",
            "tool_calls": [None, 3, {"function": "f"}, {"function": {"name": 5, "arguments": {"a": 1}}}],
        },
    ]
    calls, report = _calls(
        [
            *odd,
            {"role": "assistant", "function_call": {"name": "old", "arguments": "{}"}},
            {"content": {"a": 1}},
        ]
    )
    assert [call.name for call in calls] == ["", "", "f", "5", "old"]
    assert report.notes["messages that are no objects, left out"] == 2


def test_prompt_and_completion_and_the_usual_names(tmp_path):
    rows = [
        {
            "prompt": "2+2?",
            "completion": "4",
            "reward": "0.5",
            "prompt_id": 3,
            "tools": '[{"type": "function"}]',
        },
        {
            "prompt": chat()[:1],
            "completion": chat()[1:],
            "success": 1,
            "finish_reason": "stop",
            "policy_version": 4,
        },
    ]
    found, _ = read_episodes([write_lines(tmp_path / "a.jsonl", rows)])
    assert [(e.task, e.reward, e.success, e.stop_reason, e.policy_version) for e in found] == [
        ("3", 0.5, None, None, None),
        (None, None, True, "stop", 4),
    ]
    assert [t.role for t in found[0].turns] == ["user", "assistant"]
    assert found[0].tools == [{"type": "function"}]
    assert found[1].calls[0].result == "found"


def test_tau_rows(tmp_path):
    stop = [{"role": "user", "content": "###STOP###"}]
    transfer = chat(name="transfer_to_human_agents")[:3]
    rows = [tau(0, 0, 1.0, chat() + stop), tau(0, 1, 0.0, transfer), tau(1, 0, 0.0, chat(), scored=False)]
    path = tmp_path / "results.json"
    path.write_text(json.dumps(rows))
    found, report = read_episodes([path])
    assert [(e.id, e.task, e.reward, e.stop_reason) for e in found] == [
        ("0/0", "u/0", 1.0, "user_stop"),
        ("0/1", "u/0", 0.0, "transfer_to_human_agents"),
        ("1/0", "u/1", 0.0, "max_steps"),
    ]
    assert report.formats == {str(path): "tau"}


@pytest.mark.skipif(not TAU.exists(), reason="the shared data is not here: ../shared/data/tau-bench")
def test_the_whole_of_tau_bench_against_an_independent_count():
    rows = json.loads(TAU.read_text())
    rewards = [row["reward"] for row in rows]
    names, results, pairs = Counter(), [], []
    for row in rows:
        messages = row["traj"]
        for i, message in enumerate(messages):
            for call in message.get("tool_calls") or []:
                names[call["function"]["name"]] += 1
                pairs.append((json.loads(call["function"]["arguments"]), messages[i + 1]["content"]))
            if message["role"] == "tool":
                results.append(message["content"])
    assert (len(rows), len(pairs)) == (200, 1164)
    found, report = read_episodes([TAU])
    assert [e.reward for e in found] == rewards
    assert Counter(rewards) == {0.0: 116, 1.0: 84}
    assert Counter(c.name for e in found for c in e.calls) == names
    assert [(c.arguments, c.result) for e in found for c in e.calls] == pairs
    failed = [c.error for e in found for c in e.calls if c.error]
    assert failed == [text for text in results if text.startswith("Error")]
    assert len(failed) == 73
    assert len({e.id for e in found}) == 200
    assert Counter(e.stop_reason for e in found) == {
        "user_stop": 147,
        "transfer_to_human_agents": 48,
        "max_steps": 5,
    }
    assert report.num_malformed == 0
    assert not report.notes

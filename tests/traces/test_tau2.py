"""tau2-bench: results in one file, simulations in files of their own, and users who call tools too."""

from __future__ import annotations

import json

from trimtab.traces.read import read_episodes

INFO = {"environment_info": {"domain_name": "telecom", "policy": "p"}, "agent_info": {"llm": "m"}}


def call(id, name, requestor="assistant"):
    return {"id": id, "name": name, "arguments": {"q": 1}, "requestor": requestor}


def result(id, content, requestor="assistant", error=False):
    return {"id": id, "role": "tool", "content": content, "requestor": requestor, "error": error}


def run(**more):
    messages = [
        {"role": "assistant", "content": "Hello?", "turn_idx": 0, "usage": {"completion_tokens": 3}},
        {"role": "user", "content": "My phone is dead.", "tool_calls": None},
        {"role": "assistant", "content": None, "tool_calls": [call("a", "find"), call("b", "reset")], "usage": {"completion_tokens": 4}},
        {"role": "tool", "tool_messages": [result("a", "found"), result("b", "no such line", error=True)]},
        {"role": "user", "content": None, "tool_calls": [call("u", "reboot", "user")]},
        result("u", "Error: no power", "user"),
        {"role": "user", "content": "Done. ###STOP###"},
    ]  # fmt: skip
    return {
        "id": "s1", "task_id": "t7", "trial": 2, "seed": 5, "termination_reason": "user_stop", "duration": 8.5, "agent_cost": 0.25,
        "reward_info": {"reward": 1.0, "reward_breakdown": {"DB": 1.0, "COMMUNICATE": 0.5}}, "messages": messages, **more,
    }  # fmt: skip


def check(one):
    assert (one.id, one.task, one.model, one.stop_reason) == ("s1", "telecom/t7", "m", "user_stop")
    assert (one.reward, one.reward_parts) == (1.0, {"DB": 1.0, "COMMUNICATE": 0.5})
    assert (one.tokens, one.cost, one.duration_s, one.extra["trial"]) == (7, 0.25, 8.5, 2)
    assert [(c.name, c.result, c.error, c.error_from) for c in one.calls] == [
        ("find", "found", "", "log"),
        ("reset", "no such line", "no such line", "log"),
    ]
    assert [turn.role for turn in one.turns] == ["assistant", "user", "assistant", "user"]


def test_results_in_one_file(tmp_path):
    (tmp_path / "r.json").write_text(
        json.dumps({"timestamp": "t", "info": INFO, "tasks": [], "simulations": [run()]}, indent=2)
    )
    (one,), report = read_episodes([tmp_path / "r.json"])
    check(one)
    assert list(report.formats.values()) == ["tau"]
    assert report.notes == {"calls of tools by the simulated user, left out": 1}


def test_simulations_in_files_of_their_own(tmp_path):
    (tmp_path / "simulations").mkdir()
    (tmp_path / "simulations" / "s1.json").write_text(json.dumps(run(), indent=2))
    (tmp_path / "results.json").write_text(json.dumps({"timestamp": "t", "info": INFO, "tasks": []}))
    (one,), report = read_episodes([tmp_path])
    check(one)
    assert report.num_malformed == 0
    assert report.notes["results.json of tau2-bench whose simulations are files of their own"] == 1


def test_a_run_that_was_not_graded_has_no_reward(tmp_path):
    (tmp_path / "s.json").write_text(json.dumps(run(reward_info=None, termination_reason="max_steps")))
    (one,), _ = read_episodes([tmp_path / "s.json"])
    assert (one.task, one.reward, one.reward_parts, one.stop_reason) == ("t7", None, {}, "max_steps")


def test_the_ticks_of_a_voice_run_are_messages(tmp_path):
    ticks = [
        {
            "tick_id": 0,
            "user_chunk": {"role": "user", "content": "My "},
            "agent_chunk": {"role": "assistant"},
        },
        {"tick_id": 1, "user_chunk": {"role": "user", "content": "phone."}},
        {"tick_id": 2, "agent_chunk": {"content": "I "}, "agent_tool_calls": [call("a", "find")]},
        {
            "tick_id": 3,
            "agent_tool_results": [result("a", "found")],
            "user_tool_calls": [call("u", "x", "user")],
        },
        {"tick_id": 4, "agent_chunk": {"content": "see."}},
        "broken",
    ]
    (tmp_path / "s.json").write_text(json.dumps(run(messages=None, ticks=ticks)))
    (one,), report = read_episodes([tmp_path / "s.json"])
    said = [(turn.role, turn.content, [(c.name, c.result) for c in turn.calls]) for turn in one.turns]
    assert said == [
        ("user", "My phone.", []),
        ("assistant", "I ", []),
        ("assistant", None, [("find", "found")]),
        ("assistant", "see.", []),
    ]
    assert report.notes == {"calls of tools by the simulated user, left out": 1}

"""ATIF. The fixtures under `fixtures/coding_agents/harbor` are harbor 0.25.0's own: two are what its converters made of our
logs of Claude Code (its copies of raw results cut) and Codex; the third, and each `result.json`, were built with its models, in
the shape of its Terminus 2."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.traces.make import write_lines
from trimtab.traces.errors.attribution import fault_of
from trimtab.traces.read import read_episodes

LOGS = Path(__file__).parent / "fixtures" / "coding_agents"


@pytest.fixture(scope="module")
def job():
    episodes, report = read_episodes([LOGS / "harbor"])
    return {one.id: one for one in episodes}, report


def blamed(episode):
    return [(call.name, call.error and fault_of(call.error)) for call in episode.calls]


def test_the_trials_result_says_task_rewards_and_what_stopped_it(job):
    episodes, report = job
    main = {one.extra["trial"]: one for one in episodes.values() if one.extra["trial"]}
    assert {name: (one.reward, one.stop_reason) for name, one in main.items()} == {
        "fix-add__one": (1.0, None), "fix-add__two": (None, "agent_timeout"), "fix-add__three": (0.0, "end_turn"),
    }  # fmt: skip
    assert {one.reward for one in episodes.values() if not one.extra["trial"]} == {None}  # sub-agents
    assert {(one.task, one.duration_s) for one in main.values()} == {("fix-add", 42.0)}
    assert main["fix-add__one"].reward_parts == {"reward": 1.0, "style": 0.5}
    assert not [note for note in report.notes if "no format" in note]  # each result.json is used


@pytest.mark.parametrize(("log", "trial"), [("claude", "three"), ("rollout-main.jsonl", "two")])
def test_what_harbor_made_of_a_log_reads_as_the_log(log, trial):
    """But for arguments that are no JSON, which Harbor wraps."""
    native, _ = read_episodes([LOGS / log])
    made, _ = read_episodes([LOGS / "harbor" / f"fix-add__{trial}"])
    native = [one for one in native if not one.id.startswith("86e38a37")]  # the fork
    assert sorted(one.id for one in made) == sorted(one.id for one in native)
    by_id = {one.id: one for one in native}
    for one in made:
        assert blamed(one) == blamed(by_id[one.id])
        assert (one.tokens, one.model) == (by_id[one.id].tokens, by_id[one.id].model)
        told = [c.error for c in by_id[one.id].calls if c.error_from != "parse"]
        assert [c.error for c in one.calls if "failed to parse" not in c.error] == told


def test_terminus(job):
    """Two commands share what the terminal shows; a summary is a sub-agent's; what could not be parsed has no call."""
    episodes, report = job
    terminus = episodes["t1"]
    assert [(call.name, call.result) for call in terminus.calls] == [
        ("bash_command", "def add(a, b):"), ("bash_command", ""),
        ("bash_command", "$ ls\ncalc.py\n$ pytest\nbash: pytest: command not found"), ("bash_command", "ok"),
        ("mark_task_complete", None),
    ]  # fmt: skip
    assert [call.error for call in terminus.calls if call.error] == ["bash: pytest: command not found"]
    shown = terminus.turns[[turn.content for turn in terminus.turns].index("I cannot parse this.") + 1]
    assert (shown.role, shown.content) == ("user", "Previous response had parsing errors")
    first = terminus.turns[1]
    assert (first.token_ids, first.logprobs, first.mask, first.tokens) == (
        [5, 6, 7],
        [-0.1, -0.2, -0.3],
        [1, 1, 1],
        3,
    )
    assert [turn.content for turn in episodes["t1/sum-1"].turns] == ["Sum it up.", "add subtracts."]
    assert report.notes["steps that a trajectory repeats of an earlier one (ATIF), left out"] == 1
    assert report.notes["calls of a step that share one observation (ATIF): it stands with the last"] == 1


def test_only_the_last_segment_is_scored(tmp_path):
    shutil.copytree(LOGS / "harbor" / "fix-add__one", tmp_path / "t")
    first = tmp_path / "t" / "agent" / "trajectory.json"
    value = json.loads(first.read_text(encoding="utf-8"))
    (tmp_path / "t" / "agent" / "trajectory.cont-1.json").write_text(
        json.dumps({**value, "trajectory_id": "t2"})
    )
    (tmp_path / "t" / "agent" / "trajectory.summary-1.json").write_text(
        json.dumps({**value, "trajectory_id": "t3"})
    )
    first.write_text(json.dumps({**value, "continued_trajectory_ref": "trajectory.cont-1.json"}))
    episodes, _ = read_episodes([tmp_path])
    assert {one.id: one.reward for one in episodes if "/" not in one.id} == {
        "t1": None,
        "t2": 1.0,
        "t3": None,
    }


def test_a_trial_of_several_steps(tmp_path):
    """`TRIAL/steps/STEP/agent`: each has its own reward."""
    shutil.copytree(LOGS / "harbor" / "fix-add__one", tmp_path / "t")
    result = json.loads((tmp_path / "t" / "result.json").read_text(encoding="utf-8"))
    result["step_results"] = [{"step_name": "b", "verifier_result": {"rewards": {"tests": 0.25}}}]
    (tmp_path / "t" / "result.json").write_text(json.dumps(result))
    (tmp_path / "t" / "steps" / "b").mkdir(parents=True)
    shutil.move(tmp_path / "t" / "agent", tmp_path / "t" / "steps" / "b" / "agent")
    episodes, _ = read_episodes([tmp_path])
    assert [(one.task, one.reward) for one in episodes if one.extra["trial"]] == [("fix-add/b", 0.25)]


def test_the_agents_own_logs_are_not_read_twice(tmp_path):
    shutil.copytree(LOGS / "harbor" / "fix-add__two", tmp_path / "t")
    native = tmp_path / "t" / "agent" / "sessions" / "2026" / "rollout.jsonl"
    native.parent.mkdir(parents=True)
    shutil.copy(LOGS / "rollout-main.jsonl", native)
    episodes, report = read_episodes([tmp_path])
    assert (
        len(episodes),
        report.notes["logs of which Harbor made the trajectory beside them, left out"],
    ) == (1, 1)
    (own,), _ = read_episodes([native])  # named alone it is what is asked for
    assert own.reward is None


def trajectory(tmp_path, agent, steps):
    row = {"schema_version": "ATIF-v1.8", "agent": {"name": agent}, "steps": steps}
    (episode,), _ = read_episodes([write_lines(tmp_path / "a.jsonl", [row])])
    return episode


def test_the_last_command_has_what_the_terminal_shows(tmp_path):
    names = ("bash_command", "bash_command", "mark_task_complete")
    calls = [
        {"tool_call_id": f"c{i}", "function_name": name, "arguments": {}} for i, name in enumerate(names)
    ]
    step = {
        "source": "agent",
        "message": "",
        "tool_calls": calls,
        "observation": {"results": [{"content": "ok"}]},
    }
    assert [call.result for call in trajectory(tmp_path, "terminus-2", [step]).calls] == ["", "ok", None]


def test_a_flag_of_the_result_wins(tmp_path):
    def step(number, **extra):
        call = {"tool_call_id": f"c{number}", "function_name": "f", "arguments": {}}
        result = {"source_call_id": f"c{number}", "content": "Error: odd", "extra": extra}
        return {
            "step_id": number,
            "source": "agent",
            "message": "",
            "tool_calls": [call],
            "observation": {"results": [result]},
        }

    steps = [step(1, tool_result_is_error=False), step(2, is_error=True), step(3, exit_code=0), step(4)]
    episode = trajectory(tmp_path, "x", [*steps, step(5, exit_code=2)])
    assert [(bool(call.error), call.error_from) for call in episode.calls] == [
        (False, "log"), (True, "log"), (False, "log"), (True, "text"), (True, "log"),
    ]  # fmt: skip
    assert not trajectory(tmp_path, "claude-code", [step(1)]).calls[0].error  # it flags all that failed


def test_a_line_that_is_cut_off(tmp_path):
    whole = {"schema_version": "ATIF-v1.8", "agent": {}, "steps": [{"source": "user", "message": "go"}]}
    text = json.dumps(whole)
    path = tmp_path / "a.jsonl"
    path.write_text(f"{text}\n{text[:40]}", encoding="utf-8")
    episodes, report = read_episodes([path])
    assert (len(episodes), report.num_malformed) == (1, 1)

"""OpenHands. `openhands/events.jsonl` and `base_state.json` are a conversation that openhands-sdk 1.58.2 wrote with its own
TestLLM and tools, one event a line (it writes a file for each); `trajectory.json` was serialized by openhands-ai 0.62.0. Rows of an
evaluation are after OpenHands/benchmarks, `benchmarks/utils/models.py` at 0756724f."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.traces.make import write_lines
from trimtab.traces.errors.attribution import fault_of
from trimtab.traces.errors.unknown_tools import says_unknown_tool
from trimtab.traces.read import read_episodes

LOGS = Path(__file__).parent / "fixtures" / "coding_agents" / "openhands"
EVENTS = [json.loads(line) for line in (LOGS / "events.jsonl").read_text(encoding="utf-8").splitlines()]
OLD = json.loads((LOGS / "trajectory.json").read_text(encoding="utf-8"))


def blamed(episode):
    return [(call.name, call.error and fault_of(call.error)) for call in episode.calls]


CALLS = [
    ("file_editor", ""), ("terminal", ""), ("terminal", "unknown"), ("file_editor", "policy"), ("telescope", "policy"),
    ("terminal", "policy"), ("file_editor", ""), ("file_editor", "policy"), ("terminal", ""), ("finish", ""),
]  # fmt: skip


@pytest.fixture
def conversation(tmp_path):
    """The folder as the SDK writes it."""
    folder = tmp_path / "conversation"
    (folder / "events").mkdir(parents=True)
    shutil.copy(LOGS / "base_state.json", folder)
    for number, event in enumerate(EVENTS):
        path = folder / "events" / f"event-{number:05d}-{event['id']}.json"
        path.write_text(json.dumps(event), encoding="utf-8")
    return folder


def test_a_file_for_each_event_is_one_conversation(conversation):
    (episode,), report = read_episodes([conversation])
    assert blamed(episode) == CALLS
    assert {call.error_from for call in episode.calls} == {"log"}
    assert [call.name for call in episode.calls if says_unknown_tool(call.error)] == ["telescope"]
    assert (episode.id, episode.model) == ("9acd42d7-e93d-4a7b-aed8-e040c908dbf0", "test-model")
    assert (episode.stop_reason, len(report.formats), report.num_malformed) == ("finished", 1, 0)
    assert not report.notes
    first = episode.turns[2]
    assert (first.content, first.reasoning, len(first.calls)) == ("I look at the code.", "Code first.", 2)


def test_events_in_one_file_are_the_same_conversation(conversation):
    (folder,), _ = read_episodes([conversation])
    (lines,), _ = read_episodes([LOGS / "events.jsonl"])
    assert (lines.turns, lines.stop_reason) == (folder.turns, folder.stop_reason)


def test_what_is_damaged_or_went_on(conversation):
    events = sorted((conversation / "events").iterdir())
    events[5].write_text(events[5].read_text()[:40])
    state = json.loads((conversation / "base_state.json").read_text())
    (conversation / "base_state.json").write_text(json.dumps({**state, "execution_status": "stuck"}))
    events[-1].write_text(events[-1].read_text()[:40])  # is being written
    (episode,), report = read_episodes([conversation])
    assert (report.num_malformed, report.problems[0].file) == (2, str(events[5]))
    assert [call.result is None for call in episode.calls[:3]] == [False, True, False]
    assert episode.stop_reason == "stuck"


def test_a_branch_that_was_left(tmp_path):
    """The user went back to his message, and the agent went another way."""
    again = {
        **EVENTS[2],
        "id": "x",
        "llm_response_id": "r",
        "parent_id": EVENTS[1]["id"],
        "tool_call_id": "cx",
    }
    log = write_lines(tmp_path / "a.jsonl", [*EVENTS, again])
    (episode,), report = read_episodes([log])
    assert [call.id for call in episode.calls] == ["cx"]
    assert report.notes["events of branches that a conversation left (OpenHands), left out"] == 20


def test_what_else_ends_a_conversation(tmp_path):
    def read(*events):
        (episode,), report = read_episodes([write_lines(tmp_path / "a.jsonl", [*EVENTS[:6], *events])])
        return episode, report

    event = {"id": "x", "timestamp": "2026-11-23T16:35:00", "source": "environment"}
    assert (
        read({**event, "kind": "ConversationErrorEvent", "code": "MaxIterationsReached", "detail": "30"})[
            0
        ].stop_reason
        == "max_iterations"
    )
    assert read({**event, "kind": "PauseEvent"})[0].stop_reason == "interrupted"
    _, report = read(
        {**event, "kind": "Condensation", "forgotten_event_ids": [EVENTS[2]["id"]], "summary": "s"}
    )
    assert sum(count for note, count in report.notes.items() if note.startswith("compactions")) == 1
    rejected = {
        **event,
        "kind": "UserRejectObservation",
        "tool_name": "terminal",
        "tool_call_id": "call_03",
        "rejection_reason": "No.",
    }
    episode, _ = read(EVENTS[6], rejected)
    assert (episode.calls[2].error, episode.calls[2].error_from) == ("Action rejected: No.", "log")


def test_before_version_1():
    (episode,), report = read_episodes([LOGS / "trajectory.json"])
    assert blamed(episode) == [
        ("execute_bash", ""), ("execute_bash", "unknown"), ("str_replace_editor", "policy"), ("think", ""), ("finish", ""),
    ]  # fmt: skip
    assert [turn.content for turn in episode.turns if turn.role == "assistant"] == [
        "I look at the code.",
        None,
        "Hm.",
        None,
    ]
    assert (episode.stop_reason, episode.model, episode.tokens) == ("finished", "m", 20)
    refused = next(
        turn for turn in episode.turns if turn.content and turn.content.startswith("Function call")
    )
    assert refused.role == "user"  # an answer that came to no action
    assert sum(count for note, count in report.notes.items() if note.startswith("compactions")) == 1


def test_before_function_calls_an_action_is_the_call(tmp_path):
    events = [{k: v for k, v in event.items() if k != "tool_call_metadata"} for event in OLD]
    (episode,), _ = read_episodes([write_lines(tmp_path / "a.jsonl", events)])
    assert [(call.name, call.error != "") for call in episode.calls] == [
        ("run", False), ("run", True), ("edit", True), ("think", False), ("finish", False),
    ]  # fmt: skip
    assert [turn.content for turn in episode.turns[-2:]] == [
        "Function call validation failed: telescope is not a function",
        "add subtracted.",
    ]
    assert [turn.content for turn in episode.turns if turn.calls and turn.calls[0].name == "think"] == [None]
    assert episode.calls[0].arguments == {"command": "cat calc.py"}
    assert episode.turns[2].content == "I look at the code."


@pytest.mark.parametrize("gone", ["success", "metadata"])
def test_a_command_failed_by_its_flag_or_its_code(tmp_path, gone):
    events = json.loads(json.dumps(OLD))
    for event in events:
        event.pop(gone, None)
        event.get("extras", {}).pop(gone, None)
    (episode,), _ = read_episodes([write_lines(tmp_path / "a.jsonl", events)])
    assert [call.error != "" for call in episode.calls[:2]] == [False, True]


def row(history, **fields):
    metrics = {
        "accumulated_cost": 0.5, "accumulated_token_usage": {"completion_tokens": 70},
        "token_usages": [{"response_id": "test-response-1", "completion_tokens": 40}],
    }  # fmt: skip
    metadata = {"llm": {"model": "gpt"}, "max_iterations": 30}
    return {"instance_id": "django-1", "attempt": 2, "test_result": {}, "instruction": "x", "metadata": metadata,
        "history": history, "metrics": metrics, "error": None, **fields}  # fmt: skip


def test_rows_of_an_evaluation(tmp_path):
    rows = [
        row(EVENTS, test_result={"report": {"resolved": True}}),
        row(OLD, instance_id="django-2", error="RuntimeError: Agent reached maximum iteration"),
        row([[OLD[4], {**OLD[6], "cause": None}]], instance_id="django-3"),
    ]  # fmt: skip
    path = write_lines(tmp_path / "output.jsonl", rows)
    (tmp_path / "output.report.json").write_text(
        json.dumps({"resolved_ids": [], "unresolved_ids": ["django-3"]})
    )
    (new, old, pairs), report = read_episodes([path, tmp_path / "output.report.json"])
    assert set(report.formats.values()) == {"openhands"}
    assert blamed(new) == CALLS
    assert (new.id, new.task, new.success, new.model, new.extra["attempt"]) == (
        "django-1",
        "django-1",
        True,
        "gpt",
        2,
    )
    assert (new.tokens, new.cost, new.turns[2].tokens) == (70, 0.5, 40)
    assert (old.stop_reason, old.success, pairs.success) == ("max_iterations", None, False)
    assert [call.result for call in pairs.calls] == ["def add(a, b):"]
    assert not report.notes["files of no format we know, skipped"]


def test_a_row_that_is_cut_off(tmp_path):
    path = tmp_path / "output.jsonl"
    path.write_text(json.dumps(row(EVENTS)) + "\n" + json.dumps(row(EVENTS))[:999], encoding="utf-8")
    episodes, report = read_episodes([path])
    assert (len(episodes), report.num_malformed) == (1, 1)


def test_a_command_that_fails_without_a_word_is_named_by_its_exit_code(tmp_path):
    """Of both versions: `false` prints nothing."""
    new = json.loads(json.dumps(EVENTS))
    (shell,) = [one for one in new if one.get("observation", {}).get("exit_code") not in (None, 0, -1)][:1]
    shell["observation"] |= {"content": [{"type": "text", "text": ""}], "output": ""}
    old = json.loads(json.dumps(OLD))
    (shell,) = [one for one in old if one.get("observation") == "run" and one.get("success") is False][:1]
    shell |= {"content": "", "extras": {**shell["extras"], "metadata": {"exit_code": 1}}}
    for number, events in enumerate((new, old)):
        (episode,), _ = read_episodes([write_lines(tmp_path / f"{number}.jsonl", events)])
        assert "Exit code 1" in [call.error for call in episode.calls]

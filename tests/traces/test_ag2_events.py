"""AG2 1.x. `multi_agent/ag2-store` (an event log with a compaction) and `ag2-evaluation.json` were written by ag2 1.2.1 itself, with its
scripted model; tracebacks were cut to their last line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.traces.make import write_lines
from trimtab.traces.errors.attribution import fault_of
from trimtab.traces.errors.unknown_tools import says_unknown_tool
from trimtab.traces.read import read_episodes

LOGS = Path(__file__).parent / "fixtures" / "multi_agent"
STORE = LOGS / "ag2-store"
STREAM = "50794662-9ef5-4535-9de3-1c7ed3a27de1"


def outcomes(episode):
    return [
        (c.name, c.result and c.result.splitlines()[-1][:12], c.error and fault_of(c.error))
        for c in episode.calls
    ]


CALLS = [
    ("add", "3", ""), ("boom", "ValueError: ", "unknown"), ("nope", "ag2.exceptio", "policy"), ("add", "json.decoder", "policy"),
    ("add", "11", ""),
]  # fmt: skip


def test_a_stream_with_what_a_compaction_dropped_is_one_episode():
    (episode,), report = read_episodes([STORE])
    assert set(report.formats.values()) == {"ag2"}
    assert (episode.id, episode.stop_reason, episode.model, episode.tokens) == (STREAM, "stop", "m-1", 42)
    assert outcomes(episode) == CALLS
    assert [says_unknown_tool(c.error) for c in episode.calls] == [False, False, True, False, False]
    assert episode.calls[1].error == "ValueError: kaputt y"
    assert [turn.content for turn in episode.turns if not turn.calls] == [
        "sum 1 and 2", "héllo: 3", "and 5 and 6", "eleven",
    ]  # fmt: skip
    assert len(episode.turns[1].calls) == 2
    assert sum(count for note, count in report.notes.items() if note.startswith("compactions")) == 1
    assert report.num_malformed == 0


def test_a_stream_without_its_segments_and_a_segment_alone(tmp_path):
    for name in (f"{STREAM}.jsonl", f"{STREAM}.dropped-1.jsonl"):
        (tmp_path / name[-9:]).mkdir()
        shutil.copy(STORE / name, tmp_path / name[-9:])
        (episode,), _ = read_episodes([tmp_path / name[-9:]])
        assert outcomes(episode) == (CALLS[3:] if "dropped" not in name else CALLS[:3])


def test_an_evaluation_is_an_episode_a_task():
    episodes, report = read_episodes([LOGS / "ag2-evaluation.json"])
    assert set(report.formats.values()) == {"ag2"}
    assert [(one.task, one.success, one.reward, one.tokens) for one in episodes] == [
        ("t1", True, 1.0, 14), ("t2", True, 1.0, 14),
    ]  # fmt: skip
    assert [(one.reward_parts, one.duration_s) for one in episodes] == [
        ({"correct": 1.0}, 0.574),
        ({"correct": 1.0}, 0.199),
    ]
    assert outcomes(episodes[0]) == [("add", "3", ""), ("boom", "RuntimeError", "unknown")]
    assert [(turn.role, len(turn.calls)) for turn in episodes[0].turns] == [
        ("user", 0),
        ("assistant", 2),
        ("assistant", 0),
    ]


def test_a_task_that_ended_by_an_exception_and_several_feedbacks(tmp_path):
    run = json.loads((LOGS / "ag2-evaluation.json").read_text(encoding="utf-8"))
    run["tasks"][0] |= {
        "exception": {"type": "ValueError", "message": "x"},
        "feedback": [{"key": "reward", "score": 0.25}, {"key": "style", "score": True}, {"key": "words", "score": None, "value": "fine"}],
    }  # fmt: skip
    run["tasks"][1]["events"] = []
    path = tmp_path / "a.json"
    path.write_text(json.dumps(run), encoding="utf-8")
    first, second = read_episodes([path])[0]
    assert (first.stop_reason, first.reward, first.success) == ("error", 0.25, None)
    assert first.reward_parts == {"reward": 0.25, "style": 1.0}
    assert [turn.content for turn in second.turns] == ["2+2"]


def event(kind, **data):
    return {"type": kind, "data": {"created_at": 1.0, **data}}


def part(kind, **fields):
    return {"__event__": f"ag2.events.input_events.{kind}", "metadata": {}, **fields}


def test_other_events(tmp_path):
    """After ag2 1.2.1's classes: a provider's reasoning and its own tools, a person, a picture, a user's own event, a halt."""
    rows = [
        event("ag2.events.input_events.ModelRequest", parts=[part("TextInput", content="look"), part("BinaryInput", data={"__bytes__": "AA=="})]),
        event("ag2.config.openai.events.OpenAIReasoningEvent", content="hm"),
        event("ag2.events.tool_events.BuiltinToolCallEvent", id="w", name="web_search", arguments='{"q": 1}'),
        event("ag2.events.tool_events.BuiltinToolResultEvent", parent_id="w", name="web_search", result={"data": {"parts": [part("DataInput", data={"n": 3})]}}),
        event("ag2.events.types.ModelResponse", message={"content": "Three."}, tool_calls={"calls": []}, usage={"data": {}}, finish_reason="length"),
        event("ag2.events.types.HumanMessage", content="Stop."), event("mine.Ping", x=1), event("ag2.events.alert.HaltEvent", reason="x"),
    ]  # fmt: skip
    (episode,), report = read_episodes([write_lines(tmp_path / "s.jsonl", rows)])
    assert [(c.name, c.arguments, c.result) for c in episode.calls] == [("web_search", {"q": 1}, '{"n": 3}')]
    assert [(turn.role, turn.content, turn.reasoning) for turn in episode.turns] == [
        ("user", "look\n[BinaryInput]", None), ("assistant", None, None), ("assistant", "Three.", "hm"), ("user", "Stop.", None),
    ]  # fmt: skip
    assert episode.stop_reason == "halted"
    assert report.notes["events of AG2 of a kind we do not read, left out: Ping"] == 1

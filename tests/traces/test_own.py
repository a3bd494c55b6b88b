"""Our own lines: what is written comes back, NaN and infinity included, and a failing loop loses nothing."""

from __future__ import annotations

import json
import math

import pytest

from tests.report.test_trace_diagnosis import run
from trimtab.errors import TraceError
from trimtab.traces.core.episode import Call, Episode, Turn
from trimtab.traces.native.episode_writer import TraceWriter
from trimtab.traces.read import read_episodes


def test_every_field_comes_back(tmp_path):
    path = tmp_path / "log.jsonl"
    turn = Turn(
        role="assistant", content="\ud800 \u202e", calls=[Call(name="a", arguments=[1, {"b": None}], result="", latency_s=0.5, step=1)],
        step=1, token_ids=[1, 2], logprobs=[-0.5, -math.inf], mask=[1, 0], policy_version=3,
    )  # fmt: skip
    episode = Episode(
        id="e",
        turns=[turn],
        reward=math.inf,
        reward_parts={"format": 0.5},
        success=False,
        extra={"k": [1]},
        source="x:1",
    )
    with TraceWriter(path) as log:
        log.write(episode)
    (found,), report = read_episodes([path])
    assert found == episode
    assert report.num_malformed == 0
    assert report.formats == {str(path): "trimtab"}


def test_nan_is_not_absence(tmp_path):
    path = tmp_path / "log.jsonl"
    with TraceWriter(path) as log:
        log.write(Episode(id="nan", reward=math.nan))
        log.write(Episode(id="none"))
    nan, none = read_episodes([path])[0]
    assert math.isnan(nan.reward)
    assert none.reward is None


def test_an_exception_in_the_loop_leaves_the_episode_in_the_log(tmp_path):
    path = tmp_path / "log.jsonl"

    def loop() -> None:
        with TraceWriter(path) as log, log.episode("e", task="t") as e:
            e.message("user", "hi")
            e.call("search", {"q": 1}, error="TimeoutError: 5 s")
            raise ValueError("bug in the loop")

    with pytest.raises(ValueError, match="bug in the loop"):
        loop()
    (found,), _ = read_episodes([path])
    assert found.stop_reason == "exception: ValueError"
    assert [call.error for call in found.calls] == ["TimeoutError: 5 s"]
    assert [turn.role for turn in found.turns] == ["user", "assistant"]


def test_misuse_is_refused_by_name(tmp_path):
    log = TraceWriter(tmp_path / "log.jsonl")
    with pytest.raises(TraceError, match="no field 'rewrad'"), log.episode("e") as e:
        e.finish(rewrad=1.0)
    log.close()
    log.close()
    with pytest.raises(TraceError, match="is closed"):
        log.write(Episode(id="late"))
    with pytest.raises(TraceError, match="cannot be written"):
        TraceWriter(tmp_path)


def test_a_line_that_does_not_fit_is_located_and_a_newer_format_refused(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"trimtab": 1, "id": "a"}\n{"trimtab": 1, "id": "b", "turns": [{"role": 7}]}\n{"trimtab": 1, "id": "c", "new": 1}\n'
    )
    found, report = read_episodes([path])
    assert [e.id for e in found] == ["a", "c"]
    assert [(p.line, p.reason) for p in report.problems] == [
        (2, "Expected `str`, got `int` - at `$.turns[0].role`")
    ]
    path.write_text('{"trimtab": 2, "id": "a"}\n')
    with pytest.raises(TraceError, match="newer trimtab"):
        read_episodes([path])


def test_flat_calls_carry_what_the_live_watch_needs():
    call = Call(name="a", arguments="text", result="four", error="x", latency_s=None)
    (flat,) = Episode(id="e", turns=[Turn(calls=[call])]).tool_calls(step=5, number=9)
    assert (flat.name, flat.arguments, flat.result_size, flat.error, flat.step, flat.episode_id) == (
        "a",
        {},
        4,
        "x",
        5,
        9,
    )
    assert math.isnan(flat.latency_s)


def test_copies_are_dropped_and_other_episodes_of_the_same_id_renamed(tmp_path):
    path = tmp_path / "log.jsonl"
    rows = [{"trimtab": 1, "id": "a"}, {"trimtab": 1, "id": "a"}, {"trimtab": 1, "id": "a", "reward": 1.0}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found, report = read_episodes([path, path])
    assert [(e.id, e.reward) for e in found] == [("a", None), ("a#2", 1.0)]
    assert sorted(report.notes.values()) == [
        1,
        1,
    ]  # a copy and a renamed one; a file named twice is read once


def test_a_line_that_a_killed_loop_cut_costs_the_next_episode_nothing(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"trimtab": 1, "id": "a"}\n{"trimtab": 1, "id": "cu')
    for name in ("b", "c"):
        with TraceWriter(path) as log:
            log.write(Episode(id=name))
    found, report = read_episodes([path])
    assert [e.id for e in found] == ["a", "b", "c"]
    assert [p.line for p in report.problems] == [2]


def test_an_error_that_a_loop_gave_is_the_logs_word(tmp_path):
    path = tmp_path / "log.jsonl"
    with TraceWriter(path) as log:
        for i in range(20):
            with log.episode(f"e{i}") as e:
                e.call("add", {"a": i}, error="boom")
    text = run("diagnose", path)[1]
    assert "20 x boom" in text
    assert "by text" not in text

"""Every format: told by content, read to the same kind of episode."""

from __future__ import annotations

import json

import duckdb
import pytest

from tests.report.test_trace_diagnosis import run
from tests.traces import samples
from tests.traces.make import write_lines
from trimtab.errors import TraceError
from trimtab.traces.messages.tool_tags import tagged_turns
from trimtab.traces.native.native_format import dump_episode
from trimtab.traces.read import read_episodes
from trimtab.traces.table.build import tabulate


def _read(tmp_path, *records):
    found, report = read_episodes([write_lines(tmp_path / "log.jsonl", records)])
    assert report.num_malformed == 0
    return found


@pytest.mark.parametrize("name", samples.RECORDS)
def test_each_format_is_told_by_its_content_and_goes_through_the_commands(tmp_path, name):
    path = write_lines(tmp_path / "log.data", samples.RECORDS[name])
    found, report = read_episodes([path])
    assert report.formats == {str(path): name}
    assert found
    assert run("show", path)[0] == 0
    assert run("convert", path, "-o", tmp_path / "own.jsonl")[0] == 0
    again, _ = read_episodes([tmp_path / "own.jsonl"])
    assert [dump_episode(e) for e in again] == [dump_episode(e) for e in found]
    code, text = run("diagnose", path)
    assert code == 2  # too few to judge
    assert "NOT JUDGED YET" in text


def test_spans(tmp_path):
    found, other = _read(tmp_path, samples.otlp(), samples.openinference())
    assert (found.id, found.reward, found.tokens, found.model, found.stop_reason, found.duration_s) == (
        "t1",
        0.5,
        7,
        "m",
        "stop",
        6.0,
    )
    assert [(t.role, t.content) for t in found.turns] == [("user", "Where?"), ("assistant", "I look.")]
    (call,) = found.calls
    assert (call.name, call.arguments, call.result, call.error, call.latency_s) == (
        "search",
        {"q": "x"},
        "r",
        "timeout",
        2.0,
    )
    assert (other.id, other.calls[0].arguments, other.calls[0].error, other.tokens) == (
        "s1",
        "x",
        "Error: no",
        3,
    )


def test_inspect(tmp_path):
    first, second = _read(tmp_path, samples.inspect())
    assert (first.id, first.task, first.reward, first.reward_parts, first.model) == (
        "1/2",
        "1",
        1.0,
        {"match": 1.0, "grade": 0.3},
        "m",
    )
    assert (first.calls[0].name, first.calls[0].error, first.calls[0].error_from) == ("search", "5 s", "log")
    assert (first.stop_reason, second.stop_reason) == (None, "max_turns")


def test_swe_agent(tmp_path):
    path = tmp_path / "repo__1.traj"
    path.write_text(json.dumps(samples.swe(), indent=1))
    (found,), _ = read_episodes([path])
    assert (found.id, found.stop_reason, found.cost, found.tokens) == ("repo__1", "submitted", 0.1, 9)
    assert [(t.role, t.content) for t in found.turns] == [
        ("system", "You fix."),
        ("user", "Issue."),
        ("assistant", "Look first."),
        ("assistant", "Hm."),
    ]
    assert [(c.name, c.arguments, c.result, c.latency_s) for c in found.calls] == [
        ("open", {"command": "open a.py"}, "text", 0.5)
    ]


def test_verifiers_of_other_years(tmp_path):
    """Milliseconds in columns of their own; before `example_id` the example's number was the `id`."""
    row = {k: v for k, v in samples.verifiers().items() if k not in ("example_id", "task")}
    later = {
        **row,
        "example_id": 4,
        "task": "env",
        "generation_ms": 900.0,
        "scoring_ms": 100.0,
        "total_ms": 1_000.0,
    }
    older = [{**row, "id": i // 3, "task": "default"} for i in range(30)]
    (first, *rest) = _read(tmp_path, later, *older)
    assert first.duration_s == 1.0
    assert len({e.id for e in rest}) == 30
    assert [e.task for e in rest] == [f"default/{i // 3}" for i in range(30)]


def test_verifiers_and_verl(tmp_path):
    (found,) = _read(tmp_path, samples.verifiers())
    assert (found.task, found.reward, found.reward_parts, found.stop_reason) == (
        "env/4",
        0.5,
        {"format": 1.0},
        "truncated",
    )
    assert (found.calls[0].name, found.calls[0].result, found.tools) == (
        "search",
        "found",
        [{"type": "function", "function": {"name": "search"}}],
    )
    first, second = _read(tmp_path, samples.verl(), samples.verl() | {"score": 1})
    assert (first.reward, first.success, first.step, first.reward_parts) == (0.25, True, 7, {"format": 1.0})
    assert first.task == second.task
    assert [(c.name, c.error) for c in first.calls] == [("search", "Error: no rows")]
    assert first.turns[-1].content == "Nothing there."


def test_trl_completions_in_parquet(tmp_path):
    path = tmp_path / "completions_00005.parquet"
    row = "select 5 as step, 'Where?' as prompt, 'There.' as completion, 0.5::double as a, 1.0::double as reward_b, -0.1::double as advantage"
    with duckdb.connect() as con:
        con.execute(f"copy ({row} union all {row}) to '{path}' (format parquet)")
    found, report = read_episodes([path])
    assert report.formats == {str(path): "trl"}
    assert [(e.reward, e.reward_parts, e.step) for e in found] == [(1.5, {"a": 0.5, "reward_b": 1.0}, 5)] * 2
    assert found[0].group == found[1].group
    path.write_bytes(b"PAR1garbage")
    with pytest.raises(TraceError, match="cannot be read as Parquet"):
        read_episodes([path])


def test_prime_rl_keeps_ids_logprobs_and_mask(tmp_path):
    (found,) = _read(tmp_path, samples.prime())
    (turn,) = found.turns
    assert (turn.token_ids, turn.mask, found.step, found.tokens) == ([1, 2, 3], [0, 1, 1], 3, 3)
    assert turn.logprobs[:2] == [0.0, -0.5]
    assert turn.logprobs[2] != turn.logprobs[2]  # what was null is NaN, not a shorter list
    assert found.extra["advantage"] == 0.5


def test_nemo_rls_training_data_has_log_ratios_without_the_padding(tmp_path):
    path = write_lines(
        tmp_path / "train_data_step12.jsonl", [samples.nemo(), samples.nemo() | {"sample_loss_mask": [0.0]}]
    )
    (one, masked), report = read_episodes([path])
    assert report.formats == {str(path): "nemo-rl"}
    (turn,) = one.turns
    assert (turn.token_ids, turn.mask, one.step, one.tokens, one.reward) == ([1, 2, 3], [0, 1, 1], 12, 3, 0.5)
    assert repr(turn.log_ratios) == "[nan, -0.25, 0.0]"  # pi_old over mu, of the trained tokens
    assert (one.log_ratio_of, one.extra["advantage"]) == ("trainer / sampler", 0.5)
    assert masked.turns[0].mask == [0, 0, 0]


def test_tagged_text_with_broken_and_parallel_calls():
    two = '<tool_call>{"name": "a"}</tool_call><tool_call>{oops</tool_call><tool_response>1</tool_response><tool_response>2</tool_response>'
    turns = tagged_turns(two + '<tool_response>3</tool_response><tool_call>{"name": "b"}')
    calls = [call for turn in turns for call in turn.calls]
    assert [(c.name, c.result, c.error_from) for c in calls] == [
        ("a", "1", ""),
        ("", "2", "parse"),
        ("b", None, ""),
    ]
    assert [turn.role for turn in turns] == ["assistant", "tool", "assistant"]
    assert tagged_turns("")[0].content == ""


@pytest.mark.parametrize(
    ("math", "code", "reward", "parts", "alarms"),
    [
        (1.0, float("nan"), 1.0, {"math": 1.0}, 0),
        (float("nan"), 0.0, 0.0, {"code": 0.0}, 0),
        (0.25, 0.5, 0.75, {"math": 0.25, "code": 0.5}, 0),
        (float("inf"), float("nan"), float("inf"), {"math": float("inf")}, 1),
    ],
)
def test_trl_leaves_functions_that_gave_no_reward_out_of_the_sum(tmp_path, math, code, reward, parts, alarms):
    row = {"step": "1", "prompt": "q", "completion": "a", "math": math, "code": code, "advantage": 0.1}
    (found,) = _read(tmp_path, row)
    assert (found.reward, found.reward_parts) == (reward, parts)
    assert tabulate([found]).nan_rewards == alarms


def test_trls_reward_is_nan_where_no_function_gave_one(tmp_path):
    nan = float("nan")
    (found,) = _read(
        tmp_path, {"step": "1", "prompt": "q", "completion": "a", "x": nan, "y": nan, "advantage": 0.1}
    )
    assert found.reward != found.reward
    assert tabulate([found]).nan_rewards == 1

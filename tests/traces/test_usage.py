"""Times, tokens, tools and failures that verifiers and Inspect write, at the places where they write them."""

from __future__ import annotations

from tests.traces import samples
from tests.traces.make import write_lines
from trimtab.traces.export.samples import sample_of
from trimtab.traces.read import read_episodes


def test_verifiers_times_tokens_and_failures(tmp_path):
    timing = {"generation_ms": 1200.0, "scoring_ms": 30.0, "total_ms": 1230.0, "start_time": 1763740000.5}
    row = samples.verifiers() | {"timing": timing, "token_usage": {"input_tokens": 100.0, "output_tokens": 50.0}, "is_truncated": False}  # fmt: skip
    error = {"error": "ToolError", "error_chain_repr": "ToolError('x')", "error_chain_str": "x"}
    path = write_lines(tmp_path / "results.jsonl", [row | {"error": None}, row | {"error": error, "reward": 0.0}])  # fmt: skip
    (well, failed), report = read_episodes([path])
    assert (well.duration_s, well.tokens, well.time, well.stop_reason) == (1.23, 50, 1763740000.5, "max_turns_reached")  # fmt: skip
    assert (failed.stop_reason, failed.reward) == ("error", 0.0)
    assert report.notes == {"episodes that ended in an error of their environment": 1}
    assert [sample_of(e, 0.0).tool_fault for e in (well, failed)] == [False, True]  # left out of pairs


def test_inspect_tokens_tool_times_and_tools(tmp_path):
    log = samples.inspect()
    sample = log["samples"][0]
    info = {"name": "search", "description": "d", "parameters": {"type": "object", "properties": {}}}
    event = {"event": "tool", "id": "c", "function": "search", "timestamp": "2025-01-01T00:00:00.25+00:00", "completed": "2025-01-01T00:00:12.75+00:00", "working_time": 12.0}  # fmt: skip
    events = [{"event": "model", "tools": [info]}, event, {"event": "model", "tools": [info]}]
    usage = {"a": {"input_tokens": 10, "output_tokens": 20}, "b": {"output_tokens": 3}}
    output = {"usage": {"output_tokens": 7}}
    log["samples"] = [{**sample, "events": events, "model_usage": usage, "output": output}, {**sample, "epoch": 3, "output": output}]  # fmt: skip
    (full, bare), _ = read_episodes([write_lines(tmp_path / "log.json", [log])])
    assert (full.tokens, full.calls[0].latency_s, full.calls[0].time) == (23, 12.5, 1735689600.25)
    assert full.tools == [{"type": "function", "function": info}]
    assert (bare.tokens, bare.calls[0].latency_s, bare.tools) == (7, None, None)

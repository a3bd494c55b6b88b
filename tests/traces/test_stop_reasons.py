"""Which reasons mean that a limit ended the episode, as the tools spell them, through the readers to the table."""

from __future__ import annotations

import pytest

from tests.traces import samples
from tests.traces.make import chat, write_lines
from trimtab.traces.read import read_episodes
from trimtab.traces.table.build import tabulate

LIMITS = (
    "length", "MAX_TOKENS", "max_output_tokens", "token limit", "max-turns", "exit_cost", "submitted (exit_cost)", "submitted (exit_context)",
    "exit_total_execution_time", "LimitsExceeded", "max_turns_reached", "model_context_window_exceeded", "Timeout",
    "max_steps_exceeded", "step_limit", "turn_limit", "max_iterations_reached", "max_tool_calls", "token_budget_exceeded", "budget_exceeded", "timed_out",
    "StopReason.LENGTH", "GraphRecursionError", "Agent stopped due to iteration limit or time limit.", "FinishReason.MAX_TOKENS", "FINISH_REASON_MAX_TOKENS", "finish_reason=length", "MaxTurnsExceeded", "agent-step-limit", "Exceeded max steps.",
    "maximum number of turns reached", "wall time limit", "recursion_limit", "limits_exceeded", "max_total_completion_tokens_reached", "custom_limit", "time_exceeded",
)  # fmt: skip
ENDS = (
    "rate_limit",
    "no_limit",
    "within budget",
    "goal_reached",
    "max",
    "tool_calls",
    "FinishReason.STOP",
    "StopReason.",
    "message",
    "length_ok",
    "stop",
    "submitted",
    "Submitted",
    "user_stop",
    "exit_format",
    "operator",
    "",
    "(",
    "answer (final)",
)


@pytest.mark.parametrize(
    ("stop", "cut"), [*((name, 1) for name in LIMITS), *((name, 0) for name in ENDS), (None, -1)]
)
def test_limits_by_name(tmp_path, stop, cut):
    row = {"id": "a", "messages": chat(), "stop_reason": stop}
    found, _ = read_episodes([write_lines(tmp_path / "a.jsonl", [row])])
    assert tabulate(found).truncated.tolist() == [cut]


@pytest.mark.parametrize(
    ("limit", "cut"),
    [("context", 1), ("message", 1), ("token", 1), ("time", 1), ("working", 1), ("cost", 1), ("custom", 1), ("operator", 0)],
)  # fmt: skip
def test_limits_of_inspect(tmp_path, limit, cut):
    log = samples.inspect()
    log["samples"] = [{**log["samples"][0], "limit": {"type": limit, "limit": 9.0}}]
    found, _ = read_episodes([write_lines(tmp_path / "a.json", [log])])
    assert tabulate(found).truncated.tolist() == [cut]


def test_inspects_stop_reason_is_that_of_the_answer(tmp_path):
    log = samples.inspect()
    output = {
        "model": "m",
        "choices": [{"message": {"role": "assistant", "content": "x"}, "stop_reason": "max_tokens"}],
    }
    log["samples"] = [{**log["samples"][0], "output": output}]
    found, _ = read_episodes([write_lines(tmp_path / "a.json", [log])])
    assert found[0].stop_reason == "max_tokens"
    assert tabulate(found).truncated.tolist() == [1]

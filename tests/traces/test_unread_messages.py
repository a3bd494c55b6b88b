"""Messages that nobody can read, in every format: never HEALTHY, counted, and named by their keys."""

from __future__ import annotations

import json

import pytest

from tests.report.test_trace_diagnosis import run
from tests.traces import samples
from tests.traces.make import chat, steps, tau, write_lines
from trimtab.errors import TraceError
from trimtab.traces.read import read_episodes
from trimtab.traces.registry import FORMATS

NUM = 48


def _chat(i):
    return chat(arguments=json.dumps({"q": f"x{i}"}), result=f"found {i}")


def _own(i):
    call = {"name": "search", "arguments": {"q": i}, "result": f"found {i}"}
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "There.", "calls": [call]}]
    return {"trimtab": 1, "id": f"o{i}", "turns": turns, "reward": i % 2}


def _tau2(i):
    reward = {"reward": i % 2}
    return {**samples.tau2(), "id": f"{i}", "termination_reason": "agent_stop", "messages": _chat(i), "reward_info": reward}  # fmt: skip


def _otlp(i):
    log = samples.otlp()
    for span in log["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        span["traceId"] = f"t{i}"
        span.pop("status", None)
        for one in span["attributes"]:
            if one["key"].endswith("score.value"):
                one["value"] = {"doubleValue": float(i % 2)}
    return log


def _inspect(i):
    sample = {"id": i, "epoch": 1, "messages": _chat(i), "scores": {"match": {"value": i % 2}}}
    return {**samples.inspect(), "samples": [sample]}


def _verifiers(i):
    ends = {"is_truncated": False, "stop_condition": "done"}
    return {**samples.verifiers(), **ends, "example_id": i, "prompt": _chat(i)[:1], "completion": _chat(i)[1:], "reward": i % 2}  # fmt: skip


def _verifiers_trace(i):
    value = samples.verifiers_trace()
    nodes = [{"parent": k - 1 if k else None, "message": m} for k, m in enumerate(_chat(i))]
    trace = {**value["traces"][0], "id": f"v{i}", "rewards": {"right": i % 2}, "calls": [], "nodes": nodes}
    return {**value, "traces": [{**trace, "stop_condition": "done"}]}


def _mini(i):
    return {**samples.mini(), "instance_id": f"x{i}", "info": {"exit_status": "Submitted"}}


ROWS = {
    "trimtab": _own,
    "tau": lambda i: tau(i, 0, i % 2, _chat(i)),
    "tau2": _tau2,
    "otlp": _otlp,
    "inspect": _inspect,
    "mini-swe-agent": _mini,
    "verifiers": _verifiers,
    "verifiers traces": _verifiers_trace,
    "trl": lambda i: {"step": 1, "prompt": _chat(i)[:1], "completion": _chat(i)[1:], "r": i % 2, "advantage": i % 2 - 0.5},
    "messages": lambda i: {"id": f"m{i}", "messages": _chat(i), "reward": i % 2},
    "preferences": lambda i: {"prompt": _chat(i)[:1], "chosen": _chat(i)[1:], "rejected": _chat(i)[1:], "score_chosen": i % 2, "score_rejected": 0},
    "autogen": lambda i: {"chat_id": i, "chat_history": _chat(i), "is_correct": i % 2 == 0},
    "mapped": lambda i: {"run": _chat(i), "score": i % 2},
}  # fmt: skip
"""Formats of messages, each with a row of an episode that is well."""


def _without_calls(message, content):
    kept = {k: v for k, v in message.items() if k not in ("tool_calls", "calls")}
    return {k: content if k in ("content", "parts") else v for k, v in kept.items()}


CHANGES = {
    "speaker": lambda m: {"speaker": m["role"], "utterance": "hm"},
    "rolle": lambda m: {"rolle" if k == "role" else k: v for k, v in m.items()},
    "rolle of answers": lambda m: {"rolle": m["role"], "content": "hm"} if m["role"] == "assistant" else m,
    "object": lambda m: _without_calls(m, {"weird": 1}),
    "list of objects": lambda m: _without_calls(m, [{"weird": 1}]),
    "unknown parts": lambda m: _without_calls(m, [{"type": "weird", "x": 1}]),
    "number": lambda m: 17,
}


def _changed(value, change):
    """With every message changed, also those in JSON text."""
    if isinstance(value, str) and value.startswith('[{"role"'):
        return json.dumps(_changed(json.loads(value), change))
    if isinstance(value, list):
        return [_changed(one, change) for one in value]
    if isinstance(value, dict):
        return change(value) if "role" in value else {k: _changed(v, change) for k, v in value.items()}
    return value


def _diagnose(folder, name, rows):
    """The exit code and what is printed, of an error too; trajectories are a file each."""
    if name in ("swe-agent", "mini-swe-agent"):
        suffix = ".traj" if name == "swe-agent" else ".traj.json"
        for i, row in enumerate(rows):
            (folder / f"x{i}{suffix}").write_text(json.dumps(row))
        resolved = [f"x{i}" for i in range(0, NUM, 2)]
        (folder / "report.json").write_text(json.dumps({"resolved_ids": resolved}))
        where = folder
    else:
        where = write_lines(folder / "log.jsonl", rows)
    more = ["--map", "messages=run", "--map", "reward=score"] if name == "mapped" else []
    try:
        return run("diagnose", where, *more)
    except TraceError as error:
        return 2, str(error)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ROWS)
def test_messages_that_nobody_can_read_are_never_healthy(tmp_path, name, change):
    code, text = _diagnose(tmp_path, name, [_changed(ROWS[name](i), CHANGES[change]) for i in range(NUM)])
    if name == "otlp" and change.startswith("rolle"):  # the span says who speaks
        return
    assert code in (1, 2), text
    assert "HEALTHY" not in text
    named = ("could not be read", "no message was read", "no episode", "of no format we know", "--map")
    assert any(word in text for word in named), text


@pytest.mark.parametrize("name", ROWS)
def test_the_same_logs_unchanged_are_healthy_and_leave_nothing_out(tmp_path, name):
    code, text = _diagnose(tmp_path, name, [ROWS[name](i) for i in range(NUM)])
    assert (code, text.split(":")[0], "could not be read" in text) == (0, "HEALTHY", False)


def _step_rows(i, old, new):
    return [{new if k == old[1] and row["type"] == old[0] else k: v for k, v in row.items()} for row in steps(f"s{i}", reward=i % 2)]  # fmt: skip


@pytest.mark.parametrize(
    "field", [("assistant_message", "content"), ("tool_result", "result"), ("tool_call", "tool")]
)
def test_steps_that_say_nothing_under_a_known_name_are_counted(tmp_path, field):
    code, text = _diagnose(tmp_path, "steps", [r for i in range(NUM) for r in _step_rows(i, field, "hm")])
    assert code in (1, 2), text
    assert "could not be read" in text
    assert f"steps of kind {field[0]} that say nothing under a name we know; their keys" in text


def test_steps_whose_content_is_an_object_are_counted(tmp_path):
    rows = [r for i in range(NUM) for r in steps(f"s{i}", reward=i % 2)]
    assert _diagnose(tmp_path, "steps", rows)[0] == 0
    rows = [r | ({"content": {"weird": 1}} if r["type"] == "assistant_message" else {}) for r in rows]
    code, text = _diagnose(tmp_path, "steps", rows)
    assert (code, f"{NUM} of {8 * NUM} messages could not be read" in text) == (2, False), text
    assert f"{NUM} of {len(rows)} messages could not be read" in text


@pytest.mark.parametrize(("change", "verdict"), [({}, "HEALTHY"), ({"hm": 1}, "BLIND"), ("objects", "BLIND")])
def test_steps_of_swe_agent_that_say_nothing_are_counted(tmp_path, change, verdict):
    row = samples.swe()
    (step, _), words = row["trajectory"], ("thought", "response", "action")
    if change == "objects":
        step["thought"] = {"weird": 1}
    elif change:
        step = {**{k: v for k, v in step.items() if k not in words}, **change}
    text = _diagnose(tmp_path, "swe-agent", [{**row, "trajectory": [step]}] * NUM)[1]
    assert text.startswith(verdict) or (change == {"hm": 1} and text.startswith("ALARMS"))
    assert ("could not be read" in text) == (verdict == "BLIND")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("verl", {"output": {"weird": 1}}),
        ("prime-rl", {"token_ids": {"weird": 1}}),
        ("nemo-rl", {"token_ids": {"weird": 1}}),
    ],
)
def test_rows_of_text_or_tokens_that_hold_none_are_malformed(tmp_path, name, change):
    rows = [{**samples.RECORDS[name][0], "score": i % 2} for i in range(NUM)]
    broken = [row | change if i % 2 else row for i, row in enumerate(rows)]
    code, text = _diagnose(tmp_path, name, broken)
    assert code == 1
    assert f"{NUM // 2} of {NUM} lines" in text


_LINE = {"sessionId": "s", "uuid": "u", "parentUuid": None, "timestamp": "2026-11-23T16:00:00Z"}
_EVENT = {"id": "e", "timestamp": "2026-11-23T16:00:00Z", "source": "agent"}


def _item(**payload):
    return {"timestamp": "2026-11-23T16:00:00Z", "type": "response_item", "payload": payload}


def _steps_of_atif(step):
    return {"schema_version": "ATIF-v1.8", "agent": {}, "steps": [step]}


AGENTS = {
    "claude-code": [{**_LINE, "type": "assistant", "message": m} for m in ({"speaker": "assistant", "utterance": "hm"}, {"role": "assistant", "content": {"weird": 1}}, {"role": "assistant", "content": [{"weird": 1}]})],
    "codex": [_item(type="message", rolle="assistant", content="hm"), _item(type="message", role="assistant", content={"weird": 1}), _item(type="message", role="assistant", content=[{"weird": 1}])],
    "atif": [_steps_of_atif(step) for step in ({"source": "agent", "messag": "hm"}, {"sourc": "agent", "message": "hm"}, {"source": "agent", "message": {"weird": 1}})],
    "openhands-events": [{**_EVENT, "kind": "MessageEvent", "llm_message": m} for m in ({"speaker": "assistant"}, {"role": "assistant", "contentt": "hm"}, {"role": "assistant", "content": {"weird": 1}})],
    "openhands": [{"instance_id": "i", "history": [{**_EVENT, "kind": "ObservationEvent", "tool_call_id": "c", "observation": o}]} for o in ({"contentt": "hm"}, {"x": 1}, {})],
    "codex-exec": [{"type": "item.completed", "item": {"id": "i", "type": "agent_message", **m}} for m in ({"textt": "hm"}, {"text": {"weird": 1}})],
    "ag2": [{"type": "ag2.events.ModelResponse", "data": m} for m in ({"messagee": "hm"}, {"message": {"contentt": "hm"}}, {"message": {"content": {"weird": 1}}})],
}  # fmt: skip
"""Of formats of which a row is no episode, or has no role: a message that nobody can read."""


@pytest.mark.parametrize(("name", "row"), [(name, row) for name, rows in AGENTS.items() for row in rows])
def test_what_agents_logs_say_under_no_name_we_know_is_counted(tmp_path, name, row):
    _, report = read_episodes([write_lines(tmp_path / "a.jsonl", [row])])
    assert report.formats.popitem()[1] == name
    assert sum(report.unread_messages.values()) == 1


def test_every_format_is_tried():
    others = {"steps", "swe-agent", "verl", "prime-rl", "nemo-rl", *AGENTS, "autogen-messages", "requests"}
    assert {name.split()[0] for name in ROWS} - {"tau2", "preferences"} | others == set(FORMATS)


def test_a_small_share_is_said_and_a_larger_one_is_blind(tmp_path):
    """The keys are named; one of a hundred does not hide what the others say."""
    rows = [{"id": f"m{i}", "messages": _chat(i), "reward": i % 2} for i in range(NUM)]
    for many, code in ((3, 0), (20, 2)):
        some = [
            {**r, "messages": [*r["messages"], {"said": "hm", "who": "x"}]} if i < many else r
            for i, r in enumerate(rows)
        ]
        found = _diagnose(tmp_path, "messages", some)
        assert found[0] == code, found[1]
        assert f"{many} of {4 * NUM + many} messages could not be read" in " ".join(found[1].split())
        assert "left out; their keys: said, who" in found[1]


def test_json_has_the_counts(tmp_path):
    rows = [{"id": f"m{i}", "messages": [*_chat(i), 17], "reward": i % 2} for i in range(NUM)]
    found = json.loads(run("diagnose", write_lines(tmp_path / "a.jsonl", rows), "--json")[1])
    assert (found["num_unread"], found["num_messages"], found["verdict"]) == (NUM, 5 * NUM, "blind")


def test_a_comparison_of_what_was_not_read_is_blind(tmp_path):
    rows = [ROWS["verifiers"](i) for i in range(NUM)]
    well = write_lines(tmp_path / "a.jsonl", rows)
    ill = write_lines(tmp_path / "b.jsonl", [_changed(row, CHANGES["object"]) for row in rows])
    code, text = run("compare", well, ill)
    assert (code, text.split(":")[0]) == (2, "BLIND")
    assert "could not be read, as 96 answers whose content is neither text" in text
    assert text.count("could not be read") == 1
    assert run("compare", well, well)[0] == 0


def test_episodes_without_a_message_of_the_agents_are_told(tmp_path):
    rows = [ROWS["verifiers"](i) | ({"completion": None} if i < 12 else {}) for i in range(NUM)]
    code, text = _diagnose(tmp_path, "verifiers", rows)
    assert (code, f"12 of {NUM} episodes without a message of the agent's" in text) == (0, True), text

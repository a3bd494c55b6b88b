"""The three commands of a new user on a log of each format, two attempts at a task in each: diagnose, pairs to train on, the page."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.report.test_trace_diagnosis import run
from tests.traces import samples
from tests.traces.make import chat, steps, tau, write_lines
from trimtab.errors import TraceError
from trimtab.traces.export import export

BAD = "I found nothing at all, and will not look again."


def bad_chat() -> list[dict[str, Any]]:
    return [*chat(result="Error: no rows")[:-1], {"role": "assistant", "content": BAD}]


def _own(name: str, reward: float, text: str) -> dict[str, Any]:
    turns = [*samples.own()["turns"], {"role": "assistant", "content": text}]
    return {**samples.own(), "id": name, "task": "t", "turns": turns, "reward": reward}


def _steps() -> list[dict[str, Any]]:
    rows = [*steps("a", 2, 1.0), *steps("b", 3, 0.0)]
    return [row | {"task_id": "t"} if row["type"] == "episode_end" else row for row in rows]


def _otlp(session: str, text: str, score: float, at: int) -> dict[str, Any]:
    """Spans name no task: the prompt is what two attempts share."""

    def said(role: str, content: str) -> str:
        return json.dumps([{"role": role, "parts": [{"type": "text", "content": content}]}])

    asked = {
        "gen_ai.operation.name": "chat",
        "session.id": session,
        "gen_ai.input.messages": said("user", "Where?"),
        "gen_ai.output.messages": said("assistant", text),
    }
    judged = {
        "gen_ai.evaluation.name": "judge",
        "gen_ai.evaluation.score.value": score,
        "session.id": session,
    }
    spans = [samples._span(at, at + 1, asked), samples._span(at + 2, at + 3, judged)]
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]}


def _inspect() -> dict[str, Any]:
    log = samples.inspect()
    first = {**log["samples"][0], "epoch": 1}
    second = copy.deepcopy(first) | {"epoch": 2, "scores": {"match": {"value": "I"}, "grade": {"value": 0.0}}}
    for sample in (first, second):
        sample["messages"] = [
            m | {"error": None, "content": "x"} if m["role"] == "tool" else m for m in sample["messages"]
        ]
    second["messages"].append({"role": "assistant", "content": BAD})
    return {**log, "samples": [first, second]}


def _text(record: dict[str, Any], field: str, **more: Any) -> dict[str, Any]:
    return {**record, field: record[field].replace("Nothing there.", BAD), **more}


LOGS: dict[str, list[Any]] = {
    "trimtab": [_own("a", 1.0, "There."), _own("b", 0.0, BAD)],
    "steps": _steps(),
    "tau": [tau(1, 0, 1.0, chat()), tau(1, 1, 0.0, bad_chat())],
    "otlp": [_otlp("s1", "On the shelf.", 1.0, 1), _otlp("s2", BAD, 0.0, 10)],
    "inspect": [_inspect()],
    "verifiers": [
        samples.verifiers() | {"reward": 1.0},
        samples.verifiers() | {"reward": 0.0, "completion": bad_chat()[1:]},
    ],
    "verl": [samples.verl() | {"score": 1.0}, _text(samples.verl(), "output", score=0.0, acc=False)],
    "trl": [samples.trl(), _text(samples.trl(), "completion", format_reward=0.0, answer_reward=0.0)],
    "messages": [
        {"id": "m1", "messages": chat(), "reward": 1.0},
        {"id": "m2", "messages": bad_chat(), "reward": 0.0},
    ],
}
SCORELESS = {
    "swe-agent": "reward or success",
    "mini-swe-agent": "reward or success",
    "prime-rl": "no user message",
    "nemo-rl": "no user message",
}
"""Formats whose files alone hold no pair, and why the export says so."""


def test_every_format_is_here():
    assert LOGS.keys() | SCORELESS.keys() == samples.RECORDS.keys()


@pytest.mark.parametrize("name", LOGS)
def test_the_three_commands_work_on_each_format(tmp_path, name):
    path = write_lines(tmp_path / "log.jsonl", LOGS[name])
    code, text = run("diagnose", path)
    assert code in (0, 2)  # two episodes are too few for most checks
    assert f"format {name}" in text
    code, text = run("export", path, "--to", "dpo", "-o", tmp_path / "pairs.jsonl")
    assert code == 0, text
    (pair,) = map(json.loads, (tmp_path / "pairs.jsonl").read_text().splitlines())
    assert pair["chosen"] != pair["rejected"]
    assert BAD in json.dumps(pair["rejected"]) or name == "steps"
    card = json.loads((tmp_path / "pairs.jsonl.card.json").read_text())
    assert card["balance"]["pairs by their prompt alone, as the log names no task"] == (
        name in ("otlp", "messages")
    )
    run("diagnose", path, "--html", tmp_path / "out.html")
    assert "</html>" in (tmp_path / "out.html").read_text()


@pytest.mark.parametrize("name", SCORELESS)
def test_a_log_that_holds_no_pair_says_why(tmp_path, name):
    path = write_lines(tmp_path / "log.jsonl", samples.RECORDS[name])
    assert run("diagnose", path)[0] in (0, 2)
    with pytest.raises(TraceError, match=SCORELESS[name]):  # one line and exit code 2: `cli.main`
        run("export", path, "--to", "dpo", "-o", tmp_path / "pairs.jsonl")


@pytest.mark.parametrize("task", [None, ""])
def test_without_a_task_only_attempts_after_the_same_words_are_paired(tmp_path, task):
    """A task that is called the empty text is one all the same."""
    asked = [{"role": "user", "content": "Where is y?"}, *bad_chat()[1:]]
    rows = [
        {"id": "a", "messages": chat(), "reward": 1.0},
        {"id": "b", "messages": asked, "reward": 0.0},
    ]
    path = write_lines(tmp_path / "log.jsonl", [row | {"task_id": task} for row in rows])
    arguments = ("export", path, "--to", "dpo", "-o", tmp_path / "pairs.jsonl")
    if task is None:
        with pytest.raises(TraceError, match="2 x episode in no pair: no other attempt"):
            run(*arguments)
    else:
        assert run(*arguments)[0] == 0


@pytest.mark.parametrize("said", ["", " \n", None])
def test_without_a_task_and_a_users_words_attempts_share_nothing(tmp_path, said):
    log = [_attempt(i, said, reward) for i, reward in enumerate((1.0, 0.0))]
    path = write_lines(tmp_path / "log.jsonl", log)
    with pytest.raises(TraceError, match="2 x episode in no pair: no other attempt at its task"):
        export([path], "dpo", tmp_path / "o.jsonl")
    rows = export([path], "grpo", tmp_path / "o.jsonl").rows
    assert [(row["attempts"], row["solved"]) for row in rows] == [(1, 1), (1, 0)]
    for one in log:
        one["task_id"] = "t"
    write_lines(path, log)
    assert len(export([path], "dpo", tmp_path / "o.jsonl").rows) == 1


def _attempt(number, said, reward):
    answer = " ".join(f"word{number}{letter}" for letter in "abcdefg")
    messages = [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]
    return {"id": str(number), "reward": reward, "messages": messages}


def test_a_fault_of_a_tool_is_held_against_attempts_at_the_same_prompt(tmp_path):
    """What came to the best reward of its own prompt is kept, however well another prompt went."""
    fault = chat(result="HTTP 503 Service Unavailable")
    other = [{"role": "user", "content": "Where is y?"}, *chat()[1:]]
    rows = [
        {"id": "a", "messages": fault, "reward": 0.5},
        {"id": "b", "messages": bad_chat(), "reward": 0.25},
        {"id": "c", "messages": other, "reward": 0.75},
    ]
    path = write_lines(tmp_path / "log.jsonl", rows)
    assert run("export", path, "--to", "dpo", "-o", tmp_path / "pairs.jsonl")[0] == 0
    (pair,) = map(json.loads, (tmp_path / "pairs.jsonl").read_text().splitlines())
    assert (pair["chosen_episode"], pair["rejected_episode"]) == ("a", "b")


def test_without_a_task_one_refusal_is_no_copy_of_another_prompts_and_a_greeting_is_no_prompt(tmp_path):
    def asked(n, answer, opening=()):
        said = [
            *opening,
            {"role": "user", "content": f"What is {n} and {n}?"},
            {"role": "assistant", "content": answer},
        ]
        return {"id": f"{n}{answer[:1]}", "messages": said, "reward": float(answer != BAD)}

    rows = [asked(n, answer) for n in range(10) for answer in (f"It is {2 * n}.", BAD)]
    path = write_lines(tmp_path / "log.jsonl", rows)
    assert run("export", path, "--to", "dpo", "-o", tmp_path / "pairs.jsonl")[0] == 0
    assert len((tmp_path / "pairs.jsonl").read_text().splitlines()) == 10
    assert json.loads((tmp_path / "pairs.jsonl.card.json").read_text())["tasks"] == 0, "none is named"
    hello = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    path = write_lines(tmp_path / "hello.jsonl", [asked(1, "It is 2.", hello), asked(2, BAD, hello)])
    with pytest.raises(TraceError, match="2 x episode in no pair: no other attempt"):
        run("export", path, "--to", "dpo", "-o", tmp_path / "none.jsonl")

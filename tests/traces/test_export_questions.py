"""What an export takes for a question, for the better answer, and for text that a file can hold."""

from __future__ import annotations

import json

import pytest
from datasets import Dataset

from tests.traces.make import chat, write_lines
from trimtab import cli
from trimtab.errors import TraceError
from trimtab.traces.export import KINDS, export
from trimtab.traces.read import read_episodes


def _asked(question: str, answer: str, **more):
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return {"messages": messages, **more}


def _preference(prompt: str, chosen: str, rejected: str, **more):
    sides = {"chosen": chosen, "rejected": rejected}
    return {"prompt": prompt, **{k: [{"role": "assistant", "content": v}] for k, v in sides.items()}, **more}


def _greeted(task: str, reward: float):
    greeting = {"role": "assistant", "content": "Hi! How can I help you today?"}
    said = [*chat(), {"role": "assistant", "content": f"In room {7 + reward:g} of the old house."}]
    return {"id": f"{task}{reward}", "task_id": task, "reward": reward, "messages": [greeting, *said]}


@pytest.mark.parametrize("kind", ["sft", "dpo", "kto", "grpo"])
def test_an_agents_greeting_belongs_to_the_prompt(tmp_path, kind):
    log = write_lines(tmp_path / "g.jsonl", [_greeted("t", 1.0), _greeted("t", 0.0)])
    made = export([log], kind, tmp_path / "o.jsonl")
    opened = [row.get("prompt", row.get("messages"))[:2] for row in made.rows]
    assert all([m["role"] for m in two] == ["assistant", "user"] for two in opened)
    assert f"{len(opened)} of {len(opened)} rows begin with the agent's own words" in made.card["warnings"][0]


def test_a_call_before_the_users_first_word_is_no_greeting(tmp_path):
    rows = [{"task_id": "t", "reward": r, "messages": chat()[1:] + chat()[:1]} for r in (0.0, 1.0)]
    with pytest.raises(TraceError, match="2 x episode with no user message before the agent's first"):
        export([write_lines(tmp_path / "g.jsonl", rows)], "sft", tmp_path / "o.jsonl")


def test_sides_of_preferences_without_scores_are_paired_within_their_row(tmp_path):
    rows = [_preference("Where?", f"there, {i} to the left", f"nowhere, {i} times over") for i in range(3)]
    log = write_lines(tmp_path / "p.jsonl", rows)
    made = export([log], "dpo", tmp_path / "o.jsonl")
    sides = [(row["chosen"][0]["content"][0], row["rejected"][0]["content"][0]) for row in made.rows]
    assert sides == [("t", "n")] * 3
    assert [row["chosen"][0]["content"][7] for row in made.rows] == ["0", "1", "2"]
    assert all(
        row["chosen_episode"].split("/")[0] == row["rejected_episode"].split("/")[0] for row in made.rows
    )
    assert made.card["outcome"] == "the sides of the log's preferences: chosen rather than rejected"
    assert [row["label"] for row in export([log], "kto", tmp_path / "k.jsonl").rows] == [True, False] * 3
    assert len(export([log], "sft", tmp_path / "s.jsonl").rows) == 3
    (prompt,) = export([log], "grpo", tmp_path / "g.jsonl").rows
    assert prompt["solved"] is None  # a side of a preference solved nothing


def test_scores_against_the_sides_are_left_out_and_counted(tmp_path):
    rows = [
        _preference("A?", "good a, as asked", "bad a, alas", score_chosen=2, score_rejected=9),
        _preference("B?", "good b, as asked", "bad b, alas", score_chosen=9, score_rejected=2),
    ]
    log = write_lines(tmp_path / "p.jsonl", rows)
    _, report = read_episodes([log])
    told = "rows of preferences whose scores put the rejected side above the chosen one, scores left out"
    assert report.notes[told] == 1
    made = export([log], "dpo", tmp_path / "o.jsonl")
    assert [row["chosen"][0]["content"] for row in made.rows] == ["good b, as asked"]
    assert made.card["left_out"] == {"episode without a reward or success": 2}
    assert [row["chosen"][0]["content"] for row in export([write_lines(tmp_path / "q.jsonl", rows[:1])], "dpo", tmp_path / "o.jsonl").rows] == ["good a, as asked"]  # fmt: skip


def test_other_questions_under_one_task_are_told(tmp_path):
    rows = [_asked(f"What is {i}+1?", "Yes.", task="math", reward=1.0) for i in range(6)]
    log = write_lines(tmp_path / "m.jsonl", rows)
    made = export([log], "grpo", tmp_path / "o.jsonl")
    assert [row["attempts"] for row in made.rows] == [6]
    assert made.card["warnings"][0].startswith("5 attempts began with other words than the row of their task")
    assert len(export([log], "sft", tmp_path / "s.jsonl").rows) == 6  # the same answer to other questions
    same = write_lines(
        tmp_path / "n.jsonl",
        [{**row, "messages": rows[0]["messages"], "id": i} for i, row in enumerate(rows)],
    )
    assert len(export([same], "sft", tmp_path / "s.jsonl").rows) == 1
    assert export([same], "grpo", tmp_path / "s.jsonl").card["warnings"] == []


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("kind", KINDS)
def test_half_a_surrogate_and_nan_are_replaced_and_counted(tmp_path, kind, suffix):
    rows = []
    for reward in (0.0, 1.0):
        messages = chat(arguments=f'{{"q": NaN, "cut \\ud83d": {reward}, "p": "\\ud83d\\ude00"}}')
        messages[0]["content"], messages[-1]["content"] = (
            "Where \ud83d?",
            f"There, {reward} to the right of it \udc00",
        )
        rows.append({"task_id": "t", "reward": reward, "messages": messages})
    output = tmp_path / f"o.{suffix}"
    made = export([write_lines(tmp_path / "s.jsonl", rows)], kind, output)
    assert made.card["balance"]["texts with half a surrogate, which no UTF-8 holds, replaced by U+FFFD"] >= 1
    numbers = made.card["balance"].get("numbers that JSON does not have (NaN, infinity), null", 0)
    assert (numbers > 0) == (kind in ("sft", "dpo", "kto"))  # steps write a call as text
    load = Dataset.from_parquet if suffix == "parquet" else Dataset.from_json
    loaded = load(str(output), cache_dir=str(tmp_path / "cache")).to_list()
    assert len(loaded) == len(made.rows)
    text = json.dumps(loaded, allow_nan=False)
    assert "\\ufffd" in text
    assert ("\\ud83d\\ude00" in text) == (kind != "grpo")
    text.replace("\\ud83d\\ude00", "").encode().decode("utf-8")
    assert "\\ud83d" not in text.replace("\\ud83d\\ude00", "")


def test_an_empty_pattern_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    log = write_lines(tmp_path / "m.jsonl", [{"messages": chat(), "reward": 1.0}])
    monkeypatch.setattr("sys.argv", ["trimtab", "traces", "diagnose", str(log), "--error-pattern", ""])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert "--error-pattern is empty, which every result would match" in error
    assert error.count("\n") == 1

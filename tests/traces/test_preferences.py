"""Sets for DPO and KTO, our own exports among them, read back: two attempts of a pair, a label's outcome, nothing dropped unsaid."""

from __future__ import annotations

import json

import pytest

from tests.report.test_trace_diagnosis import run
from tests.traces.make import chat, write_lines
from tests.traces.test_export import attempt, four_by_three, log
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.export import export
from trimtab.traces.read import read_episodes
from trimtab.traces.registry import find_format
from trimtab.traces.table_of_logs import table_of

READ = "rows of preferences, read as two episodes: chosen and rejected"
ASK = {"role": "user", "content": "Where is x?"}


def said(text):
    return [{"role": "assistant", "content": text}]


def read(tmp_path, *rows):
    return read_episodes([write_lines(tmp_path / "set.jsonl", rows)])


def held(episode):
    """What an export must keep of an episode."""
    return [
        (turn.role, turn.content or "", [(call.name, call.arguments, call.result, call.error) for call in turn.calls])
        for turn in episode.turns
    ]  # fmt: skip


def with_errors(tmp_path):
    return log(
        tmp_path,
        [
            attempt(task, trial, float(trial < task), result=f"Error: no row {trial}" if trial == 2 else f"row {trial}")
            for task in range(4)
            for trial in range(3)
        ],
    )  # fmt: skip


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_our_own_sets_read_back_with_their_calls_results_and_outcomes(tmp_path, suffix):
    paths = with_errors(tmp_path)
    first = {e.id: e for e in read_episodes(paths)[0]}
    for kind, count in (("sft", 6), ("kto", 12)):
        export(paths, kind, tmp_path / f"{kind}.{suffix}")
        back, report = read_episodes([tmp_path / f"{kind}.{suffix}"])
        assert (len(back), report.num_malformed, dict(report.notes)) == (count, 0, {})
        for episode in back:
            one = first[episode.id]
            assert held(episode) == held(one)
            assert (episode.task, episode.tools) == (one.task, one.tools)
            assert episode.success is (one.reward == 1.0 if kind == "kto" else None)
    made = export(paths, "dpo", tmp_path / f"dpo.{suffix}")
    back, report = read_episodes([tmp_path / f"dpo.{suffix}"])
    assert report.notes[READ] == len(made.rows)
    wanted = {f"{row[f'{side}_episode']}/{side}" for row in made.rows for side in ("chosen", "rejected")}
    assert {e.id for e in back} == wanted  # an attempt of several pairs once
    assert sum(report.notes.values()) - len(made.rows) == 2 * len(made.rows) - len(wanted)
    for episode in back:
        name, _, side = episode.id.rpartition("/")
        assert held(episode) == held(first[name])
        assert (episode.task, episode.success, episode.reward) == (first[name].task, None, None)
        assert episode.extra == {"preference": side}
    assert any(call.error for e in back for call in e.calls)


def test_a_set_of_preferences_is_diagnosed_by_both_its_sides(tmp_path):
    export(four_by_three(tmp_path), "dpo", tmp_path / "dpo.jsonl")
    text = run("diagnose", tmp_path / "dpo.jsonl")[1]
    assert f"4 {READ}" in text
    found = json.loads(run("diagnose", tmp_path / "dpo.jsonl", "--json")[1])
    assert (found["num_episodes"], found["tools"][0]["calls"]) == (6, 6)


def test_two_attempts_at_one_prompt_whether_it_is_told_apart_or_repeated(tmp_path):
    apart = {"prompt": [ASK], "chosen": said("There."), "rejected": said("Nowhere.")}
    both = {"chosen": [ASK, *said("There.")], "rejected": [ASK, *said("Nowhere.")]}
    repeated = {**both, "prompt": "Where is x?", "messages": both["chosen"], "score_chosen": 8.5, "score_rejected": 2.0}  # fmt: skip
    turns = [[("user", "Where is x?", []), ("assistant", text, [])] for text in ("There.", "Nowhere.")]
    groups = set()
    for row in (apart, both, repeated, {**apart, "prompt": "Where is x?", "chosen": "There."}):
        found, report = read(tmp_path, {"id": "r", **row})
        assert [e.id for e in found] == ["r/chosen", "r/rejected"]
        assert [held(e) for e in found] == turns
        assert report.notes == {READ: 1}
        groups |= {e.group for e in found}
    assert len(groups) == 1
    found, _ = read(tmp_path, repeated)
    assert [e.reward for e in found] == [8.5, 2.0]
    assert [e.id.rpartition(":")[2] for e in found] == ["1/chosen", "1/rejected"]


def test_what_a_row_leaves_open_is_counted(tmp_path):
    (one,), report = read(tmp_path, {"id": "a", "prompt": [ASK], "chosen": said("There.")})
    assert one.id == "a/chosen"
    assert report.notes == {"rows of preferences with one side only, read as one episode": 1}
    pair = {"chosen": [ASK, *said("There.")], "rejected": [ASK, *said("No.")], "reward": 1.0, "task_id": "t"}
    found, report = read(tmp_path, pair)
    assert [(e.task, e.group, e.reward) for e in found] == [("t", None, None)] * 2
    assert report.notes == {
        READ: 1,
        "outcomes of rows of preferences, which do not say of which side, left out": 1,
    }


def test_prompts_that_differ_are_no_group(tmp_path):
    rows = [{"prompt": [{**ASK, "content": f"{i}?"}], "chosen": said("a"), "rejected": said("b")} for i in range(3)]  # fmt: skip
    found, _ = read(tmp_path, *rows)
    assert [e.group for e in found[::2]] == [e.group for e in found[1::2]]
    assert len({e.group for e in found}) == 3


@pytest.mark.parametrize(
    "row",
    [
        {"messages": chat(), "chosen": True, "rejected": None},
        {"messages": chat(), "chosen": "A", "rejected": "B"},
        {"prompt": [ASK], "completion": said("There."), "chosen": "A"},
        {"prompt": [ASK], "chosen": 1},
    ],
)
def test_a_field_of_that_name_is_no_preference(tmp_path, row):
    (one,), report = read(tmp_path, {"id": "a", **row})
    assert (one.id, one.extra, dict(report.notes)) == ("a", {}, {})


def test_only_a_label_that_is_true_or_false_is_an_outcome(tmp_path):
    pair = {"prompt": [ASK], "completion": said("There.")}
    rows = [{**pair, "label": True}, {**pair, "label": False}, {**pair, "label": 3}, {"messages": chat(), "label": True}, {"messages": chat(), "label": 1}]  # fmt: skip
    found, _ = read(tmp_path, *rows, {**pair, "label": True, "success": False})
    assert [e.success for e in found] == [True, False, None, True, None, False]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"chosen": [ASK], "rejected": [ASK]}, "messages"),
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "messages"),
        ({"prompt": "a", "completion": "b", "label": False}, "messages"),
        ({"prompt": "a", "completion": "b", "label": 3}, None),
        ({"chosen": "Human: a Assistant: b", "rejected": "Human: a Assistant: c"}, None),
        ({"traj": [ASK], "reward": 1, "chosen": [ASK]}, "tau"),
        ({"prompt": "a", "completion": "b", "advantage": 0.1, "chosen": [ASK]}, "trl"),
    ],
)
def test_the_format_is_told_by_messages(row, name):
    assert find_format([row]) == name


def test_texts_that_spell_their_turns_out_are_conversations(tmp_path):
    """Anthropic's hh-rlhf: two texts, each the whole dialogue."""
    ask = "\n\nHuman: Where is x?\n\nHow far?\n\nAssistant: Which x?\n\nHuman: The big one."
    rows = [
        {"chosen": f"{ask}\n\nAssistant: There.", "rejected": f"{ask}\n\nAssistant: Human: no"},
        {
            "prompt": f"{ask}\n\nAssistant:",
            "chosen": " There.",
            "rejected": "no",
        },
    ]
    back, report = read(tmp_path, *rows)
    assert report.num_malformed == 0
    asked = [
        ("user", "Where is x?\n\nHow far?", []),
        ("assistant", "Which x?", []),
        ("user", "The big one.", []),
    ]
    answers = ["There.", "Human: no", " There.", "no"]
    assert [held(e) for e in back] == [[*asked, ("assistant", answer, [])] for answer in answers]
    assert len({e.group for e in back}) == 1
    assert find_format([{"chosen": "x Human: a", "rejected": "b"}]) is None


@pytest.mark.parametrize("kind", ["sft", "kto", "dpo"])
def test_a_row_that_ends_with_a_call_waits_for_no_answer(tmp_path, kind):
    """What follows the agent's last turn is not in a row to train on, and only that is excused."""
    rows = []
    for i in range(30):
        words = {"role": "assistant", "content": " ".join(f"word{i * 7 + k}" for k in range(30))}
        messages = [*chat(result=f"row {i}")[:3], words, chat(call_id="c2", name="submit")[1]]
        rows.append({"id": str(i), "messages": messages, "reward": float(i % 3 > 0), "task_id": str(i // 3)})
    path = write_lines(tmp_path / "log.jsonl", rows)
    found = json.loads(run("diagnose", path, "--json")[1])
    assert "unanswered_calls" in {f["rule"] for f in found["findings"]}
    export([path], kind, tmp_path / "set.jsonl")
    code, text = run("diagnose", tmp_path / "set.jsonl", "--json")
    shares = {r["key"]: r["value"] for r in json.loads(text)["readings"]}
    assert shares["traces/unanswered_frac"] == 0
    assert code in (0, 2)
    lost = [
        {**row, "messages": [*row["messages"][:2], {"role": "assistant", "content": "?"}]} for row in rows
    ]
    for row in lost:
        row["episode"] = row["id"]
    code, text = run("diagnose", write_lines(tmp_path / "lost.jsonl", lost), "--json")
    assert {r["key"]: r["value"] for r in json.loads(text)["readings"]}["traces/unanswered_frac"] == 1


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"episode": "e3"},
        {"completion": ""},
        {"completion": {"usage": {}}},
        {"prompt": None, "completion": None},
    ],
)
def test_a_rollout_that_died_in_a_call_is_no_row_to_train_on(tmp_path, more):
    asked, called = chat()[:2]
    rows = []
    for i in range(30):
        row = {
            "id": str(i),
            "task_id": str(i // 3),
            "reward": 0.0,
            "stop_reason": "killed",
            "messages": [asked, called],
        }
        if "prompt" in more:
            row = {**row, "messages": None, "prompt": [asked], "completion": [called]}
        rows.append({**more, **row})
    for one in (rows, [{**row, "reward": None, "stop_reason": None} for row in rows if row["messages"]]):
        if one:
            found = json.loads(run("diagnose", write_lines(tmp_path / "log.jsonl", one), "--json")[1])
            assert "unanswered_calls" in {f["rule"] for f in found["findings"]}


def test_one_of_two_calls_answered_is_one_unanswered(tmp_path):
    asked, called, answer, _ = chat()
    both = {**called, "tool_calls": [*called["tool_calls"], {**called["tool_calls"][0], "id": "c2"}]}
    rows = [{"prompt": [asked], "completion": [both, answer]}, {"prompt": [asked], "completion": [both]}]
    table = table_of([write_lines(tmp_path / "set.jsonl", rows)], ReadReport())
    assert table.counts["unanswered"].tolist() == [1, 0]


def test_what_an_agent_makes_others_say_is_its_own(tmp_path):
    text = "Human: hi\n\nAssistant: yo\n\nHuman: bye"
    rows = [
        {"prompt": "write a dialogue", "completion": text, "label": True},
        {"prompt": "write a dialogue", "chosen": text, "rejected": "no"},
    ]
    back, _ = read(tmp_path, *rows)
    own = [("user", "write a dialogue", []), ("assistant", text, [])]
    assert [held(e) for e in back] == [own, own, [own[0], ("assistant", "no", [])]]


def test_an_empty_answer_of_a_spelt_out_dialogue_is_one(tmp_path):
    ask = "\r\n\r\nHuman: q\r\n\r\nAssistant:"
    back, _ = read(
        tmp_path,
        {"chosen": f"{ask} a", "rejected": f"{ask} "},
        {"prompt": ask, "chosen": "a", "rejected": ""},
    )
    sides = [[("user", "q", []), ("assistant", answer, [])] for answer in ("a", "")]
    assert [held(e) for e in back] == [*sides, *sides]


@pytest.mark.parametrize("form", ["one", "list", "whole", "beside the chosen", "prompt"])
def test_a_conversation_beside_both_answers_is_what_was_asked(tmp_path, form):
    """LLaMA-Factory's preferences: a conversation, and each answer as one message."""
    asked = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}, {"from": "Human", "value": "r"}]
    sides = {name: {"from": "gpt", "value": text} for name, text in (("chosen", "good"), ("rejected", "bad"))}
    row = {"conversations": asked, "system": "z", "tools": "", **sides}
    if form == "list":
        row |= {name: [one] for name, one in sides.items()}
    elif form == "whole":
        row |= {"conversations": [*asked, sides["chosen"]]}
        row |= {name: [*asked, one] for name, one in sides.items()}
    elif form == "beside the chosen":
        row["conversations"] = [*asked, sides["chosen"]]
    elif form == "prompt":
        row["prompt"] = row.pop("conversations")
    found, report = read(tmp_path, {"id": "r", **row})
    before = [("system", "z", []), ("user", "q", []), ("assistant", "a", []), ("user", "r", [])]
    assert [e.id for e in found] == ["r/chosen", "r/rejected"]
    assert [held(e) for e in found] == [[*before, ("assistant", text, [])] for text in ("good", "bad")]
    assert found[0].group == found[1].group not in (None, "r")
    assert report.notes == {READ: 1}


@pytest.mark.parametrize("side", [{"from": 1, "to": 2}, {"role": "judge"}, {"content": "a"}])
def test_an_object_that_is_no_message_is_no_answer(tmp_path, side):
    (one,), report = read(tmp_path, {"id": "a", "messages": chat(), "chosen": side})
    assert (one.id, dict(report.notes)) == ("a", {})


@pytest.mark.parametrize("label", ["label", "kto_tag"])
def test_llama_factorys_sets_for_kto_have_their_label_beside_a_conversation(tmp_path, label):
    """As a completion's label, it is no rollout's: that its last call has no result is not held against it."""
    sharegpt = [{"from": "human", "value": "Where is x?"}, {"from": "gpt", "value": "There."}]
    rows = [{"messages": chat()[:2], label: True}, {"conversations": sharegpt, label: False}]
    found, report = read(tmp_path, *rows)
    assert [(e.success, e.for_training, len(e.turns)) for e in found] == [(True, True, 2), (False, True, 2)]
    assert table_of([tmp_path / "set.jsonl"], ReadReport()).total("unanswered") == 0
    assert not report.notes
    rows[0] |= {"reward": 0.5}
    assert read(tmp_path, *rows)[0][0].for_training is False

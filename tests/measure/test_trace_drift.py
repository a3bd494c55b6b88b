"""Later episodes against earlier ones: planted changes, no change, policy versions; first wrong turns, words and required files."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.measure.test_traces import readings
from tests.traces.test_table import episode
from trimtab.detect.traces.multiple_testing import judge_contrasts
from trimtab.measure.traces.early_late import drifts
from trimtab.traces.core.episode import Call, Episode, Turn
from trimtab.traces.table.build import tabulate
from trimtab.traces.table.first_symptom import SYMPTOMS
from trimtab.traces.table.language import refuses, scripts_of, switched_turns
from trimtab.traces.table.required_files import RequiredFiles


def _log(rng, shift=0.0, n=160, version=None, times=None):
    log = []
    for i in range(n):
        solved = rng.random() < (0.2 if i % 40 < 20 else 0.8) + (shift if i >= n // 2 else 0)
        calls = [Call(name=rng.choice(["a", "b"]), result=str(j)) for j in range(1 + rng.poisson(3))]
        log.append(
            episode(*calls, id=f"e{i}", task=f"t{i % 40}", reward=float(solved), policy_version=version and version(i), time=times and times(i))
        )  # fmt: skip
    return tabulate(log)


def _real(table):
    found = drifts(table, table.solved()[0])
    judged = judge_contrasts([one for drift in found for one in drift.contrasts])
    return found, {one.contrast.name for one in judged if one.real}


def test_the_family_rate_of_false_alarms_holds_for_both_splits_together():
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(150):
        found, real = _real(_log(rng, version=lambda i: i % 3))
        assert [drift.by for drift in found] == ["policy_version", "order"]
        alarms += bool(real)
    assert alarms / 150 <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / 150)


def test_a_fall_in_the_second_half_is_found_by_time_and_has_its_sign():
    found, real = _real(_log(np.random.default_rng(1), -0.5, times=lambda i: 1e9 - i))
    assert [(drift.by, drift.a, drift.b) for drift in found] == [
        ("time", "the second half", "the first half")
    ]
    assert {"is solved"} <= real
    one = next(c for c in found[0].contrasts if c.name == "is solved")
    assert one.difference > 0.3  # time runs backwards here: the file's second half is the earlier one


@pytest.mark.parametrize(
    ("version", "a", "b", "splits"),
    [
        (lambda i: 9 + i // 40, "policies 11 to 12", "policies 9 to 10", 1),
        (lambda i: f"step-{9 + i // 40}", "policies step-11 to step-12", "policies step-9 to step-10", 1),
        (lambda i: "new" if i >= 90 else "old", "policies new", "policies old", 2),
        (lambda i: 1 if i < 20 else None, None, None, 1),
    ],
)
def test_versions_are_cut_where_the_sides_are_most_equal(version, a, b, splits):
    found, _ = _real(_log(np.random.default_rng(2), version=version))
    named = [(drift.a, drift.b) for drift in found if drift.by == "policy_version"]
    assert named == ([(a, b)] if a else [])
    assert len(found) == splits  # the same cut twice is one


def test_versions_that_are_no_numbers_follow_one_another_in_time():
    """In the log by name, as files are: `b` came before `a`."""
    log = _log(
        np.random.default_rng(2), version=lambda i: "ab"[i // 80] * 7, times=lambda i: float((i + 80) % 160)
    )
    found, _ = _real(log)
    assert [(drift.by, drift.a, drift.b) for drift in found] == [("policy_version", "policies aaaaaaa", "policies bbbbbbb")]  # fmt: skip


def test_the_first_visible_symptom():
    same = Call(name="a", arguments=1, result="r", step=2)
    void, fine = Turn(role="assistant", content=" ", step=5), Turn(role="assistant", content="ok")
    bad = Turn(
        role="assistant", calls=[Call(name="a", result="x"), Call(name="a", error="e", result="e", step=7)]
    )
    twice = Turn(role="assistant", calls=[same, Call(name="a", arguments=1, result="r", step=3)])
    turns = [[fine, bad, void], [twice, bad], [fine, Turn(role="user"), void, bad], [fine], []]
    log = [Episode(id=str(i), turns=t, reward=0.0) for i, t in enumerate(turns)]
    table = tabulate([*log, Episode(id="s", turns=turns[0], reward=1.0)])
    kinds = ["failed call", "failed call", "void turn", "", "", "failed call"]  # a repeated call is none
    assert [SYMPTOMS[k] if k >= 0 else "" for k in table.symptom] == kinds
    assert table.symptom_turn.tolist() == [2, 2, 2, -1, -1, 2]
    assert table.symptom_step.tolist() == [7, 7, 5, -1, -1, 7]
    one = readings([*log, Episode(id="s", reward=1.0)])["traces/symptom_frac", "all"]
    assert one.reading.value == pytest.approx(3 / 5)
    assert next((e.episode, e.step, e.text) for e in one.evidence) == (
        "0",
        7,
        "failed call in assistant turn 2 of 3",
    )
    assert (
        "first 2 x failed call, 1 x void turn; the median in assistant turn 2; where trouble shows, in 20 % of"
        in one.text
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I'm sorry, but I can't assist with that request.", True),
        ("I cannot help you with this.", True),
        ("As an AI language model, I have no access.", True),
        ("Unfortunately, I am unable to provide that.", True),
        ("I can help with that.", False),
        ("I cannot find the file; trying another.", False),
        ("Sorry for the delay, here it is.", False),
        ("x" * 300 + " I can't help with that.", False),
        ("I'm unable to help with that.", True),
        ("I’m not able to assist.", True),
        ("I apologize, but I cannot help.", True),
        ("I can not help with that", True),
        ("**I'm sorry**, I can't help", True),
        ("I can't help but notice the file is empty; let me fix it.", False),
        ("I cannot complete the booking until you confirm the card.", False),
        ("I'm unable to find it.", False),
        ("", False),
    ],
)
def test_refusals_by_their_first_words(text, expected):
    assert refuses(text) is expected


def test_a_script_that_nobody_used_is_a_switch_and_one_that_was_spoken_is_not():
    chinese, russian = "我不知道怎么做这件事情所以再试", "Я не знаю, что делать дальше"

    def switched(*turns):
        return [name for _, name in switched_turns(Episode(id="e", turns=list(turns)))]

    def said(text):
        return Turn(role="assistant", content=text)

    ask = Turn(role="user", content="Do it")
    assert switched(ask, said("I look at it now"), said(chinese), said(chinese)) == ["Chinese or Japanese"]
    assert switched(ask, said(russian)) == ["Cyrillic"]
    assert switched(Turn(role="user", content=f"Do it {chinese}"), said(chinese)) == []
    told = Turn(role="assistant", calls=[Call(name="a", result=chinese)])
    assert switched(ask, told, said(chinese)) == []
    assert switched(said(chinese)) == switched(ask, said("the weather (天気) is fine")) == []
    assert scripts_of("") == scripts_of("12345 67890 .....") == set()


@pytest.mark.parametrize(
    ("text", "switches"),
    [
        ("我现在调用 search_documents 工具来查询天气。", 0),
        ("我用 search documents 查询，再用 calculator 计算，结果写进 Visual Studio Code。", 0),
        ("Let me search the documents for you now.", 1),
        ("我知道了。 The answer is in the second file.", 1),
        ("a" * 20_000, 0),
    ],
)
def test_latin_names_in_another_script_are_no_switch(text, switches):
    ask = Turn(role="user", content="请帮我查一下北京明天的天气情况，谢谢你。")
    log = [Episode(id="e", turns=[ask, Turn(role="assistant", content=text), Turn(role="assistant", content="明天晴。")])]  # fmt: skip
    assert tabulate(log).marks["switches"].tolist() == [switches]


def test_required_files_never_named_and_abandoned():
    def log(last):
        for i in range(40):
            path = "./docs/a.md" if i < last else "docs/b.md"
            yield episode(Call(name="read", arguments={"path": path}, result="x"), Call(name="other", arguments={"path": "docs/c.md"}, result=""), id=str(i))  # fmt: skip

    table = tabulate(log(19), RequiredFiles(["docs/a.md", "docs/b.md", "docs/c.md"], {"read": "path"}))
    assert {name: (r.calls, r.episodes, r.last) for name, r in table.files.items()} == {
        "docs/a.md": (19, 19, 18), "docs/b.md": (21, 21, 39), "docs/c.md": (0, 0, -1),
    }  # fmt: skip

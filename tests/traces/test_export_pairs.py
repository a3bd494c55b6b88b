"""Which attempts make pairs, why the others do not, and what counts as nearly the same: against all pairs, one by one."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.traces.test_export import TOOLS, attempt, log
from trimtab.traces.export import ExportOptions, export
from trimtab.traces.export import near_duplicates as similar
from trimtab.traces.export.near_duplicates import NEAR, NearDuplicateIndex, overlap

SYSTEM = {"role": "system", "content": "You are another agent."}
IN_NO_PAIR = "episode in no pair: "


def _under(system, row):
    return {**row, "messages": [system, *row["messages"]]}


def _causes(card):
    return {
        name.removeprefix(IN_NO_PAIR): count
        for name, count in card["left_out"].items()
        if name.startswith(IN_NO_PAIR)
    }


def test_each_cause_is_counted_on_its_own_and_they_add_up_to_the_episodes_left_out(tmp_path):
    same = [attempt(6, 0, 1.0), attempt(6, 1, 0.0)]
    same[1]["messages"] = same[0]["messages"]
    broken = attempt(7, 0, 1.0)
    broken["messages"][1]["tool_calls"][0]["function"]["arguments"] = "{"
    rows = [
        attempt(1, 0, 1.0),  # alone
        *(attempt(2, i, 1.0) for i in range(3)),  # equal scores
        attempt(3, 0, 1.0), attempt(3, 1, 0.0, tools=[*TOOLS, *TOOLS]),
        attempt(4, 0, 1.0), *(_under(SYSTEM, attempt(4, i, 0.0)) for i in (1, 2, 3)),
        attempt(5, 0, 1.0), *(attempt(5, i, 0.0) for i in range(1, 4)),  # one pair, and two over the limit
        *same, broken, {**attempt(7, 1, 0.0), "reward": None},
        attempt(8, 0, 1.0), attempt(8, 1, 0.0), attempt(8, 2, 0.0, tools=[*TOOLS, *TOOLS]), attempt(8, 3, 0.0, result="Error: HTTP 503"),
    ]  # fmt: skip
    card = export(log(tmp_path, rows), "dpo", tmp_path / "o.jsonl", ExportOptions(per_task=1)).card
    assert card["left_out"] == {
        "episode with a call whose arguments are not an object: templates cannot write it": 1,
        "episode that failed after a fault of a tool": 1,
        "episode without a reward or success": 1,
        f"{IN_NO_PAIR}no other attempt at its task (without one, at its prompt) is left": 1,
        f"{IN_NO_PAIR}every other attempt has its score": 3,
        f"{IN_NO_PAIR}the attempts of another score have other tools": 3,
        f"{IN_NO_PAIR}the attempts of another score have other system prompts": 4,
        f"{IN_NO_PAIR}the attempts of another score are nearly the same": 2,
        f"{IN_NO_PAIR}its task had its pairs (--per-task)": 2,
        "pair of attempts with other tools": 2,
        "pair of attempts under different system prompts: they are not attempts at one task": 3,
        "pair of attempts that are nearly the same": 1,
        "pair beyond the limit a task": 2,
    }
    assert card["balance"]["episodes in pairs"] == 4
    left = sum(count for name, count in card["left_out"].items() if name.startswith("episode"))
    assert left + card["balance"]["episodes in pairs"] == card["episodes read"] == len(rows)


def test_a_limit_that_binds_nobody_is_no_cause(tmp_path):
    rows = [attempt(5, i, float(i == 0)) for i in range(4)]
    assert _causes(
        export(log(tmp_path, rows), "dpo", tmp_path / "o.jsonl", ExportOptions(per_task=1)).card
    ) == {"its task had its pairs (--per-task)": 2}
    assert (
        _causes(export(log(tmp_path, rows), "dpo", tmp_path / "o.jsonl", ExportOptions(per_task=3)).card)
        == {}
    )


def test_with_same_prompt_those_that_began_otherwise_are_a_cause_of_their_own(tmp_path):
    rows = [attempt(1, i, float(i == 0)) for i in range(3)]
    rows[2]["messages"][0]["content"] += " Please."
    card = export(log(tmp_path, rows), "dpo", tmp_path / "o.jsonl", ExportOptions(same_prompt=True)).card
    assert _causes(card) == {"the attempts of another score began with other words (--same-prompt)": 1}


@pytest.mark.parametrize("length", [5, 10, 19, 20, 70, 71, 200])
def test_near_duplicates_are_those_of_all_pairs(length):
    """Against the definition, at sizes where a tenth is whole and where it is not."""
    rng = random.Random(length)
    texts = []
    for _ in range(40):
        start = rng.choice([0, 1000])
        text = set(range(start, start + length))
        for _ in range(rng.randrange(0, 2 + length // 8)):
            text.discard(rng.choice(sorted(text)))
            if rng.random() < 0.5:
                text.add(rng.randrange(5000))
        texts.append(frozenset(text))
    near = NearDuplicateIndex(texts)
    seen = Counter()
    for i, text in enumerate(texts):
        wanted = [j for j in range(i) if overlap(texts[j], text) >= NEAR]
        assert list(near.to(text)) == wanted
        seen[bool(wanted)] += 1
        near.add(text)
    assert len(seen) == 2


UNSPACED = {"Han": 0x4E00, "kana": 0x3041, "Thai": 0x0E01, "Lao": 0x0E86, "Khmer": 0x1780, "Myanmar": 0x1000}
"""A first letter of each; the next 22 characters are letters and vowel signs, too."""


@pytest.mark.parametrize("script", [*UNSPACED, "Latin", "Hangul"])
@pytest.mark.parametrize(("count", "kept"), [(23, 1), (22, 2)])
def test_one_word_of_many_is_no_other_text(tmp_path, script, count, kept):
    """The last of n words is in one of n - 4 runs: (n - 5) / (n - 3) is 0.9 and more from 23 words on."""
    first = UNSPACED.get(script, 0xAC00)
    words = [f"word{i}" if script == "Latin" else chr(first + i) for i in range(count)]
    join = "" if script in UNSPACED else " "
    texts = [join.join(words), join.join([*words[:-1], words[0]])]
    rows = [
        {"id": str(i), "task_id": "t", "reward": 1.0, "messages": [
            {"role": "user", "content": "Which?"}, {"role": "assistant", "content": text, "tool_calls": None}]}
        for i, text in enumerate(texts)
    ]  # fmt: skip
    assert len(export(log(tmp_path, rows), "sft", tmp_path / "o.jsonl").rows) == kept


def test_a_thousand_attempts_at_one_task_are_not_all_compared(tmp_path, monkeypatch):
    compared = Counter()
    monkeypatch.setattr(similar, "overlap", lambda a, b: compared.update(["pairs"]) or overlap(a, b))
    rows = [attempt(1, i, float(i % 2)) for i in range(1000)]
    rows.append({**rows[0], "id": "again"})
    rows[-1]["messages"] = [
        *rows[0]["messages"][:2],
        {"role": "tool", "tool_call_id": "c1", "content": "other"},
        rows[0]["messages"][3],
    ]
    made = export(log(tmp_path, rows), "dpo", tmp_path / "o.jsonl")
    assert made.card["left_out"]["near-duplicate of another episode of its task and outcome"] == 1
    assert made.card["left_out"]["pair beyond the limit a task"] == 500 * 500 - 4
    assert len(made.rows) == 4
    assert 1 <= compared["pairs"] < 1000  # all pairs: 500,000


def test_the_same_tools_in_another_order_are_the_same(tmp_path):
    other = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}
    rows = [attempt(1, 0, 1.0, tools=[*TOOLS, other]), attempt(1, 1, 0.0, tools=[other, *TOOLS])]
    made = export(log(tmp_path, rows), "dpo", tmp_path / "o.jsonl")
    assert [row["tools"] for row in made.rows] == [[*TOOLS, other]]
    assert made.card["left_out"] == {}

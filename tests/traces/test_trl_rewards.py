"""Which of TRL's number columns are rewards: those whose sum the advantages follow."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tests.traces.make import write_lines
from trimtab.traces.export import export
from trimtab.traces.read import read_episodes
from trimtab.traces.trl_rewards import reward_columns


def rows(weights=(1.0, 1.0), groups=12, size=8, seed=0, scale=True, **more):
    """As TRL 1.16 writes them: step, prompt, completion, rewards, what `log_extra` gave, advantage (its formulas in 32 bits)."""
    rng, found = np.random.default_rng(seed), []
    for group in range(groups):
        right, form = rng.integers(0, 2, size).astype(np.float32), rng.random(size).astype(np.float32)
        total = np.float32(weights[0]) * right + np.float32(weights[1]) * form
        gap = (total - total.mean()) / ((total.std(ddof=1) + np.float32(1e-4)) if scale else np.float32(1))
        for i in range(size):
            words = " ".join(f"w{group}x{i}x{k}" for k in range(12))
            extra = {name: make(rng, total[i]) for name, make in more.items()}
            found.append(
                {"step": group // 4, "prompt": f"q{group}", "completion": f"{words} {i}", "right": float(right[i]), "form": float(form[i]),
                 **extra, "advantage": float(gap[i])}
            )  # fmt: skip
    return found


LENGTH = {"answer_len": lambda rng, _: float(rng.integers(50, 400))}
AGAINST = {"answer_len": lambda rng, total: 300.0 - 100.0 * float(total)}


@pytest.mark.parametrize("more", [LENGTH, AGAINST, {**LENGTH, "kl": lambda rng, _: float(rng.normal())}])
@pytest.mark.parametrize("scale", [True, False])
def test_what_was_logged_besides_is_no_reward(tmp_path, more, scale):
    log = rows(scale=scale, **more)
    found = reward_columns(log)
    assert (found.names, found.others, found.told) == (("right", "form"), tuple(more), "yes")
    path = write_lines(tmp_path / "completions.jsonl", log)
    episodes, report = read_episodes([path])
    assert [e.reward for e in episodes] == [row["right"] + row["form"] for row in log]
    assert [e.reward_parts.keys() for e in episodes] == [{"right", "form"}] * len(log)
    assert episodes[0].extra["answer_len"] == log[0]["answer_len"]
    assert report.notes == {f"columns of TRL that are no reward, by the advantages: {', '.join(more)}": 1}
    made = export([path], "dpo", tmp_path / "dpo.jsonl")
    by_id = {e.id: e.extra["advantage"] for e in episodes}
    assert made.rows
    assert all(by_id[row["chosen_episode"]] > by_id[row["rejected_episode"]] for row in made.rows)
    card = json.loads((tmp_path / "dpo.jsonl.card.json").read_text())
    assert any("answer_len" in note for note in card["notes"])


def test_without_other_columns_all_are_rewards(tmp_path):
    assert reward_columns(rows()) == (("right", "form"), (), "yes")
    _, report = read_episodes([write_lines(tmp_path / "completions.jsonl", rows())])
    assert not report.notes


def test_of_weights_that_are_not_one_it_says_so(tmp_path):
    log = rows(weights=(0.05, 3.0), **LENGTH)
    episodes, report = read_episodes([write_lines(tmp_path / "completions.jsonl", log)])
    (note,) = (n for n in report.notes if "in the order of no sum" in n)
    assert set(episodes[0].reward_parts) <= {"right", "form", "answer_len"}
    assert note.endswith("the reward is that of " + ", ".join(episodes[0].reward_parts))


def test_groups_that_say_nothing_leave_all_columns(tmp_path):
    flat = [{**row, "advantage": 0.0} for row in rows(**LENGTH)]
    assert reward_columns(flat) == (("right", "form", "answer_len"), (), "unknown")
    assert reward_columns([]) == ((), (), "unknown")
    nan = [{**row, "advantage": math.nan} for row in rows(**LENGTH)]
    assert reward_columns(nan).told == "unknown"


def test_functions_that_gave_none_to_some_are_rewards():
    log = []
    for row in rows(groups=40):
        group = int(row["prompt"][1:])
        log.append({**row, "math": row["right"] if group % 2 else math.nan, "code": math.nan if group % 2 else row["right"], "right": None})  # fmt: skip
    log = [{**{k: v for k, v in row.items() if k not in ("right", "advantage")}, "length": float(i % 7), "advantage": row["advantage"]} for i, row in enumerate(log)]  # fmt: skip
    found = reward_columns(log)
    assert (found.names, found.others) == (("form", "math", "code"), ("length",))


def test_a_prompt_that_comes_twice_in_a_step_is_borne():
    log = rows(groups=60)
    for row in log[8:16]:
        row["prompt"] = "q0"
    assert reward_columns(log).told == "yes"

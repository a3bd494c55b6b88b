"""Which of TRL's number columns are rewards: those whose sum the advantages follow."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tests.report.test_trace_diagnosis import run
from tests.traces.make import write_lines
from trimtab.traces.export import export
from trimtab.traces.read import read_episodes
from trimtab.traces.readers.trl.reward_columns import reward_columns


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


LEFT_OUT = "columns of TRL that the advantages do not follow, no rewards: "
LENGTH = {"answer_len": lambda rng, _: float(rng.integers(50, 400))}
AGAINST = {"answer_len": lambda rng, total: 300.0 - 100.0 * float(total)}


@pytest.mark.parametrize("more", [LENGTH, AGAINST, {**LENGTH, "kl": lambda rng, _: float(rng.normal())}])
@pytest.mark.parametrize("scale", [True, False])
def test_what_was_logged_besides_is_no_reward(tmp_path, more, scale):
    log = rows(scale=scale, **more)
    found = reward_columns(log)
    assert (found.names, found.others, found.confirmed) == (("right", "form"), tuple(more), "yes")
    path = write_lines(tmp_path / "completions.jsonl", log)
    episodes, report = read_episodes([path])
    assert [e.reward for e in episodes] == [row["right"] + row["form"] for row in log]
    assert [e.reward_parts.keys() for e in episodes] == [{"right", "form"}] * len(log)
    assert episodes[0].extra["answer_len"] == log[0]["answer_len"]
    assert report.notes == {LEFT_OUT + ", ".join(more): 1}
    made = export([path], "dpo", tmp_path / "dpo.jsonl")
    by_id = {e.id: e.extra["advantage"] for e in episodes}
    assert made.rows
    assert all(by_id[row["chosen_episode"]] > by_id[row["rejected_episode"]] for row in made.rows)
    card = json.loads((tmp_path / "dpo.jsonl.card.json").read_text())
    assert any("answer_len" in note for note in card["notes"])


def test_without_other_columns_all_are_rewards(tmp_path):
    assert reward_columns(rows()) == (("right", "form"), (), "yes", ())
    _, report = read_episodes([write_lines(tmp_path / "completions.jsonl", rows())])
    assert not report.notes


@pytest.mark.parametrize("weights", [(0.1, 1.0), (-0.5, 1.0), (0.0, 1.0), (0.02, 1.0)])
@pytest.mark.parametrize("more", [{}, LENGTH])
@pytest.mark.parametrize("scale", [True, False])
def test_weights_that_are_not_one_are_read_off_the_advantages(tmp_path, weights, more, scale):
    log = rows(weights=weights, scale=scale, **more)
    path = write_lines(tmp_path / "completions.jsonl", log)
    episodes, report = read_episodes([path])
    want = [weights[0] * row["right"] + weights[1] * row["form"] for row in log]
    assert [e.reward for e in episodes] == pytest.approx(want, rel=2e-3, abs=2e-3)
    told = f"rewards of TRL added up with weights that the advantages tell, up to a scale: {weights[0]:g} right, 1 form"
    assert report.notes[told] == 1
    assert episodes[0].reward_parts == {name: log[0][name] for name in ("right", "form")}
    by_id = {e.id: e.extra["advantage"] for e in episodes}
    made = export([path], "dpo", tmp_path / "dpo.jsonl").rows
    assert made
    assert all(by_id[row["chosen_episode"]] > by_id[row["rejected_episode"]] for row in made)


def test_a_few_answers_tell_no_weights():
    """Three numbers fit any three advantages."""
    rng = np.random.default_rng(0)
    log = [{"prompt": "q", "a": rng.random(), "b": rng.random(), "c": rng.random(), "advantage": rng.normal()} for _ in range(4)]  # fmt: skip
    assert reward_columns(log).weights == ()
    assert reward_columns(log).confirmed == "no"


def test_where_no_weights_make_the_advantages_it_says_so_and_the_card_warns(tmp_path):
    """Each function scaled for itself before they are added up."""
    log = rows(groups=40, **LENGTH)
    for start in range(0, len(log), 8):
        group = log[start : start + 8]
        for row in group:
            row["advantage"] = 0.0
        for name, weight in (("right", 1.0), ("form", 4.0)):
            values = np.array([row[name] for row in group])
            for row, value in zip(group, (values - values.mean()) / (values.std() + 1e-4), strict=True):
                row["advantage"] += weight * float(value)
    path = write_lines(tmp_path / "completions.jsonl", log)
    episodes, report = read_episodes([path])
    (note,) = (n for n in report.notes if "in the order of no sum" in n)
    assert set(episodes[0].reward_parts) <= {"right", "form"}
    assert note.endswith("read as rewards: " + ", ".join(episodes[0].reward_parts))
    card = export([path], "dpo", tmp_path / "dpo.jsonl").card
    assert any(text.startswith(note) for text in card["warnings"])


def test_groups_that_say_nothing_leave_all_columns():
    assert reward_columns([]) == ((), (), "unknown", ())
    nan = [{**row, "advantage": math.nan} for row in rows(**LENGTH)]
    assert reward_columns(nan) == (("right", "form", "answer_len"), (), "unknown", ())
    alone = [{**row, "prompt": str(i)} for i, row in enumerate(rows(**LENGTH))]
    assert reward_columns(alone).confirmed == "unknown"


def same_for_all(right, **more):
    return [
        {"step": 0, "prompt": f"p{i // 8}", "completion": f"c{i}", "right": right(i), **{k: v(i) for k, v in more.items()},
         "advantage": 2.0 * (i % 2) - 1 if right(i) != right(i + 1) else 0.0}
        for i in range(192)
    ]  # fmt: skip


def test_advantages_of_zero_say_that_the_reward_is_the_same(tmp_path):
    path = write_lines(tmp_path / "z.jsonl", same_for_all(lambda i: 1.0, length=lambda i: 100.0 + i))
    found = json.loads(run("diagnose", path, "--json")[1])
    assert {f["rule"] for f in found["findings"]} >= {"constant_reward"}
    assert LEFT_OUT + "length" in found["notes"]


@pytest.mark.parametrize("level", [lambda i: 1.0 + i // 8 % 5, lambda i: 1.0])
def test_what_is_the_same_in_all_of_a_group_is_left_out(tmp_path, level):
    path = write_lines(tmp_path / "level.jsonl", same_for_all(lambda i: float(i % 2), level=level))
    episodes, report = read_episodes([path])
    assert [e.reward for e in episodes] == [float(i % 2) for i in range(192)]
    assert report.notes == {LEFT_OUT + "level": 1}


def test_a_run_in_many_files_has_one_answer(tmp_path):
    log = rows(groups=30, size=2, **LENGTH)
    for step in range(0, 60, 2):
        flat = {"advantage": 0.0, "right": 1.0, "form": 0.5} if step % 6 == 0 else {}
        write_lines(
            tmp_path / f"completions_{step:03}.jsonl", [{**row, **flat} for row in log[step : step + 2]]
        )
    episodes, report = read_episodes([tmp_path])
    assert len(episodes) == 60
    assert {tuple(e.reward_parts) for e in episodes} == {("right", "form")}
    assert report.notes == {LEFT_OUT + "answer_len": 1}


def test_a_prompt_in_several_groups_running_is_cut_at_their_size():
    log = []
    for i in range(192):
        right = float(i % 8 < (2 if i // 8 % 2 else 6))
        log.append(
            {"step": 0, "prompt": f"p{i // 16}", "right": right, "length": 100.0 + i * 37 % 91, "advantage": right - (0.25 if i // 8 % 2 else 0.75)}
        )  # fmt: skip
    assert reward_columns(log).confirmed == "no"  # nothing says how many answers a group has
    log.append({**log[-1], "prompt": "other", "right": 0.0, "advantage": -1.0})
    log += [{**log[-1], "right": 1.0, "advantage": 1.0 / 7}] * 7
    assert reward_columns(log) == (("right",), ("length",), "yes", ())


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
    assert reward_columns(log).confirmed == "yes"


def test_thousands_of_answers_to_one_prompt_take_no_time():
    log = rows(groups=1, size=4_000, **LENGTH)
    assert len(log) == 4_000
    assert reward_columns(log).names == ("right", "form")

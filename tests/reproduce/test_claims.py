"""Verdicts, pooled variance, and the table of claims: no sign that hangs on one seed may be called a finding."""

from __future__ import annotations

import dataclasses
import math

import pytest
from reproduce.pilot.claims import claims
from reproduce.pilot.leads import QUIET
from reproduce.pilot.summary import figures_of, paired_ratio
from reproduce.pilot.variance import (
    growth_of_variance,
    late_batches,
    share_less_one_batch,
    share_of,
    token_share,
)
from reproduce.pilot.variants import CHOSEN, Choice, choices, limits_for, medians, nulls, verdict
from scipy.stats import t


def batch(step, post, text, n_post=10, n_text=30):
    variance = {"post_tool": post, "text": text, "all": post + text}
    return {"step": step, "n_post": n_post, "n_text": n_text, "gradient_variance": variance}


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([], "cannot be told"),
        ([1.0, 2.0], "holds"),
        ([1.0, 0.0], "cannot be told"),
        ([1.0, -1.0], "cannot be told"),
        ([-1.0, -3.0], "does not hold"),
        ([0.0], "cannot be told"),
    ],
)
def test_a_verdict_needs_one_sign_throughout(values, word):
    assert verdict(values) == word


def test_a_share_is_the_ratio_of_sums_not_the_mean_of_ratios():
    rows = [batch(80, 0.0, 99.0), batch(100, 1.0, 0.0), batch(120, 0.0, 0.0)]
    assert share_of(rows) == pytest.approx(0.01)  # the mean of ratios would be a half
    assert share_less_one_batch(rows) == pytest.approx([1.0, 0.0, 0.01])
    assert token_share(rows) == 0.25
    assert math.isnan(share_of([]))
    assert math.isnan(share_of(rows[2:]))
    assert share_less_one_batch(rows[:1]) == []


def test_late_batches_are_those_of_the_second_half_with_such_tokens(runs):
    run = dataclasses.replace(runs[0], controls=[batch(0, 1.0, 1.0), batch(20, 8.0, 1.0), batch(30, 4.0, 1.0), batch(39, 0.0, 9.0, n_post=0)])  # fmt: skip
    assert [row["step"] for row in late_batches(run)] == [20, 30]
    assert growth_of_variance(run) == pytest.approx(6.0)
    assert math.isnan(growth_of_variance(dataclasses.replace(run, controls=run.controls[1:])))


def test_the_ratio_pairs_seeds_and_its_interval_is_students_on_the_logs(runs):
    made = [
        dataclasses.replace(runs[0], arm=arm, seed=seed, late={"post_p99": value})
        for arm, values in (("open", (9.0, 13.0, 16.0)), ("constrained", (1.0, 1.0, 2.0)))
        for seed, value in enumerate(values)
    ]
    logs = [math.log(9), math.log(13), math.log(8)]
    centre = sum(logs) / 3
    half = t.ppf(0.975, 2) * math.sqrt(sum((x - centre) ** 2 for x in logs) / 2 / 3)
    expected = [math.exp(centre), math.exp(centre - half), math.exp(centre + half)]
    assert paired_ratio(made, "open", "constrained") == pytest.approx(expected, abs=0.01)
    assert paired_ratio(made[1:], "open", "constrained")[1:] == (None, None)
    assert paired_ratio([], "open", "constrained") == (None, None, None)


def test_every_choice_leaves_one_thing_out_and_sets_thresholds_without_it(runs):
    assert nulls(runs) == [(), (0,), (1,), (2,)]
    every = choices(runs)
    assert len(every) == len(set(every)) == 3 * 4 * 3 * 4
    assert CHOSEN in every
    own = limits_for(runs, CHOSEN)
    assert limits_for(runs, Choice(left_out=(1,))) == limits_for([r for r in runs if r.arm in QUIET and r.seed != 1], CHOSEN)  # fmt: skip
    assert limits_for(runs, Choice(left_out=(1,))) != own
    lost = [run for run in runs if run.arm == "open_hot"]
    assert medians(runs, lost, "post_tail", [CHOSEN]) == [figures_of(runs)["lead_steps_tail_alone_median"]]
    assert medians(runs, lost[:2], "post_tail", [CHOSEN]) == []


def test_the_claims_carry_their_verdicts_and_say_when_there_are_no_runs(runs):
    lines = claims(runs).splitlines()
    assert lines[0] == "| claim | what we see | how robust | verdict |"
    cells = {line.split(" | ")[0][2:]: line.split(" | ") for line in lines[2:]}
    first = cells["Before a collapse (open outputs) the post-tool tail moves first"]
    assert "3 runs of 3 seeds" in first[1]
    assert "it could be judged in 3 of 3" in first[1]
    assert "all 144 choices" in first[2]
    every = medians(runs, [run for run in runs if run.arm == "open_hot"], "post_tail", choices(runs))
    assert first[3].rstrip(" |") == verdict([*every, figures_of(runs)["lead_steps_tail_alone_low"]])
    assert all(line.endswith("|  | cannot be told |") for line in claims([]).splitlines()[2:])


def test_a_collapse_at_the_base_rate_takes_the_verdict_away(runs):
    row = next(line for line in claims(runs).splitlines() if "ends in a collapse" in line)
    assert "0 of 1 runs collapsed" in row
    assert row.endswith("does not hold within 40 steps |")
    fallen = [dataclasses.replace(run, collapsed=30) if run.arm == "open" else run for run in runs]
    row = next(line for line in claims(fallen).splitlines() if "ends in a collapse" in line)
    assert row.endswith("| cannot be told |")

"""Verdicts, pooled variance, and the table of claims: no sign that hangs on one seed may be called a finding."""

from __future__ import annotations

import dataclasses
import math

import pytest
from reproduce.pilot.claims import claims
from reproduce.pilot.claims_size import localised, suppressed
from reproduce.pilot.leads import EVERY, QUIET, at_quantile, cut_off, moments, steps_judged
from reproduce.pilot.made_of import entropy_note, lead_figures
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
        ([], "undecided"),
        ([1.0, 2.0], "holds"),
        ([1.0, 0.0], "undecided"),
        ([1.0, -1.0], "undecided"),
        ([-1.0, -3.0], "does not hold"),
        ([0.0], "undecided"),
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
    assert len(every) == len(set(every)) == 3 * 4 * 3 * 4 * 3
    assert {choice.quantile for choice in every} == {"p95", "p99", "p999"}
    assert len(choices(runs, name="post_ratio")) == 3 * 4 * 3 * 4 * 2  # p99.9 of the ratio was never recorded
    assert at_quantile("post_ratio", "p999") is None
    assert EVERY[at_quantile("post_tail", "p999")].key == "drift/p999"
    assert all(choice.quantile == "p95" for choice in choices(runs, "limit, each", "none")[:12])
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
    assert "all 432 choices" in first[2]
    lost = [run for run in runs if run.arm == "open_hot"]
    every = medians(runs, lost, "post_tail", choices(runs))
    fewer = [m for seed in range(3) for m in medians(runs, [run for run in lost if run.seed != seed], "post_tail", [CHOSEN])]  # fmt: skip
    assert first[3].rstrip(" |") == verdict([*every, *fewer, figures_of(runs)["lead_steps_tail_alone_low"]])
    assert all(line.endswith("|  | undecided |") for line in claims([]).splitlines()[2:])


def test_a_collapse_at_the_base_rate_takes_the_verdict_away(runs):
    row = next(line for line in claims(runs).splitlines() if "ends in a collapse" in line)
    assert "0 of 1 runs collapsed" in row
    assert row.endswith("does not hold within 40 steps |")
    fallen = [dataclasses.replace(run, collapsed=30) if run.arm == "open" else run for run in runs]
    row = next(line for line in claims(fallen).splitlines() if "ends in a collapse" in line)
    assert row.endswith("| undecided |")


def test_a_share_that_one_batch_decides_is_no_finding(runs):
    """Variance 3 against 1 from 40 of 100 tokens in each batch holds; a batch in which text alone varied takes it away."""
    one = batch(30, 3.0, 1.0, 40, 60)
    for extra, word in ((batch(35, 3.0, 1.0, 40, 60), "holds"), (batch(35, 0.0, 1.0, 40, 60), "undecided")):  # fmt: skip
        made = [dataclasses.replace(run, controls=[one, extra]) if run.arm == "open" else run for run in runs]
        row = next(
            line for line in claims(made).splitlines() if "carry more of the gradient's variance" in line
        )
        assert row.endswith(f"| {word} |")


def sized(run, arm, seed, post, text, matched):
    late = {f"post_{q}": post for q in ("p95", "p99", "p999")} | {
        f"text_{q}": text for q in ("p95", "p99", "p999")
    }
    for kind, (above, below) in zip(("turn", "position"), matched, strict=True):
        late |= {f"matched_{kind}_post_{q}": above for q in ("p95", "p99")} | {f"matched_{kind}_text_{q}": below for q in ("p95", "p99")}  # fmt: skip
        late[f"matched_{kind}_covered"] = 0.25
    return dataclasses.replace(run, arm=arm, seed=seed, collapsed=None, learning=True, late=late)


def test_localisation_needs_every_match_to_agree(runs):
    """Post-tool over text is 8; against text at the same position 2 in one arm and a half in the other."""
    agreed = [sized(runs[0], "open", seed, 8.0, 1.0, ((4.0, 1.0), (2.0, 1.0))) for seed in range(3)]
    row = localised(agreed)
    assert "unmatched p95 x8, p99 x8, p99.9 x8" in row[1]
    assert (
        "matched by position in the completion and entropy p95 x2, p99 x2 (covers 25% of the tokens)"
        in row[1]
    )
    assert row[3] == "holds"
    against = [sized(runs[0], "open_no_drift", seed, 8.0, 1.0, ((4.0, 1.0), (1.0, 2.0))) for seed in range(3)]
    row = localised([*agreed, *against])
    assert "p95 x0.5 to x2, p99 x0.5 to x2, not above text in 6 of 12 readings of a run" in row[2]
    assert row[3] == "undecided"


def test_suppression_must_hold_at_every_quantile(runs):
    made = [sized(runs[0], "open", seed, 8.0 + seed, 1.0, ((1, 1), (1, 1))) for seed in range(3)]
    made += [sized(runs[0], "constrained", seed, 1.0, 1.0, ((1, 1), (1, 1))) for seed in range(3)]
    row = suppressed(made, "claim", ("open",), ("constrained",))
    assert row[3] == "holds"
    assert "p99.9 x8.96" in row[1]  # the cube root of 8 * 9 * 10
    made[0].late["post_p999"] = 0.5
    assert suppressed(made, "claim", ("open",), ("constrained",))[3] == "undecided"


def test_a_silent_tail_has_no_lead_and_a_late_first_look_is_said(runs):
    lost = [run for run in runs if run.arm == "open_hot"]
    limits = limits_for(runs, CHOSEN)
    first = steps_judged(lost[0], "post_tail")
    assert cut_off(lost[0], "post_tail", first)
    assert not cut_off(lost[0], "post_tail", first + 1)
    assert not cut_off(lost[0], "post_tail", None)
    spoke = sum(moments(run, limits)["text_tail"] is not None for run in lost)
    row = next(
        line for line in lead_figures(runs).splitlines() if line.startswith("| `text_tail_lead_steps_*`")
    )
    assert (spoke, "**no lead: the tail spoke in none**" in row) == (0, True)
    row = next(
        line for line in lead_figures(runs).splitlines() if line.startswith("| `lead_steps_tail_alone_*`")
    )
    assert row.startswith("| `lead_steps_tail_alone_*` | post tail | 3 | 3 | 3 |")
    assert "no lead" not in row
    assert entropy_note([]) == ""


def test_the_ratio_is_asked_whether_it_passes_at_all(runs):
    row = next(line for line in claims(runs).splitlines() if "the alarm's own series, passes" in line)
    passed = sum(
        moments(run, limits_for(runs, CHOSEN))["post_ratio"] is not None
        for run in runs
        if run.arm == "open_hot"
    )
    assert f"it passed in {passed} of the 3 in which it could be judged; 0 more" in row
    early = [dataclasses.replace(run, collapsed=1) if run.arm == "open_hot" else run for run in runs]
    row = next(line for line in claims(early).splitlines() if "the alarm's own series, passes" in line)
    assert row.endswith("|  | undecided |")

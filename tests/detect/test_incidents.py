"""Incidents: alarms of one trouble together, its worst slice, and the right cause first, through runs as users record them."""

from __future__ import annotations

import json

import numpy as np
import pytest

import trimtab
from trimtab.catalog import bound
from trimtab.detect.incidents import incidents, onsets
from trimtab.detect.movement import QUANTITIES, Levels, Movement, movements
from trimtab.report.run_diagnosis import diagnosis, diagnosis_lines, diagnosis_screen
from trimtab.report.run_view import load_view
from trimtab.types import Alarm, Reading, Window

ROWS, LENGTH, ONSET, STEPS = 24, 24, 25, 45
TOOL, AFTER = slice(8, 12), slice(12, None)


def step_columns(step: int, trouble: str) -> dict[str, object]:
    """Columns of a step: `trouble` moves one pair of policies apart, after a tool result."""
    rng = np.random.default_rng([11, step])
    mu = np.log(rng.uniform(1e-4, 1e-3, (ROWS, LENGTH)))
    on = step >= ONSET
    wide = np.full((ROWS, LENGTH), 0.01)
    wide[:, AFTER] = 1.0
    small = rng.normal(0.0, 0.01, (2, ROWS, LENGTH))
    far = rng.normal(0.0, wide)
    old = mu + (far if on and trouble == "mismatch" else small[0])
    new = old + (far if on and trouble in ("stale", "stale_trl", "update") else small[1])
    mask = np.ones((ROWS, LENGTH), bool)
    mask[:, TOOL] = False
    age = 8 if on and trouble.startswith("stale") else 1
    same = [("old_logprobs", "logprobs")] if trouble == "stale_trl" else []
    if same:  # TRL takes pi_theta for pi_old: the age of rollouts is read as mismatch
        old = new
    return {
        "loss_mask": mask, "tool_tokens": ~mask, "rollout_logprobs": mu, "old_logprobs": old, "logprobs": new,
        "policy_version": np.full((ROWS, LENGTH), step - age), "current_version": step, "same": same,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("trouble", "cause"),
    [
        ("stale", "stale rollouts"),
        ("stale_trl", "stale rollouts"),
        ("mismatch", "the engines disagree"),
        ("update", "updates too large"),
    ],
)
def test_the_right_cause_comes_first_with_its_evidence(tmp_path, trouble, cause) -> None:
    with trimtab.open_run(tmp_path / "run", rank=0, min_tokens=200, min_trajectories=10) as run:
        for step in range(STEPS):
            run.observe(**step_columns(step, trouble))
            run.flush(step, {"reward": 0.5})
    summary = json.loads(json.dumps(diagnosis(load_view(tmp_path / "run"))))
    incident = summary["incidents"][-1]
    assert incident["slice"] == "post_tool"
    assert ONSET - 1 <= incident["since"] <= ONSET + 3
    assert incident["causes"][0]["name"] == cause, incident["causes"]
    scores = [other["score"] for other in incident["causes"]]
    if trouble != "stale_trl":  # there rules on the mismatch speak for the engines too
        assert scores[0] > max(scores[1:], default=-1)
    screen, full = "\n".join(diagnosis_screen(summary)), "\n".join(diagnosis_lines(summary))
    assert f"likely cause: {cause} (" in screen
    assert len(screen.splitlines()) <= 25
    assert "to tell: " in full


def alarm(
    rule: str, step: int, *, since: int | None = None, severity: str = "warning", where: str = "all"
) -> Alarm:
    start = step if since is None else since
    reading = Reading("aggregate/kl", step, Window(start, step), where, 1.0, 0, 0)
    return Alarm(rule, step, start, severity, where, (reading,), 1.0, "", "", "")


def test_alarms_near_each_other_are_one_incident_and_notes_alone_are_none() -> None:
    apart = 31 + int(bound("incident_gap")) + 1
    found = incidents([
        alarm("kl_high", 30, since=25), alarm("entropy_break", 31, where="post_tool"),
        alarm("kl_high", apart, severity="critical"), alarm("kl_climb", 500, severity="info"),
    ])  # fmt: skip
    assert [(one.since, one.slice, one.severity, len(one.alarms)) for one in found] == [
        (25, "post_tool", "warning", 2), (apart, "all", "critical", 1),
    ]  # fmt: skip


def test_an_alarm_on_slow_growth_does_not_date_the_incident_back() -> None:
    """Its evidence begins with the run; that of the others within 20 steps of the first alarm's."""
    group = [
        alarm("sequence_ess_fall", 69, since=67),
        alarm("total_high", 75, since=60),
        alarm("lagged_drift_growth", 90, since=11, severity="critical"),
    ]
    assert [(one.since, len(one.alarms)) for one in incidents(group)] == [(60, 3)]
    assert onsets(group) == [(60, 90)]


def test_a_cause_needs_evidence_and_a_quantity_that_was_not_seen_is_none() -> None:
    assert incidents([alarm("kl_high", 30)])[0].causes == ()
    causes = incidents([alarm("tool_failures", 30), alarm("proxy_rise", 32)])[0].causes
    assert {cause.name for cause in causes} == {"tools or environment", "a proxy of the reward is learnt"}


def test_what_points_to_another_cause_of_mismatch_speaks_against_each() -> None:
    own = {
        "the engines disagree": "", "another sampling temperature": "temperature", "log-probabilities shifted by a token": "shifted",
        "text encoded again": "sparse", "a rank with old weights": "rank_mismatch",
    }  # fmt: skip
    names = {"lag", "results", "shifted", "temperature", "rank_mismatch", "sparse"}
    moved = {name: Movement(0.01, 5.0) for name in (*names, "mismatch", "mismatch_bulk")}
    (incident,) = incidents([alarm("total_high", 30)], {30: moved})
    causes = {cause.name: cause for cause in incident.causes}
    for name, quantity in own.items():
        against = {words.partition(" rose")[0] for words in causes[name].evidence_against}
        assert against == {QUANTITIES[other].words for other in names - {quantity}}, name


@pytest.mark.parametrize(("fault", "cause"), [(60, "stale rollouts"), (2, "the engines disagree")])
def test_rollouts_that_grew_old_long_before_their_damage_shows_are_its_cause(fault, cause) -> None:
    """Ages grow from 1 to 8 within 8 steps; the first alarm dates from step 91. An age of always is none."""
    steps = np.arange(1, 100)
    ages = Levels(steps, np.clip(steps - fault + 1, 1, 8).astype(float))
    apart = Levels(steps, np.where(steps < 91, 0.01, 0.2))
    alarms = [alarm("total_high", 93, since=91, where="post_tool")]
    moved = movements(lambda key, _: apart if key.startswith("mismatch/p9") else None, ages, 91, 93)
    (incident,) = incidents(alarms, {91: moved})
    assert incident.causes[0].name == cause
    if fault == 60:
        assert "rose from 1 to 8" in incident.causes[0].evidence_for[0]

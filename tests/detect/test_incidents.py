"""Incidents: alarms of one trouble together, its worst slice, and the right cause first, through runs as users record them."""

from __future__ import annotations

import json

import numpy as np
import pytest

import trimtab
from trimtab.catalog import bound
from trimtab.detect.incidents import incidents
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
    new = old + (far if on and trouble in ("stale", "update") else small[1])
    mask = np.ones((ROWS, LENGTH), bool)
    mask[:, TOOL] = False
    age = 8 if on and trouble == "stale" else 1
    return {
        "loss_mask": mask, "tool_tokens": ~mask, "rollout_logprobs": mu, "old_logprobs": old, "logprobs": new,
        "policy_version": np.full((ROWS, LENGTH), step - age), "current_version": step,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("trouble", "cause"),
    [("stale", "stale rollouts"), ("mismatch", "the engines disagree"), ("update", "updates too large")],
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
    assert incident["causes"][0]["score"] > incident["causes"][1]["score"] if incident["causes"][1:] else True
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
        alarm("kl_high", apart, severity="critical"), alarm("late_jump", 500, severity="info"),
    ])  # fmt: skip
    assert [(one.since, one.slice, one.severity, len(one.alarms)) for one in found] == [
        (25, "post_tool", "warning", 2), (apart, "all", "critical", 1),
    ]  # fmt: skip


def test_a_cause_needs_evidence_and_a_quantity_that_was_not_seen_is_none() -> None:
    assert incidents([alarm("kl_high", 30)])[0].causes == ()
    causes = incidents([alarm("tool_failures", 30), alarm("proxy_rise", 32)])[0].causes
    assert {cause.name for cause in causes} == {"tools or environment", "a proxy of the reward is learnt"}

"""A guard on a live run: the cause picks the policy, actions stand in the record, and the levers come back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import trimtab
from tests.guard.troubled_run import ONSET, Kept, Levers, step_columns
from trimtab.errors import GuardError
from trimtab.report.run_incidents import incidents_of
from trimtab.report.run_view import load_view
from trimtab.runs import RunReader

WINDOWS = {"rank": 0, "min_tokens": 2_400, "min_trajectories": 10}  # five steps: the rules on steps need none


def guarded(folder: Path, trouble: str, steps: int = 45, until: int = 10_000, **options) -> trimtab.Run:
    """Run a trainer that leaves stale rollouts out once `max_lag` is set."""
    controls = options.get("controls")
    with trimtab.open_run(folder, **WINDOWS, **options) as run:
        for step in range(steps):
            fresh = isinstance(controls, Levers) and controls.get("max_lag") <= 1
            run.observe(**step_columns(step, trouble, until=until, fresh=fresh))
            run.flush(step, {"reward": 0.5})
    return run


def actions_of(folder: Path) -> list[dict]:
    return RunReader(folder, complete=True).rows("actions")


@pytest.mark.parametrize("trouble", ["stale", "mismatch", "update", "none"])
def test_the_live_run_has_the_incidents_and_causes_of_its_report(tmp_path, trouble) -> None:
    run = guarded(tmp_path / "run", trouble)
    live = [
        (one.since, one.slice, [(c.name, c.score, c.evidence_for, c.evidence_against) for c in one.causes])
        for one in run.incidents
    ]
    stored = [
        (one["since"], one["slice"],
         [(c["name"], c["score"], c["evidence_for"], c["evidence_against"]) for c in one["causes"]])
        for one in incidents_of(load_view(tmp_path / "run"))
    ]  # fmt: skip
    assert live == stored
    assert bool(live) == (trouble != "none")


@pytest.mark.parametrize(
    ("trouble", "lever", "where", "value"),
    [
        ("stale", "max_lag", "all", 1.0),
        ("mismatch", "sequence_is_cap", "post_tool", 2.0),
        ("update", "lr_scale", "all", 0.3),
    ],
)
def test_the_cause_picks_the_policy(tmp_path, trouble, lever, where, value) -> None:
    controls = Levers()
    guarded(tmp_path / "run", trouble, guard="recommended", controls=controls)
    assert controls.calls[0] == (lever, where, value)
    row = actions_of(tmp_path / "run")[0]
    assert (row["action"], row["lever"], row["slice"], row["after"]) == ("set_lever", lever, where, value)
    assert row["before"] == controls.__class__().get(lever)
    assert ONSET <= row["step"] <= ONSET + 8
    assert row["incident"]["since"] >= ONSET - 1
    assert (row["dry_run"], row["failure"]) == (False, "")


def test_a_run_without_trouble_is_not_touched(tmp_path) -> None:
    controls = Levers()
    guarded(tmp_path / "run", "none", steps=60, guard="strict", controls=controls)
    assert (controls.calls, actions_of(tmp_path / "run")) == ([], [])


def test_a_missing_lever_is_passed_over_and_the_record_says_so(tmp_path) -> None:
    controls = Levers(lr_scale=("all",))
    guarded(tmp_path / "run", "stale", guard="recommended", controls=controls)
    row = actions_of(tmp_path / "run")[0]
    assert (row["policy"], row["lever"], row["after"]) == ("learning_rate_backoff", "lr_scale", 0.3)
    assert "bound_staleness needs max_lag, which this trainer does not offer" in row["note"]
    assert row["incident"]["cause"] == "stale rollouts"


def test_observing_changes_nothing_and_records_what_would_have_been_done(tmp_path) -> None:
    controls, kept = Levers(), Kept()
    guarded(tmp_path / "run", "stale", guard="observe", controls=controls, states=kept)
    guarded(tmp_path / "acting", "stale", steps=30, guard="recommended", controls=Levers())
    assert (controls.calls, kept.steps) == ([], {})
    rows, acting = actions_of(tmp_path / "run"), actions_of(tmp_path / "acting")
    assert all(row["dry_run"] for row in rows)
    parts = ("action", "lever", "before", "after", "step", "policy")
    assert [rows[0][key] for key in parts] == [acting[0][key] for key in parts]


def test_a_lever_is_given_back_once_the_trouble_has_passed(tmp_path) -> None:
    controls = Levers()
    guarded(tmp_path / "run", "update", steps=120, until=40, guard="recommended", controls=controls)
    changes = [(row["action"], round(row["after"], 3)) for row in actions_of(tmp_path / "run")]
    assert changes[0] == ("set_lever", 0.3)
    assert changes[-1] == ("undo", 1.0)
    assert controls.get("lr_scale") == 1.0
    scales = [after for _, after in changes]
    assert scales == sorted(scales), "once it is lowered, it only rises"


def test_the_rate_stays_low_while_rollouts_stay_old_and_comes_back_with_fresh_ones(tmp_path) -> None:
    """No limit on their age is offered. The alarms clear of themselves, for this distance is the record now."""
    ends = {}
    for until in (45, 10_000):
        controls, folder = Levers(lr_scale=("all",)), tmp_path / str(until)
        guarded(folder, "stale", steps=110, until=until, guard="recommended", controls=controls)
        rows = actions_of(folder)
        assert (rows[0]["lever"], rows[0]["after"]) == ("lr_scale", 0.3)
        ends[until] = [row["after"] for row in rows if row["after"] > row["before"]]
    assert ends[45]
    assert ends[10_000] == []


def test_an_incident_that_gets_worse_is_rolled_back_to_before_its_onset(tmp_path) -> None:
    """Nothing helps here: the reward falls too, which is critical."""
    controls, kept = Levers(), Kept()
    policy = tmp_path / "p.yaml"
    policy.write_text("cool_down: 2\nsoften_times: 1\nstates: {every: 5}\n")
    with trimtab.open_run(tmp_path / "run", **WINDOWS, guard=policy, controls=controls, states=kept) as run:
        for step in range(70):
            columns = step_columns(step, "update")
            rng = np.random.default_rng([3, step])
            columns["reward"] = rng.normal(0.8 if step < ONSET + 8 else 0.1, 0.05, 24)
            run.observe(**columns)
            run.flush(step, {"reward": float(columns["reward"].mean())})
    rows = actions_of(tmp_path / "run")
    back = [row for row in rows if row["action"] == "rollback"]
    assert kept.restored, rows
    assert kept.restored[0] == back[0]["to_step"] < back[0]["incident"]["since"]
    assert rows[0]["action"] == "set_lever", "softened before it is rolled back"
    assert all(b < a for a, b in zip(kept.restored, kept.restored[1:], strict=False))
    last = next(row for row in rows if row["policy"] == "rollback" and row["action"] == "set_lever")
    assert last["after"] <= 0.5


def test_a_guard_that_is_to_act_needs_controls(tmp_path) -> None:
    with pytest.raises(GuardError, match="controls are missing"):
        trimtab.open_run(tmp_path / "run", guard="recommended")
    assert not (tmp_path / "run").exists()

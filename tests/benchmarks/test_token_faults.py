"""The bench of faults: what is applied is what its name says, and figures count what they say."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.fault_bank.faults import FAULTS
from benchmarks.fault_bank.healthy import HEALTHY
from benchmarks.fault_bank.outcomes import Outcome, figures_of
from benchmarks.fault_bank.pool import TOOLS
from benchmarks.fault_bank.stream import Case, run_case, steps_of

from benchmarks import real_logs, token_faults
from trimtab.detect.incidents import CAUSES


def test_every_fault_has_a_cause_that_the_incidents_know() -> None:
    assert {fault.cause for fault in FAULTS.values()} <= set(CAUSES)
    assert len(FAULTS) == 13
    assert len(HEALTHY) == 8


@pytest.mark.parametrize("kind", [*FAULTS])
def test_a_fault_changes_its_stream_from_the_onset_on_and_nothing_before(kind) -> None:
    steps, onset, _ = steps_of(Case(kind, 1.0, 99))
    for step in steps:
        before = step.number < onset
        base, own = step.pool["logprob"], step.pool["own"].astype(bool)
        same = (
            np.array_equal(step.old, np.minimum(base, 0.0))
            and np.array_equal(step.new, np.minimum(base + step.pool["later1"], 0.0))
            and np.array_equal(step.rollout, np.where(own, np.minimum(base + step.pool["sampler"], 0.0), 0.0))
            and np.array_equal(step.own, own)
            and "timeout" not in [error for errors in step.errors for error in errors]
        )
        if before:
            assert same
    last = steps[-1]
    if kind not in ("reward_proxy", "solved_tasks", "hopeless_tasks"):
        assert not same  # of the last step
    assert {tool for tools in last.tools for tool in tools} <= {*TOOLS, "other"}


def test_text_that_is_encoded_again_is_recognised_in_a_run_folder() -> None:
    row = run_case(Case("retokenisation", 1.0, 0))
    outcome = Outcome.of("retokenisation/full/0", row)
    assert outcome.found
    assert outcome.cause_first, row["incidents"]


def test_figures_count_faults_that_no_alarm_met_as_not_found_and_as_no_right_cause() -> None:
    incident = {
        "since": 30,
        "last": 33,
        "slice": "rank/1",
        "severity": "warning",
        "causes": [["a rank with old weights", 2], ["x", 1]],
    }
    rows = {
        "stale_rank/full/1": {
            "onset": 30,
            "steps": 50,
            "place": "rank/1",
            "alarms": [[33, "r", "all"]],
            "incidents": [incident],
        },
        "stale_rank/third/1": {"onset": 30, "steps": 70, "place": "rank/2", "alarms": [], "incidents": []},
        "plain/1": {"onset": -1, "steps": 100, "place": "", "alarms": [[9, "r", "all"]], "incidents": []},
    }
    figures = figures_of([Outcome.of(name, row) for name, row in rows.items()])
    assert (figures["found_full_frac"], figures["found_third_frac"]) == (1.0, 0.0)
    assert (figures["cause_first_frac"], figures["cause_first_of_all_frac"]) == (1.0, 0.5)
    assert (figures["slice_named_frac"], figures["slice_named_of_all_frac"]) == (1.0, 0.5)
    assert figures["healthy_warnings_per_10k"] == 100.0


def test_the_committed_results_have_no_stream_twice_and_name_known_kinds() -> None:
    lines = token_faults.RESULTS.read_text().splitlines()
    rows = token_faults.load(token_faults.RESULTS)
    assert len(lines) == len(rows)
    assert {name.split("/")[0] for name in rows} <= {*FAULTS, *HEALTHY}


def test_real_figures_count_critical_alarms_that_are_not_the_known_death() -> None:
    dead = next(iter(real_logs.DEAD))
    rows = [
        {
            "log": dead,
            "rows": 90,
            "verdict": "alarms",
            "alarms": [[70, "entropy_dead", "critical"], [80, "kl_surge", "critical"]],
        },
        {"log": "other", "rows": 30, "verdict": "not judged yet", "alarms": [[5, "kl_high", "warning"]]},
    ]
    figures = real_logs.figures_of(rows)
    assert figures["real_false_critical"] == 1
    assert figures["real_dead_delay_max"] == 70 - real_logs.DEAD[dead]
    assert figures["short_runs_judged_frac"] == 0.0

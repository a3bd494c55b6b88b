"""The rules on single steps, through a live run, a resume, and the stored record: the same alarms in all of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import trimtab
from trimtab.detect.reading_columns import standard_error
from trimtab.detect.rules.step_rules import STEP_RULES
from trimtab.detect.step_readings import of_series, step_columns
from trimtab.measure.steps.series_history import SeriesArrays
from trimtab.report.run_diagnosis import diagnosis
from trimtab.report.run_view import load_view

ROWS, LENGTH, TOOL = 24, 20, slice(8, 12)
STEPS, ONSET = 50, 35


def batch(step: int, *, spread: float, columns: str = "all") -> dict[str, object]:
    """Sequences with a tool result in the middle; the policy leaves its rollouts by `spread` nats after it."""
    rng = np.random.default_rng([7, step])
    rollout = np.log(rng.uniform(1e-4, 1e-3, (ROWS, LENGTH)))
    after = np.arange(LENGTH) >= TOOL.stop
    moved = rollout + rng.normal(0.0, np.where(after, spread, 0.01), (ROWS, LENGTH))
    mask = np.ones((ROWS, LENGTH), bool)
    mask[:, TOOL] = False
    arrays = {"loss_mask": mask, "tool_tokens": ~mask, "rollout_logprobs": rollout}
    return arrays | (
        {"logprobs": moved, "old_logprobs": rollout + 0.001} if columns == "all" else {"old_logprobs": moved}
    )


def watch(folder, steps, columns: str = "all", fault: bool = True):
    with trimtab.open_run(folder, rank=0) as run:
        for step in steps:
            spread = 1.0 if fault and step >= ONSET else 0.02
            run.observe(**batch(step, spread=spread, columns=columns))
            run.flush(step, {"reward": 0.5})
    return run.alarms


def early(alarms) -> list[tuple[str, str, int, int]]:
    return sorted((a.rule, a.slice, a.step, a.since) for a in alarms if of_series(a.readings[0].key))


@pytest.mark.parametrize("columns", ["all", "one engine"])
def test_a_tail_after_a_tool_is_told_within_a_few_steps_where_it_sits(tmp_path, columns) -> None:
    told = early(watch(tmp_path / "run", range(STEPS), columns))
    steps = {(rule, name): step for rule, name, step, _ in told}
    assert ONSET <= steps["total_high", "post_tool"] <= ONSET + 3
    assert ONSET <= steps["sequence_ess_fall", "all"] <= ONSET + 6
    assert ("total_high", "text") not in steps
    assert early(load_view(tmp_path / "run").alarms) == told


def test_a_calm_run_is_not_told_and_the_rules_have_judged_it(tmp_path) -> None:
    assert early(watch(tmp_path / "run", range(STEPS), fault=False)) == []
    judged = set(load_view(tmp_path / "run").pipeline.judged())
    assert {"total_high", "sequence_ess_fall"} <= judged


def test_a_resumed_run_has_the_record_it_had(tmp_path) -> None:
    whole = early(watch(tmp_path / "whole", range(STEPS)))
    watch(tmp_path / "run", range(ONSET - 5))
    resumed = early(watch(tmp_path / "run", range(ONSET - 5, STEPS)))
    assert resumed == whole
    assert early(load_view(tmp_path / "run").alarms) == whole


def test_two_ranks_are_judged_by_their_merged_series(tmp_path) -> None:
    for rank in (0, 1):
        with trimtab.open_run(tmp_path / "run", rank=rank, config={"ranks": 2}) as run:
            for step in range(STEPS):
                run.observe(**batch(2 * step + rank, spread=1.0 if step >= ONSET else 0.02))
                run.flush(step, {"reward": 0.5})
    told = {(rule, name): step for rule, name, step, _ in early(load_view(tmp_path / "run").alarms)}
    assert ONSET <= told["total_high", "post_tool"] <= ONSET + 3


def test_the_evidence_names_the_series_and_the_verdict_the_slice(tmp_path) -> None:
    watch(tmp_path / "run", range(STEPS), "one engine")
    view = load_view(tmp_path / "run")
    alarm = next(a for a in view.alarms if (a.rule, a.slice) == ("total_high", "post_tool"))
    assert alarm.readings[0].value > 1.2
    readings = view.series("step/total/p95", "post_tool")
    assert len(readings) == STEPS
    assert {reading.reference for reading in readings} == {"mismatch/p95"}
    assert all(reading.low < reading.value < reading.high for reading in readings)
    assert any(row["rule"] == "total_high" for row in diagnosis(view)["alarms"])


@pytest.mark.parametrize("name", ["total_high", "sequence_ess_fall"])
def test_standard_errors_of_a_column_are_those_of_its_readings(name) -> None:
    """In closed form too: an error of a logarithm is that of the value over the value."""
    rule = next(rule for rule in STEP_RULES if rule.name == name)
    values, errors = np.array([0.2, 0.5, 0.4, 0.0]), np.array([0.02, 0.01, 0.2, 0.1])
    of_series = SeriesArrays(np.arange(4), values, errors, np.full(4, 900), np.full(4, 64))
    (column,) = step_columns({(rule.key.removeprefix("step/"), "post_tool"): of_series}, range(4))
    found = column.errors(rule)
    assert found == pytest.approx(
        [standard_error(rule, column.reading(i)) for i in range(4)], rel=1e-9, nan_ok=True
    )
    log = column.errors(replace(rule, transform="log", floor=0.0))
    assert log == pytest.approx([0.1, 0.02, 0.5, math.nan], rel=1e-9, nan_ok=True)
    assert column.errors(replace(rule, transform="identity")) == errors.tolist()


def test_steps_of_too_few_trajectories_are_left_out_and_counted(tmp_path) -> None:
    with trimtab.open_run(tmp_path / "run", rank=0) as run:
        for step in range(STEPS):
            arrays = batch(step, spread=1.0 if step >= ONSET else 0.02)
            run.observe(**{name: array[:2] for name, array in arrays.items()})
            run.flush(step, {"reward": 0.5})
    view = load_view(tmp_path / "run")
    assert early(run.alarms) == early(view.alarms) == []
    for pipeline in (run.pipeline, view.pipeline):
        assert pipeline.left_out()["total_high"] == 3 * STEPS
    assert view.series("step/total/p95", "post_tool")[0].excluded == {"few trajectories": 2}

"""A stored run judged at once: the alarms, decisions and counts of the stream, step by step (issue 17.14)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from reproduce.recorded_alarms import recorded_runs

import trimtab
from trimtab.detect.pipeline import Pipeline
from trimtab.detect.step_readings import step_readings
from trimtab.distributed.stragglers import MachineJudge
from trimtab.report.run_view import RunView, load_view
from trimtab.report.series_arrays import step_series
from trimtab.types import Alarm, Reading


def stream(view: RunView) -> Pipeline:
    """The same rules over the same rows, as a live run gives them."""
    pipeline, machine = Pipeline(), MachineJudge()
    closed: dict[int, list[Reading]] = {}
    for reading in view.readings:
        closed.setdefault(reading.step, []).append(reading)
    for series in step_series(view.reader):
        closed.setdefault(series.step, []).extend(step_readings(series))
    of_ranks: dict[int, dict[int, dict[str, Any]]] = {}
    for rank in view.reader.ranks:
        for row in view.reader.rows("steps", rank):
            of_ranks.setdefault(row["step"], {})[rank] = row
    for row in view.steps:
        pipeline.on_step(row["step"], row["nonfinite"], row["columns"])
        pipeline.on_readings(closed.get(row["step"], []) + machine.update(row["step"], of_ranks[row["step"]]))
    return pipeline


def rounded(alarms: list[Alarm]) -> list[str]:
    """Alarms to twelve digits: a scan sums in another order."""
    return [
        repr(
            replace(
                alarm,
                bound=float(f"{alarm.bound:.12g}"),
                readings=tuple(
                    replace(one, value=float(f"{one.value:.12g}"), state=None) for one in alarm.readings
                ),
            )
        )
        for alarm in alarms
    ]


def check(view: RunView) -> list[Alarm]:
    streamed = stream(view)
    assert rounded(view.pipeline.alarms) == rounded(streamed.alarms)
    assert view.pipeline.decisions.keys() == streamed.decisions.keys()
    for name in ("judged", "pending", "clipped", "left_out", "without_input"):
        assert getattr(view.pipeline, name)() == getattr(streamed, name)(), name
    assert list(view.pipeline.clipped()) == list(streamed.clipped())
    return view.pipeline.alarms


def test_every_recorded_run_of_the_gallery_is_judged_as_it_was_step_by_step():
    alarms = [alarm for folder in recorded_runs(("gallery",)).values() for alarm in check(load_view(folder))]
    assert any(alarm.heard and 0 < alarm.heard[0] < alarm.heard[1] for alarm in alarms)  # counted on the day
    assert any(alarm.cleared for alarm in alarms)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_with_drift_nan_and_gaps_is_judged_as_it_was_step_by_step(tmp_path, seed):
    rng = np.random.default_rng(seed)
    shape = (16, 28)
    mask = np.ones(shape, bool)
    mask[:, 12:16] = False
    with trimtab.open_run(tmp_path / "run", strict=True, min_tokens=300, min_trajectories=10) as run:
        for step in range(160):
            scale = np.full(shape, 0.1)
            scale[:, 12:] *= 1 + 12 * max(0, step - 90) / 70
            logprobs = -rng.exponential(1.0, shape)
            columns = {"ref_logprobs": np.minimum(logprobs + scale * rng.normal(size=shape), 0.0)}
            if 60 <= step < 80:
                columns = {}
            if step in (30, 100):
                logprobs[0, 0] = math.nan
            run.observe(
                loss_mask=mask, logprobs=logprobs, reward=rng.random(16),
                tools=[["search"]] * 16, **columns,
            )  # fmt: skip
            loss = math.nan if step in (100, 101, 130) else float(rng.normal())
            grad_norm = math.inf if step == 130 else float(rng.lognormal()) * (1 + 40 * (step > 120))
            run.flush(step, {"loss": loss, "grad_norm": grad_norm, "kl": 0.1 + 0.02 * rng.random()})
    alarms = check(load_view(tmp_path / "run"))
    assert {"nonfinite", "column_silent"} < {alarm.rule for alarm in alarms}

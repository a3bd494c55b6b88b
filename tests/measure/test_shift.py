"""Shift between windows through `WindowShift` and a run on disk, against scipy and exact shares."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from tests.support import make_batch, write_run
from trimtab.measure.accumulate import observe
from trimtab.measure.all_measures import readings_of
from trimtab.measure.tokens.window_shift import WindowShift
from trimtab.report.run_view import load_view
from trimtab.runs import RunReader
from trimtab.types import Window


def drift_of(batch):
    return np.abs((batch.logprobs - batch.ref_logprobs)[batch.loss_mask].astype(float))


@pytest.fixture
def windows():
    rng = np.random.default_rng(8)
    return [
        make_batch(rng, sequences=128, text_scale=0.05, post_scale=s, step=i)
        for i, s in enumerate((0.05, 0.05, 0.15))
    ]


def readings(shift, batch, step, name="all"):
    state = observe(batch)[name]
    return {r.key: r for r in readings_of(name, Window(step, step), state, shift)}


def test_against_the_previous_and_the_first_window(windows):
    shift = WindowShift()
    found = [readings(shift, batch, i) for i, batch in enumerate(windows)]
    x = [drift_of(batch) for batch in windows]
    assert "drift/shift_ks" not in found[0]
    assert found[0]["drift/n_eff"].value == pytest.approx(x[0].size, rel=0.4)
    for i, j, suffix in ((1, 0, ""), (2, 1, ""), (2, 0, "_first")):
        now = found[i]
        assert now[f"drift/shift_ks{suffix}"].value == pytest.approx(
            scipy_stats.ks_2samp(x[i], x[j]).statistic, abs=0.01
        )
        assert now[f"drift/shift_w1{suffix}"].value == pytest.approx(
            scipy_stats.wasserstein_distance(x[i], x[j]), rel=0.05, abs=2e-4
        )
        for q, key in ((0.95, "shift_tail_mass"), (0.99, "shift_tail_mass_p99")):
            edge = np.quantile(x[j], q)
            exact = (x[i] > edge).mean() - (x[j] > edge).mean()
            assert now[f"drift/{key}{suffix}"].value == pytest.approx(exact, abs=0.006)
    assert found[1]["drift/shift_ks_level"].value < 1.0
    assert found[2]["drift/shift_ks_level"].value > 2.0
    p50, p99 = (np.array([np.quantile(y, q) for y in x]) for q in (0.5, 0.99))
    assert found[2]["drift/stretch"].value == pytest.approx((p99[2] / p50[2]) / (p99[0] / p50[0]), rel=0.05)


def test_slices_are_compared_with_themselves(windows):
    shift = WindowShift()
    for i, batch in enumerate(windows[:2]):
        assert ("drift/shift_ks" in readings(shift, batch, i, "text")) == (i == 1)
    assert "drift/shift_ks" not in readings(shift, windows[2], 2, "post_tool")


def test_zeros_and_one_trajectory_are_defined():
    batch = make_batch(np.random.default_rng(0), sequences=1, text_scale=0.0, post_scale=0.0)
    shift = WindowShift()
    readings(shift, batch, 0)
    found = readings(shift, batch, 1)
    assert found["drift/shift_ks"].value == 0.0
    assert found["drift/shift_w1"].value == 0.0
    assert found["drift/stretch"].value == 1.0
    assert found["drift/n_eff"].value == 1.0  # one trajectory is one observation
    assert found["drift/shift_ks_level"].value == 0.0


def test_a_run_records_the_shifts_and_a_merged_view_makes_them_again(tmp_path):
    folder = write_run(tmp_path / "run", steps=12, grow_from=6, growth=1.5)
    rows = [
        r
        for r in RunReader(folder).rows("readings")
        if r["slice"] == "post_tool" and "drift/shift_ks" in r["values"]
    ]
    assert len(rows) > 5
    assert max(r["values"]["drift/shift_ks_level"] for r in rows[:4]) < 1.5
    assert rows[-1]["values"]["drift/shift_ks_level_first"] > 2.0
    merged = [
        r
        for r in load_view(folder)._merged_readings()
        if r.key == "drift/shift_w1_first" and r.slice == "post_tool"
    ]
    assert merged
    assert all(math.isfinite(r.value) for r in merged)
    assert merged[-1].value == pytest.approx(rows[-1]["values"]["drift/shift_w1_first"], rel=0.5)

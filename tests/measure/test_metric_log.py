"""A metrics log as series of readings, against a loop over its rows."""

from __future__ import annotations

import math

import numpy as np

from trimtab.measure.sequences.metric_log import presence_of_log, series_of_log
from trimtab.metric_logs import MetricLog

NAN = math.nan


def log_of(steps: list[int], columns: dict[str, dict[int, float]]) -> MetricLog:
    """A log whose `columns` are name -> step -> value."""
    at = {step: i for i, step in enumerate(steps)}
    arrays = {
        name: (np.array([at[step] for step in values]), np.array(list(values.values())))
        for name, values in columns.items()
    }
    return MetricLog("x", "jsonl", "trl", "", np.array(steps), arrays, {}, (), {}, ())


def pairs(series: tuple[np.ndarray, np.ndarray]) -> list[tuple[int, float]]:
    return list(zip(series[0].tolist(), np.round(series[1], 9).tolist(), strict=True))


def test_the_gap_is_the_evaluation_less_the_training_since_the_last_one() -> None:
    loss = {step: float(step * step % 7) for step in range(10, 40)} | {15: NAN, 27: math.inf}
    held_out = {10: 3.0, 20: 2.5, 21: 2.0, 34: 1.5}
    log = log_of(list(range(10, 40)), {"loss": loss, "held_out_loss": held_out})
    expected, last = [], -1
    for step, value in held_out.items():
        between = [x for t, x in loss.items() if last < t <= step and math.isfinite(x)]
        expected.append((step, round(value - sum(between) / len(between), 9)))
        last = step
    assert pairs(series_of_log(log)["supervised/gap", "all"]) == expected


def test_an_evaluation_without_training_before_it_has_no_gap() -> None:
    log = log_of([0, 5, 6, 7], {"loss": {5: 1.0, 6: 3.0}, "held_out_loss": {0: 9.0, 6: 4.0, 7: 5.0}})
    assert pairs(series_of_log(log)["supervised/gap", "all"]) == [(6, 2.0)]


def test_a_gradient_of_groups_that_do_not_vary_is_nan() -> None:
    columns = {
        "grad_norm": {1: 0.5, 2: 0.6, 3: 0.0, 4: 0.7},
        "reward_std": {1: 0.1, 2: 0.0, 3: 0.0, 4: 0.2},
        "zero_std_frac": {4: 1.0},
    }
    steps, values = series_of_log(log_of([1, 2, 3, 4], columns))["aggregate/grad_norm", "all"]
    assert steps.tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(values, [0.5, NAN, 0.0, NAN])


def test_ten_values_are_the_fewest_whose_absence_counts() -> None:
    many, few = dict.fromkeys(range(10), 1.0), dict.fromkeys(range(9), 1.0)
    presence = presence_of_log(log_of(list(range(12)), {"kl": many, "entropy": few, "held_out_loss": many}))
    assert {name: index.tolist() for name, index in presence.arrived.items()} == {
        "metrics/kl": list(range(10))
    }
    assert presence.nonfinite == {}

"""A metrics log as series of readings, without tokens or interval, so that the same rules judge it as a
watched run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.measure.sequences.aggregates import may_be_missing
from trimtab.metric_logs import MetricLog
from trimtab.typing import Float64, Int64

_CADENCE = 10  # a metric seen less often has too few values to judge its absence


class Presence(NamedTuple):
    """What the step stream of a log says. `arrived`: column -> places in `steps`, of metrics logged
    regularly; `nonfinite`: column -> places at which it is NaN or infinite, of every metric."""

    steps: Int64
    arrived: dict[str, Int64]
    nonfinite: dict[str, Int64]


def presence_of_log(log: MetricLog) -> Presence:
    """Return at which steps each metric came, and where its values were not numbers.

    Held-out metrics come when an evaluation is due, so their absence does not count.
    """
    arrived = {
        f"metrics/{name}": index
        for name, (index, _) in log.columns.items()
        if index.size >= _CADENCE and not name.startswith("held_out")
    }
    bad = {name: index[~np.isfinite(values)] for name, (index, values) in log.columns.items()}
    for name, lost in log.lost_nonfinite.items():
        bad[name] = np.union1d(bad.get(name, lost), lost)
    nonfinite = {
        f"metrics/{name}": index for name, index in bad.items() if index.size and not may_be_missing(name)
    }
    return Presence(log.steps, arrived, nonfinite)


def series_of_log(log: MetricLog) -> dict[tuple[str, str], tuple[Int64, Float64]]:
    """(reading key, slice) -> the steps a metric was logged at, and its values there, NaN included."""
    series = {reading_of(name): (log.steps[index], values) for name, (index, values) in log.columns.items()}
    if "grad_norm" in log.columns:
        series["aggregate/grad_norm", "all"] = _with_variance(log)
    if "loss" in log.columns and "held_out_loss" in log.columns:
        series["supervised/gap", "all"] = _gap(
            series["aggregate/loss", "all"], series["aggregate/held_out_loss", "all"]
        )
    return series


def _with_variance(log: MetricLog) -> tuple[Int64, Float64]:
    """The gradient norm, NaN at steps of which no group of rewards varied (`aggregates.comparable`).

    Detectors skip and count these.
    """
    index, values = log.columns["grad_norm"]
    flat = np.zeros(values.size, bool)
    for name, value in (("reward_std", 0.0), ("zero_std_frac", 1.0)):
        if name in log.columns:
            at, numbers = log.columns[name]
            flat |= np.isin(index, at[numbers == value])
    return log.steps[index], np.where(flat & (values > 0), np.nan, values)


def _gap(loss: tuple[Int64, Float64], held_out: tuple[Int64, Float64]) -> tuple[Int64, Float64]:
    """At each evaluation: its loss less the mean training loss since the one before; evaluations without any
    are left out."""
    finite = np.isfinite(loss[1])
    steps, sums = loss[0][finite], np.append(0.0, np.cumsum(loss[1][finite]))
    ends = np.searchsorted(steps, held_out[0], side="right")
    starts = np.append(0, ends[:-1])
    there = ends > starts
    means = (sums[ends[there]] - sums[starts[there]]) / (ends[there] - starts[there])
    return held_out[0][there], held_out[1][there] - means


def reading_of(name: str) -> tuple[str, str]:
    """Key and slice of a metric's reading: a part of the reward has a slice of its own.

    >>> reading_of("kl"), reading_of("reward_part:format")
    (('aggregate/kl', 'all'), ('reward_part/mean', 'reward/format'))
    """
    part = name.removeprefix("reward_part:")
    return (f"aggregate/{name}", "all") if part == name else ("reward_part/mean", f"reward/{part}")

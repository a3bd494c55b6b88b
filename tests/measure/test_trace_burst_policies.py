"""Bursts of failures are judged within one model and policy version: a policy that fails more is no outage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.measure.test_trace_bursts import _log
from trimtab.measure.traces.builder import Maker
from trimtab.measure.traces.episode_times import high_load, running_at_once
from trimtab.measure.traces.failure_bursts import bursts
from trimtab.traces.table.build import tabulate
from trimtab.traces.table.merge import joined


def _found(log, **fields):
    """The readings of a log whose episodes have these fields, each a list."""
    for i, one in enumerate(log):
        for name, values in fields.items():
            setattr(one, name, values[i])
    return {m.reading.key: m for m in bursts(Maker(tabulate(log)))}


@pytest.mark.parametrize("name", ["policy_version", "model"])
@pytest.mark.parametrize("start", [80, 120])
def test_a_policy_that_fails_more_is_no_burst(name, start):
    """From one episode on, or for a while, another policy is at work, which fails in half of its episodes."""
    rng = np.random.default_rng(1)
    other = (np.arange(200) >= start) & (np.arange(200) < start + 80)
    fails = rng.random(200) < np.where(other, 0.5, 0.04)
    log = _log(fails, np.arange(200) % 50)
    assert _found(log)["traces/burst_excess"].reading.value > 0.2  # as long as nobody says so
    one = _found(log, **{name: [["a", "b"][int(b)] for b in other]})["traces/burst_excess"]
    assert one.reading.value == 0
    low, high = 100 * fails[~other].mean(), 100 * fails[other].mean()
    assert (
        f"; within each of 2 models and versions, which fail in {low:.0f} % (a) to {high:.0f} % (b)"
        in one.text
    )


def test_versions_of_one_model_and_models_of_one_version_are_kept_apart():
    rng = np.random.default_rng(2)
    model, version = np.repeat(["m", "n"], 120), np.tile(np.repeat([1, 2, 3], 40), 2)
    chance = {("m", 1): 0.02, ("m", 2): 0.6, ("m", 3): 0.1, ("n", 1): 0.6, ("n", 2): 0.02, ("n", 3): 0.5}
    fails = np.array([rng.random() < chance[pair] for pair in zip(model, version.tolist(), strict=True)])
    log = _log(fails, np.arange(240) % 40)
    fields = {"model": model.tolist(), "policy_version": version.tolist()}
    assert _found(log, model=fields["model"])["traces/burst_excess"].reading.value > 0.2
    one = _found(log, **fields)["traces/burst_excess"]
    assert (one.reading.value, "(m 1) to " in one.text) == (0, True)


@pytest.mark.parametrize("first", [20, 92])
def test_an_outage_within_a_version_or_over_the_edge_of_two_is_found(first):
    rng = np.random.default_rng(3)
    version = np.arange(200) // 100
    fails = rng.random(200) < np.where(version, 0.3, 0.05)
    fails[first : first + 16] = True
    log = _log(fails, np.arange(200) % 50, 5.0 * np.arange(200))
    one = _found(log, policy_version=version.tolist())["traces/burst_excess"]
    expected = []
    for i in range(first, first + 16):  # the same version's other attempts at the task
        away = [j for j in range(i % 50, 200, 50) if version[j] == version[i] and not first <= j < first + 16]
        expected.append(np.mean(fails[away]))
    assert one.reading.value == pytest.approx(1 - np.mean(expected))


def test_the_rate_of_false_alarms_where_one_version_fails_by_chance_and_others_hardly_ever():
    """Where failures are many, windows with more of them are, too: they change places within their version alone."""
    rng, alarms = np.random.default_rng(4), 0
    version = np.repeat(np.arange(4), 40)
    for i in range(80):
        fails = rng.random(160) < np.where(version == i % 4, 0.5, 0.01)
        log = _log(fails, np.arange(160), 5.0 * np.arange(160))
        alarms += "chance: p" not in _found(log, policy_version=version.tolist())["traces/burst_excess"].text
    assert alarms / 80 <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / 80)


def test_training_steps_are_times_and_no_versions():
    fails = np.zeros(120, bool)
    fails[40:60] = True
    log = _log(fails, np.arange(120) % 20)
    assert _found(log, step=(np.arange(120) // 20).tolist())["traces/burst_excess"].reading.value > 0.5


def test_versions_of_few_episodes_are_not_observed_and_never_fine():
    rng = np.random.default_rng(5)
    log = _log(rng.random(90) < 0.3, np.arange(90) % 30)
    found = _found(log, policy_version=(np.arange(90) // 15).tolist())
    for key in ("traces/burst_excess", "traces/load_excess"):
        assert math.isnan(found[key].reading.value)
        assert found[key].reading.reason == "no model and version calls it in 16 episodes or more"
    some = _found(log, policy_version=np.minimum(np.arange(90) // 15, 3).tolist())["traces/burst_excess"]
    assert some.reading.n_tokens == 45
    assert "; 45 episodes of rarer ones left out" in some.text


def test_load_is_compared_within_a_version():
    """The version that fails more also ran with more episodes at once: that is no load. Within a version it is."""
    rng, n = np.random.default_rng(6), 240
    version = np.arange(n) // 120
    for by_load in (False, True):
        crowd = np.where(version, np.arange(n) % 6 < 4, np.arange(n) % 6 < 2)
        times = np.cumsum(np.where(crowd, 1.0, 60.0))
        chance = np.where(version, 0.2, 0.02) + 0.6 * crowd if by_load else np.where(version, 0.6, 0.05)
        fails = rng.random(n) < chance
        log = _log(fails, np.arange(n), times, np.full(n, 30.0))
        one = _found(log, policy_version=version.tolist())["traces/load_excess"]
        assert "outside the burst" not in one.text
        load = running_at_once(tabulate(log))
        busy = load > high_load(load)
        gaps = [
            fails[mine & busy].mean() - fails[mine & ~busy].mean() for mine in (version == 0, version == 1)
        ]
        weights = [
            (mine & busy).sum() * (mine & ~busy).sum() / mine.sum() for mine in (version == 0, version == 1)
        ]
        assert one.reading.value == (pytest.approx(np.average(gaps, weights=weights)) if by_load else 0)


def test_joined_tables_know_their_policies():
    a, b = (_log([True], [0]) for _ in range(2))
    a[0].model, b[0].model, b[0].policy_version = "m", "m", 7
    both = joined(tabulate(a), tabulate([*b, *_log([True], [0])]))
    assert (both.policies, both.policy.tolist()) == (["m", "m 7"], [0, 1, -1])

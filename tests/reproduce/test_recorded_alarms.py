"""All recorded runs give the alarms and verdicts that reproduce/recorded_alarms.json has, and a change of any of them is seen."""

from __future__ import annotations

import json

import pytest
from reproduce.recorded_alarms import ALARMS, STORES, alarms_of, differences, recorded_runs


@pytest.fixture(scope="module")
def before():
    return json.loads(ALARMS.read_text())


@pytest.mark.parametrize("store", STORES)
def test_recorded_runs_give_the_same_alarms(store, before):
    now = {run: alarms_of(folder) for run, folder in recorded_runs([store]).items()}
    assert now.keys() == {run for run in before if run.startswith(f"{store}/")}
    assert differences(before, now) == []


def test_every_change_is_a_line(before):
    run, summary = next((run, summary) for run, summary in before.items() if len(summary["shown"]) > 1)
    first, *rest = summary["shown"]
    for changed, expected in (
        ({"verdict": "calm"}, "the verdict was"),
        ({"shown": rest}, "shown alarm lost"),
        ({"replayed": [*summary["replayed"], "kl_leap 9"]}, "replayed alarm new: kl_leap 9"),
        ({"shown": [*rest, first]}, "in another order"),
    ):
        assert [expected in line for line in differences(before, {run: {**summary, **changed}})] == [True]
    assert differences(before, {"bank/unknown-s0": summary}) == [
        "bank/unknown-s0: not in recorded_alarms.json"
    ]

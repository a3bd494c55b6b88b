"""Our numbers in the peers' names: what is handed on, what is not."""

from __future__ import annotations

import math

import pytest
from benchmarks.peers.families import RULES, SCENARIOS
from benchmarks.peers.translate import (
    FROM_PEER,
    PEERS,
    TO_PEER,
    rldoctor_rows,
    rlprobe_steps,
    rlwatch_calls,
    to_ours,
    untaken,
)

from trimtab.catalog.trainer_metrics import METRIC_NAMES

NAN = float("nan")


@pytest.mark.parametrize("peer", PEERS)
def test_the_table_uses_our_vocabulary_and_can_be_read_backwards(peer: str) -> None:
    assert set(TO_PEER[peer]) <= set(METRIC_NAMES)
    assert len(FROM_PEER[peer]) == len(TO_PEER[peer])


def test_none_is_left_out_and_nan_is_handed_on() -> None:
    rows = rldoctor_rows([5, 6], {"kl": [None, 0.5], "grad_norm": [NAN, 1.0], "policy_kl": [1.0, 1.0]})
    assert set(rows[0]) == {"step", "grad_norm"}
    assert math.isnan(rows[0]["grad_norm"])
    assert rows[1] == {"step": 6, "kl": 0.5, "grad_norm": 1.0}


def test_rlprobe_gets_the_spread_under_both_names_and_counts_of_what_is_not_finite() -> None:
    rows = rlprobe_steps(
        [0, 1], {"reward_std": [0.3, 0.2], "grad_norm": [1.0, float("inf")], "loss": [0.1, NAN]}
    )
    assert rows[0] == {
        "step": 0, "group_reward_std_mean": 0.3, "reward_std": 0.3, "grad_norm": 1.0, "loss": 0.1,
        "nan_count": 0, "inf_count": 0,
    }  # fmt: skip
    assert (rows[1]["nan_count"], rows[1]["inf_count"]) == (1, 1)


def test_rlwatch_gets_what_its_log_step_looks_at() -> None:
    assert rlwatch_calls([7], {"kl": [0.1], "length": [100.0]}) == [{"step": 7, "kl_divergence": 0.1}]
    assert untaken("rlwatch", {"kl": [0.1], "length": [100.0]}) == ["length"]


def test_a_series_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="'kl' has 1 entries for 2 steps"):
        rldoctor_rows([0, 1], {"kl": [0.1]})


def test_rows_of_a_peer_come_back_in_our_names_and_the_rest_is_listed() -> None:
    rows = [
        {"step": 0, "kl": 0.1, "rewards/format/mean": 1.0, "odd": 3.0},
        {"step": 1, "kl": 0.2, "eval/accuracy": 0.5},
    ]
    steps, series, unmapped = to_ours("rldoctor", rows)
    assert steps == [0, 1]
    assert series == {"kl": [0.1, 0.2], "held_out_reward": [None, 0.5], "reward_part:format": [1.0, None]}
    assert unmapped == ["odd"]
    assert rldoctor_rows(steps, series) == [
        {"step": 0, "kl": 0.1, "rewards/format/mean": 1.0},
        {"step": 1, "kl": 0.2, "eval/accuracy": 0.5},
    ]


def test_every_scenario_has_a_rule_that_speaks_for_it() -> None:
    for peer, scenarios in SCENARIOS.items():
        spoken = {family for families in RULES[peer].values() for family in families}
        assert set(scenarios.values()) - {"healthy"} <= spoken

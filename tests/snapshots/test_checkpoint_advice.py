"""Advice on checkpoints: noise, alarms, reward hacking, and what is missing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trimtab import RunError
from trimtab.snapshots.checkpoint_advice import CheckpointEvidence, advise_checkpoint


def run_of(rewards, drifts, alarms=None, prompts=None, error=0.01):
    return [
        CheckpointEvidence(
            10 * i,
            reward,
            error,
            () if prompts is None else tuple(prompts[i]),
            drift,
            ("kl_surge",) if alarms and alarms[i] else (),
        )
        for i, (reward, drift) in enumerate(zip(rewards, drifts, strict=True))
    ]


def test_a_healthy_run_keeps_a_late_checkpoint():
    advice = advise_checkpoint(run_of([0.2, 0.5, 0.7, 0.8, 0.9], [0.0, 0.1, 0.15, 0.18, 0.2]))
    assert advice.step == 40
    assert advice.sentence.startswith("Keep the checkpoint of step 40: reward")


def test_a_reward_that_rises_for_much_drift_is_not_followed():
    """0.5 of reward for 0.15 nats, then 0.06 more for 0.45: the price of a nat is 0.3 of 0.56 / 0.6."""
    rows = run_of([0.2, 0.6, 0.7, 0.72, 0.76], [0.0, 0.1, 0.15, 0.35, 0.6])
    assert advise_checkpoint(rows).step == 20
    free = [CheckpointEvidence(row.step, row.reward, row.reward_se) for row in rows]
    assert advise_checkpoint(free).step == 40  # without scored transcripts nothing says so


def test_checkpoints_behind_an_alarm_are_left_out():
    rows = run_of([0.2, 0.6, 0.7, 0.8], [0.0, 0.1, 0.12, 0.13], alarms=[0, 0, 0, 1])
    advice = advise_checkpoint(rows)
    assert advice.step == 20
    assert "left out for alarms (kl_surge): 30" in advice.sentence
    everywhere = advise_checkpoint(run_of([0.2, 0.6], [0.0, 0.1], alarms=[1, 1]))
    assert everywhere.step == 10
    assert "alarms speak against every checkpoint" in everywhere.sentence


def test_a_lucky_step_with_a_wide_error_does_not_win():
    rows = [CheckpointEvidence(0, 0.70, 0.01), CheckpointEvidence(10, 0.74, 0.10)]
    advice = advise_checkpoint(rows)
    assert advice.step == 0
    assert advice.alike == (10,)


def test_the_precise_source_counts_most():
    rng = np.random.default_rng(0)
    base = rng.random(200)
    prompts = [np.clip(base + gain, -1, 2) for gain in (0.0, 0.1, 0.2, 0.3)]
    rows = run_of([0.9, 0.2, 0.8, 0.1], [math.nan] * 4, prompts=prompts, error=0.5)
    assert advise_checkpoint(rows).step == 30


def test_without_any_reward_the_last_calm_one_is_kept():
    rows = run_of([math.nan] * 3, [0.0, 0.1, 0.2], alarms=[0, 0, 1])
    advice = advise_checkpoint(rows)
    assert advice.step == 10
    assert "no reward is known" in advice.sentence


def test_fewer_checkpoints_to_choose_from_do_not_change_what_is_known_of_them():
    """Two neighbours alone would be averaged with themselves, and seem far apart."""
    rng = np.random.default_rng(0)
    prompts = [np.clip(rng.normal(level, 0.3, 40), 0, 1) for level in (0.2, 0.5, 0.6, 0.61, 0.61)]
    rows = run_of([math.nan] * 5, [0.0, 0.1, 0.12, 0.13, 0.5], prompts=prompts)
    every, some = advise_checkpoint(rows), advise_checkpoint(rows, among=[20, 30])
    assert some.ranked == every.ranked
    assert some.step in (20, 30)
    assert set(some.alike) == {20, 30} - {some.step}
    assert "40" not in some.sentence


def test_a_checkpoint_without_a_snapshot_keeps_the_rewards_of_the_others_and_pays_for_drift():
    prompts = [[0.1 * i, 0.1 * i + 0.2, 0.3] for i in range(4)]
    rows = run_of([0.1, 0.2, 0.3, 0.4], [0.0, 0.1, 0.2, 0.3], prompts=prompts)
    between = CheckpointEvidence(25, 0.35, 0.01)
    without, mixed = advise_checkpoint(rows), advise_checkpoint([*rows, between])
    by_step = {one.evidence.step: one for one in mixed.ranked}
    assert [by_step[one.evidence.step].score for one in without.ranked] == pytest.approx(
        [one.score for one in without.ranked]
    )
    assert by_step[25].utility < by_step[25].score - by_step[25].score_se


def test_one_checkpoint_alone_has_the_error_of_its_prompts():
    alone = advise_checkpoint([CheckpointEvidence(5, prompt_rewards=(0.0, 1.0, 1.0, 0.0))])
    assert alone.ranked[0].score_se == pytest.approx(np.std([0, 1, 1, 0], ddof=1) / 2)
    never_differs = [
        CheckpointEvidence(5, prompt_rewards=(0.5, 0.5)),
        CheckpointEvidence(6, prompt_rewards=(0.5, 0.5)),
    ]
    assert "±" not in advise_checkpoint(never_differs).sentence


def test_bad_input_is_one_line():
    with pytest.raises(RunError, match="needs at least one"):
        advise_checkpoint([])
    with pytest.raises(RunError, match="each of a step of its own"):
        advise_checkpoint([CheckpointEvidence(3), CheckpointEvidence(3)])
    with pytest.raises(RunError, match="needs at least one"):
        advise_checkpoint([CheckpointEvidence(3)], among=[4])

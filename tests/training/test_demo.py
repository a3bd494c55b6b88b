"""The demo's last lines: every number comes from the runs, and a warning that did not come first is not called one."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("rich")

import trimtab
from trimtab.report.run_view import load_view
from trimtab.training.collapse_event import event_of
from trimtab.training.demo_summary import RunFacts, facts_of, fault_words, guard_words, healthy_words
from trimtab.types import Alarm

FAULT = "Rollouts grow old"


def alarm(step, rule="sequence_ess_fall"):
    return Alarm(rule, step, step - 3, "warning", "post_tool", (), 0.5, "why", "advice", "reference")


def facts(rewards, *steps):
    return RunFacts(tuple(range(1, len(rewards) + 1)), tuple(rewards), tuple(alarm(step) for step in steps))


LOST = [0.8] * 60 + [0.1] * 30
"""Reward lost at step 63: the mean of 8 is then (5 x 0.8 + 3 x 0.1) / 8 = 0.5375, under 0.56."""


def test_a_warning_ahead_is_told_with_its_lead():
    text = fault_words(facts(LOST, 55), FAULT, 50)
    assert text.startswith(
        "Rollouts grow old from step 50 on. First alarm after it: step 55 (sequence_ess_fall, post_tool)."
    )
    assert "Reward lost at step 63" in text
    assert "under 70 % of its best (0.80) for good; 0.10 at the end." in text
    assert text.endswith("The warning came 8 steps ahead.")
    assert fault_words(facts(LOST, 62), FAULT, 50).endswith("The warning came 1 step ahead.")


@pytest.mark.parametrize(
    ("steps", "ending"),
    [
        ((), "The warning did not come first."),
        ((63,), "The warning did not come first."),
        ((70,), "The warning did not come first."),
        ((40,), "The warning did not come first."),  # before the fault: a false alarm is no warning
        ((40, 60), "The warning came 3 steps ahead."),
    ],
)
def test_a_warning_that_did_not_come_first_is_called_so(steps, ending):
    text = fault_words(facts(LOST, *steps), FAULT, 50)
    assert text.endswith(ending)
    assert ("No alarm came after the fault." in text) == (not [step for step in steps if step >= 50])
    assert ("A false alarm came before, at step 40" in text) == (40 in steps)


def test_a_reward_that_was_not_lost_or_lost_too_early():
    assert fault_words(facts([0.8] * 90, 55), FAULT, 50).endswith("The reward was not lost: 0.80 at the end.")
    early = fault_words(facts(LOST, 61), FAULT, 70)
    assert early.endswith("It was lost before the fault came, so this run shows nothing of a warning.")


def test_the_run_without_a_fault():
    assert healthy_words(facts([0.8] * 90)) == "No fault: reward 0.80 at the end; no alarm."
    one = "No fault: reward 0.80 at the end; 1 false alarm at step 20 (sequence_ess_fall, post_tool)."
    assert healthy_words(facts([0.8] * 90, 20)) == one
    assert "2 false alarms, the first at step 20" in healthy_words(facts([0.8] * 90, 20, 30))
    assert "the reward was lost all the same, at step 63" in healthy_words(facts(LOST))


def action(step, name="set_lever", **parameters):
    incident = {"since": 50, "cause": "stale rollouts", "rules": ["sequence_ess_fall"], "evidence": []}
    lever = {"lever": "max_lag", "slice": "all", "before": float("inf"), "after": 1.0}
    row = {"step": step, "action": name, "policy": "bound_staleness", "note": "", "failure": ""}
    return {**row, "dry_run": False, "incident": incident, **lever, **parameters}


def test_what_the_guard_did_is_told_with_its_outcome():
    kept = guard_words(
        facts([0.8] * 90, 55), [action(56), action(86, "undo", before=1.0, after=float("inf"))]
    )
    assert kept[0] == "  Its guard took 2 actions, and the reward was kept:"
    assert kept[1].split() == (
        [
            "step",
            "56",
            "max_lag",
            "none",
            "->",
            "1:",
            "bound_staleness,",
            "stale",
            "rollouts",
            "since",
            "step",
            "50",
        ]
    )
    assert "undo: max_lag 1 -> none" in kept[2]
    assert guard_words(facts(LOST, 55), [action(56)])[0] == (
        "  Its guard took 1 action, and the reward was NOT saved:"
    )
    assert guard_words(facts(LOST, 55), []) == ["  Its guard did nothing."]
    stopped = guard_words(facts([0.8] * 70, 55), [action(56), action(70, "stop")])
    assert stopped[0] == "  Its guard took 2 actions, and it stopped the run at step 70:"


def test_facts_are_read_from_the_folder(tmp_path):
    """A run of 40 steps whose policy leaves its rollouts from step 25 on, and whose reward falls at step 33."""
    rng = np.random.default_rng(0)
    mask, rewards = np.ones((48, 20), bool), [0.8] * 32 + [0.0] * 8
    with trimtab.open_run(tmp_path / "run") as run:
        for step, reward in enumerate(rewards, start=1):
            logp = -rng.exponential(0.5, mask.shape)
            scale = 0.02 if step < 25 else 0.8
            run.observe(
                loss_mask=mask,
                logprobs=logp,
                old_logprobs=logp,
                rollout_logprobs=logp * rng.lognormal(0, scale, mask.shape),
            )
            run.flush(step, {"reward": reward})
    facts = facts_of(load_view(tmp_path / "run"))
    assert facts.steps == tuple(range(1, 41))
    assert facts.rewards == tuple(rewards)
    assert facts.event == event_of(rewards)
    assert facts.event.step == 35
    assert 25 <= facts.first_alarm(20).step < 35
    assert facts.first_alarm(20).severity in ("warning", "critical")

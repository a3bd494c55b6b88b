"""The guard step by step: who wins a lever, single updates, escalation to its end, and a resume."""

from __future__ import annotations

import json
import math

import msgspec
import pytest

from tests.guard.troubled_run import Kept, Levers
from trimtab.guard import Guard, GuardOptions, guard_options
from trimtab.types import Alarm, Cause, Incident, Rollback, SetLever, SkipUpdate, Stop, Undo, Warn


def alarm(
    step: int, severity: str = "warning", *, rule: str = "kl_high", cleared: int | None = None
) -> Alarm:
    return Alarm(rule, step, step, severity, "post_tool", (), 1.0, "", "", "", cleared=cleared)


def trouble(*alarms: Alarm, cause: str = "updates too large") -> Incident:
    severity = "critical" if any(one.severity == "critical" for one in alarms) else "warning"
    causes = (Cause(cause, ("evidence",), (), ""),) if cause else ()
    return Incident(alarms[0].since, "post_tool", severity, alarms, causes)


def options(**changes) -> GuardOptions:
    return msgspec.structs.replace(guard_options("recommended"), **changes)


def policies(**changes):
    return msgspec.structs.replace(guard_options("recommended").policies, **changes)


def test_the_tighter_of_two_requests_counts_and_the_other_one_after_it() -> None:
    """ESS asks for 0.5 of the rate, the backoff for 0.3; the backoff recovers first."""
    ess = msgspec.structs.replace(guard_options("recommended").policies.ess_scaled_step, enabled=True)
    controls = Levers()
    guard = Guard(options(confirm_steps=1, recover_after=3, policies=policies(ess_scaled_step=ess)), controls)
    guard.before_update(1, 1.0, ess_frac=0.25)
    assert controls.get("lr_scale") == 0.5
    one = alarm(1)
    assert [a.after for a in guard.after_step(1, [trouble(one)], False)] == [0.5, pytest.approx(0.15)]
    cleared = trouble(alarm(1, cleared=2))
    done = [action for step in range(2, 20) for action in guard.after_step(step, [cleared], True)]
    assert [(type(a), pytest.approx(a.after)) for a in done] == [
        (SetLever, 0.3),
        (SetLever, 0.5),
        (Undo, 0.5),
    ]
    assert "ess_scaled_step asks for a tighter value" in done[1].note or done[1].after == 0.5
    assert controls.get("lr_scale") == 0.5


def test_updates_without_a_finite_gradient_and_spikes_are_left_out_and_a_new_level_is_not() -> None:
    guard = Guard(guard_options("recommended"), Levers())
    assert not guard.before_update(0, math.nan)
    assert not guard.before_update(0, math.inf)
    norms = [1.0 + 0.1 * (i % 5) for i in range(70)]
    assert all(guard.before_update(i, norm) for i, norm in enumerate(norms))
    assert not guard.before_update(70, 50.0)
    assert guard.before_update(71, 1.2)
    skipped = [a for a in guard.after_step(71, [], True) if isinstance(a, SkipUpdate)]
    assert [(math.isfinite(a.grad_norm), a.because.causes[0].name) for a in skipped] == [
        (False, "gradient that is not finite"), (False, "gradient that is not finite"), (True, "exploding gradient"),
    ]  # fmt: skip
    in_row = [guard.before_update(72 + i, 50.0) for i in range(20)]
    assert in_row.index(True) == guard.options.policies.skip_update.max_in_row
    assert all(in_row[in_row.index(True) :])


def test_observing_leaves_out_no_update() -> None:
    guard = Guard(guard_options("observe"))
    assert guard.before_update(0, math.nan)
    assert [type(a) for a in guard.after_step(0, [], True)] == [SkipUpdate]


def test_escalation_softens_rolls_back_twice_further_each_time_and_stops() -> None:
    controls, kept = Levers(), Kept()
    kept.steps = {20: "stable", 40: "stable", 60: "stable", 65: "stable"}
    guard = Guard(options(cool_down=2, soften_times=1), controls, kept)
    alarms, done = [], []
    for step in range(70, 82):
        if step % 2 == 0:
            alarms.append(alarm(step, rule=f"kl_high_{step}"))
        done += [(step, action) for action in guard.after_step(step, [trouble(*alarms)], False)]
        if controls.stopped:
            break
    assert [type(action) for _, action in done] == [SetLever, Rollback, SetLever, Rollback, SetLever, Stop]
    assert kept.restored == [40, 20], "states of the ten steps before the onset are not trusted"
    rates = [action.after for _, action in done if isinstance(action, SetLever)]
    assert rates == [pytest.approx(0.3), pytest.approx(0.3), pytest.approx(0.25)]
    assert controls.stopped
    assert "2 rollbacks for updates too large did not help" in done[-1][1].note


def test_a_critical_incident_is_not_waited_for_and_no_state_is_a_warning() -> None:
    guard = Guard(options(cool_down=1, confirm_steps=5), Levers())
    first = alarm(70, "critical")
    assert [type(a) for a in guard.after_step(70, [trouble(first)], False)] == [SetLever]
    second = alarm(72, "critical", rule="reward_break")
    done = guard.after_step(72, [trouble(first, second)], False)
    assert [type(a) for a in done] == [Warn]
    assert "no stable states are kept" in done[0].note


def test_alarms_that_no_lever_answers_are_left_alone() -> None:
    guard = Guard(options(confirm_steps=1), Levers())
    assert guard.after_step(99, [trouble(alarm(99, rule="throughput_rot"), cause="")], True) == []
    warned = guard.after_step(100, [trouble(alarm(100), cause=EMPTY)], False) if EMPTY else []
    assert all(isinstance(a, Warn) for a in warned)


EMPTY = next((cause for cause, row in guard_options("recommended").table.items() if not row), "")


def test_the_resume_gate_stops_where_the_sampler_was_not_resynchronised() -> None:
    controls, kept = Levers(), Kept()
    guard = Guard(
        options(cool_down=1, soften_times=1, states=msgspec.structs.replace(options().states, every=1)),
        controls,
        kept,
    )
    for step in range(5):
        guard.after_step(step, [], True, {"mismatch_kl": 0.01})
    first, second = alarm(6), alarm(9, "critical", rule="reward_break")
    for step, alarms in ((6, [first]), (7, [first]), (9, [first, second])):
        done = guard.after_step(step, [trouble(*alarms)], False, {"mismatch_kl": 0.01})
    assert isinstance(done[0], Rollback)
    assert not controls.stopped
    stop = guard.after_step(10, [], True, {"mismatch_kl": 0.05})
    assert [type(a) for a in stop] == [Stop]
    assert "mismatch KL 0.05 nats, at most 0.02 expected" in stop[0].note


def test_a_coefficient_follows_the_kl_and_a_resumed_guard_goes_on_as_it_was() -> None:
    def steps(guard: Guard, first: int, last: int) -> list[str]:
        known = trouble(alarm(10), cause="a proxy of the reward is learnt")
        return [
            repr(action)
            for step in range(first, last)
            for action in guard.after_step(step, [known], False, {"kl": 1.0, "kl/post_tool": 0.5})
        ]

    whole, parted = Guard(options(), Levers()), Guard(options(), Levers())
    expected = steps(whole, 10, 40)
    begun = steps(parted, 10, 20)
    state = json.loads(json.dumps(parted.state_dict()))
    controls = Levers()
    resumed = Guard(options(), controls)
    resumed.load_state_dict(state)
    assert controls.get("kl_coef", "post_tool") == parted.controls.get("kl_coef", "post_tool") > 0.02
    rest = steps(resumed, 20, 40)
    count = [text.replace("evidence_for=('evidence',), ", "") for text in expected]
    assert len(begun) + len(rest) == len(count)
    assert resumed.controls.values == whole.controls.values


def test_a_slow_alarm_does_not_send_a_rollback_further_back_than_the_incident() -> None:
    """It dates from step 12, and the incident, as incidents are dated, from 70."""
    controls, kept = Levers(), Kept()
    kept.steps = dict.fromkeys((5, 40, 55, 65), "stable")
    guard = Guard(options(cool_down=1, soften_times=1, confirm_steps=1), controls, kept)
    slow = Alarm("drift_growth", 71, 12, "warning", "post_tool", (), 1.0, "", "", "")
    guard.after_step(71, [trouble(alarm(70), slow)], False)
    worse = trouble(alarm(70), slow, alarm(73, "critical", rule="reward_break"))
    assert [type(a) for a in guard.after_step(73, [worse], False)] == [Rollback, SetLever]
    assert kept.restored == [55]


def test_a_state_from_within_the_margin_is_better_than_none() -> None:
    controls, kept = Levers(), Kept()
    kept.steps = {65: "stable"}
    guard = Guard(options(cool_down=1, soften_times=1, confirm_steps=1), controls, kept)
    guard.after_step(71, [trouble(alarm(70))], False)
    guard.after_step(73, [trouble(alarm(70), alarm(73, "critical", rule="reward_break"))], False)
    assert kept.restored == [65]


def test_states_from_shortly_before_an_incident_until_its_end_are_doubted() -> None:
    """They were kept as stable, but for the ring only those from before the trouble count."""
    kept = Kept()
    guard = Guard(options(), Levers(), kept)
    open_one, closed = trouble(alarm(70)), trouble(alarm(70, cleared=80))
    guard.after_step(70, [open_one], False)
    assert kept.suspected == [], "not confirmed yet"
    for step in range(71, 80):
        guard.after_step(step, [open_one], False)
    assert kept.suspected == [(60, None)]
    state = json.loads(json.dumps(guard.state_dict()))
    resumed = Guard(options(), Levers(), kept)
    resumed.load_state_dict(state)
    resumed.after_step(80, [closed], True)
    assert kept.suspected == [(60, None), (60, 80)]
    resumed.after_step(81, [closed], True)
    assert len(kept.suspected) == 2


def test_a_lever_is_not_turned_back_while_the_evidence_lasts() -> None:
    """The alarm clears at step 72, for it compares with a record that moves; the fault goes on until 120."""
    controls = Levers()
    guard = Guard(options(confirm_steps=1), controls)
    asked: list[Incident] = []

    def lasts(step: int):
        return lambda incident: asked.append(incident) or step < 120

    guard.after_step(70, [trouble(alarm(70))], False, None, lasts(70))
    assert controls.get("lr_scale") == pytest.approx(0.3)
    closed = trouble(alarm(70, cleared=72))
    changed = [s for s in range(72, 160) if guard.after_step(s, [closed], True, None, lasts(s))]
    assert changed == [120, 150]
    assert {incident.since for incident in asked} == {70}


def test_the_age_of_rollouts_is_given_back_by_doubling() -> None:
    controls = Levers()
    guard = Guard(options(confirm_steps=1), controls)
    guard.after_step(70, [trouble(alarm(70), cause="stale rollouts")], False)
    closed = trouble(alarm(70, cleared=72), cause="stale rollouts")
    values = [a.after for s in range(72, 200) for a in guard.after_step(s, [closed], True)]
    assert values == [2.0, 4.0, math.inf]


@pytest.mark.parametrize(("then", "kinds"), [(0.5, [Rollback, SetLever]), (0.6, [])])
def test_a_reward_that_falls_in_spite_of_a_softer_action_is_rolled_back(then, kinds) -> None:
    """Under 70 % of 0.8 in the mean of 8 steps; no further alarm comes, for the policy is broken for good."""
    controls, kept = Levers(), Kept()
    kept.steps = {40: "stable"}
    guard = Guard(options(), controls, kept)
    for step in range(40, 70):
        guard.after_step(step, [], True, {"reward": 0.8})
    done = [
        (step, type(action))
        for step in range(70, 89)
        for action in guard.after_step(step, [trouble(alarm(70))], False, {"reward": then})
    ]
    assert done == [(71, SetLever), *((81, kind) for kind in kinds)]
    assert kept.restored == [59] * bool(kinds)


@pytest.mark.parametrize("resumed", [False, True])
def test_a_reward_that_went_with_an_incident_is_rolled_back_once_though_its_alarms_cleared(resumed) -> None:
    controls, kept = Levers(), Kept()
    guard = Guard(options(), controls, kept)
    for step in range(40, 70):
        guard.after_step(step, [], True, {"reward": 0.8})
    done = []
    for step in range(70, 130):
        one = trouble(alarm(70, cleared=75 if step >= 75 else None), cause="stale rollouts")
        reward = 0.5 if step < 100 else 0.8
        done += [(step, type(a)) for a in guard.after_step(step, [one], False, {"reward": reward})]
        if resumed and step == 78:
            state = json.loads(json.dumps(guard.state_dict()))
            guard = Guard(options(), controls, kept)
            guard.load_state_dict(state)
    assert done[:3] == [(71, SetLever), (81, Rollback), (81, SetLever)]
    assert kept.restored == [59]
    assert {kind for _, kind in done[3:]} <= {SetLever, Undo}, "and only back from here on"

"""The closed loop: levers, remedies and restores of the lean loop, the guard's arm, and what counts as saved."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import reproduce.closed_loop as command
import torch
from reproduce.collapse_bank.loop import Loop
from reproduce.collapse_bank.regimes import HEALTHY
from reproduce.collapse_bank.training import start_weights
from reproduce.guard_bank.arms import ArmRun, Branches, fallen_step, is_lost, replayed, shifted
from reproduce.guard_bank.causes import (
    ALL_ARMS,
    CAUSES,
    HEALTHY_ARMS,
    HORIZON,
    LAST,
    TEST_SEEDS,
    TUNING_SEEDS,
    regime_of,
)
from reproduce.guard_bank.figures import MAIN, Bank, figures_of, sign_test, table_of
from reproduce.guard_bank.guarded import guarded
from reproduce.guard_bank.lean_controls import LeanControls, MemoryRing
from reproduce.guard_bank.lever_loop import LeverLoop
from reproduce.guard_bank.records import arm_file, fill_raw, load_arms, pack_arms, read_arm, write_arm
from reproduce.guard_bank.remedies import REMEDIES, EssRate, MomentumReset, Remedy, StepSkipping
from reproduce.guard_bank.trail import Trail

from trimtab.errors import RunError
from trimtab.guard import guard_options
from trimtab.objectives.corrections import tis

SEED, FAULT = 101, 5


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def prefix():
    """Four watched steps before a fault at step 5."""
    trail, loop = Trail(), LeverLoop(start_weights(), HEALTHY, SEED)
    loop.watched = True
    trail.go_on(loop, FAULT - 1)
    return trail


@pytest.fixture
def start(prefix):
    return prefix.loop_at(FAULT - 1)


def same(one, other):
    return all(torch.equal(value, other.weights[name]) for name, value in one.weights.items())


def test_with_no_lever_turned_it_trains_as_the_bank_does(prefix):
    """Watched and unwatched steps leave the weights of the collapse bank's own loop, bit by bit."""
    bank, lean = Loop(start_weights(), HEALTHY, SEED), LeverLoop(start_weights(), HEALTHY, SEED)
    for step in range(FAULT - 1):
        batch, done = bank.step(), lean.train()
        assert (batch.reward, batch.numbers["grad_norm"]) == (done.reward, done.grad_norm)
        np.testing.assert_array_equal(batch.tokens["logprobs"], prefix.batches[step].tokens["logprobs"])
    assert same(bank, lean)
    assert same(bank, prefix.loop_at(FAULT - 1))


def test_a_trail_is_begun_again_at_any_step(prefix):
    """Steps 1 to 3 are trained anew from the copy of step 0."""
    assert sorted(prefix.copies) == [0, FAULT - 1]
    loop = prefix.loop_at(2)
    assert [loop.train().reward, loop.train().reward] == prefix.rewards[2:]
    assert same(loop, prefix.loop_at(4))


def test_max_lag_drops_what_is_too_old(start):
    stale = start.branch(regime_of("stale_fault"))
    for _ in range(4):
        stale.train()
    ages = [stale.steps_done - batch.version for batch in stale._waiting]
    assert max(ages) == 4
    stale.setup.levers["max_lag"] = 1.0
    taken = stale._take()
    assert stale.steps_done - taken.version <= 1
    assert stale.setup.dropped == sum(age > 1 for age in ages) > 0
    assert len(stale._waiting) == 1


def test_levers_on_rate_and_weights_reach_the_update(start):
    still, masked, free = (start.branch(HEALTHY) for _ in range(3))
    still.setup.levers["lr_scale"] = 0.0
    masked.setup.levers["sequence_is_cap"] = 1.00001
    norms = [loop.train().grad_norm for loop in (still, masked, free)]
    assert same(still, start)
    assert (
        norms[1] < 0.2 * norms[0]
    )  # every rollout is one update old, so that hardly a sequence has a weight of 1
    assert norms[0] == norms[2] > 0
    assert not same(free, start)


class TokenTruncation(Remedy):
    def importance(self, ratio, own):
        return tis(ratio, own, cap=2.0).weights


def test_a_token_cap_weighs_and_a_penalty_pulls(start):
    """Oracle of the cap: token TIS of `objectives`. The penalty is zero at the reference itself."""
    capped, pulled, free, first, truncated = (start.branch(HEALTHY) for _ in range(5))
    capped.setup.levers["token_is_cap"] = 2.0
    pulled.setup.levers["kl_coef"] = 10.0
    truncated.setup.remedy = TokenTruncation()
    norms = [loop.train().grad_norm for loop in (capped, pulled, free, truncated)]
    assert norms[0] == pytest.approx(norms[3], rel=1e-5)
    assert abs(norms[0] / norms[2] - 1) > 0.01
    assert norms[1] > 2 * norms[2]
    first.reference = {name: value.detach().clone() for name, value in first.weights.items()}
    first.setup.levers["kl_coef"] = 10.0
    assert first.train().grad_norm == pytest.approx(norms[2], rel=1e-4)


def test_a_restore_returns_weights_and_moments_and_draws_other_batches(prefix, start):
    saved = prefix.copies[0]
    start.restore(saved)
    assert same(start, saved)
    assert start.optimizer.state_dict()["state"] == saved.optimizer.state_dict()["state"] == {}
    assert start.steps_done == FAULT - 1
    first = [e.task.prompt for e in start._take().episodes]
    again = [e.task.prompt for e in start.branch(HEALTHY)._take().episodes]
    start.draws = SEED
    start._waiting.clear()
    assert first != [e.task.prompt for e in start._take().episodes]
    assert len(first) == len(again) == 48


def test_a_skipped_update_leaves_the_weights(start):
    loop = start.branch(HEALTHY)
    loop.setup.before_update = lambda step, loss, norm: step == FAULT
    loop.train()
    assert same(loop, start)
    assert loop.setup.skipped == 1
    loop.train()
    assert not same(loop, start)


def test_published_remedies_do_what_their_authors_say():
    skipping = StepSkipping()
    values = [1.0, 1.2] * 31
    skipping.prepare(values, values)
    assert not skipping.skips(1.0, 50.0)  # 62 values: no judgement before 64
    quiet = StepSkipping()
    more = [*values, 1.0, 1.2]
    quiet.prepare(more, more)
    limit = np.mean([1.0, 1.2] * 32) + 6 * np.std([1.0, 1.2] * 32, ddof=1)
    assert not quiet.skips(1.0, limit - 1e-6)
    assert quiet.skips(1.0, 50.0)
    assert quiet.skips(math.nan, 1.0)
    own = torch.ones(2, 2, dtype=torch.bool)
    now, mu = torch.tensor([[-1.0, -1.0], [-1.0, -1.0]]), torch.tensor([[-1.0, -1.0], [-1.5, -1.5]])
    weights = np.array([1.0, math.e])
    ess = weights.sum() ** 2 / (2 * (weights**2).sum())
    assert EssRate().rate_factor(1, now, mu, own) == pytest.approx(math.sqrt(ess))
    ratio = now - mu
    truncated, masked = REMEDIES["sequence_tis"](), REMEDIES["sequence_masking"]()
    assert truncated.importance(ratio, own).tolist() == [[1.0, 1.0], [2.0, 2.0]]  # e is truncated at 2
    assert masked.importance(ratio, own).tolist() == [[1.0, 1.0], [0.0, 0.0]]


def test_momentum_is_reset_and_spikes_are_clipped():
    parameter = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.AdamW([parameter], lr=0.1)
    parameter.grad = torch.ones(2)
    optimizer.step()
    remedy = MomentumReset()
    remedy.on_gradients(optimizer, 70)
    assert not optimizer.state
    factors = [remedy.rate_factor(step, parameter, parameter, parameter) for step in (70, 77, 84, 85)]
    assert factors == pytest.approx([0.5 * (1 - math.cos(math.pi * k / 15)) for k in (1, 8, 15)] + [1.0])
    optimizer.step()  # second moments are 0.001
    parameter.grad = torch.tensor([1e3, -1.0])
    remedy.on_gradients(optimizer, 71)
    assert parameter.grad.tolist() == pytest.approx([math.sqrt(5.0), -1.0], rel=1e-4)


def test_the_ring_keeps_the_last_stable_state(prefix):
    controls = LeanControls(lambda: None)
    ring = MemoryRing(controls, 2, dict.fromkeys(range(9), prefix.copies[0]))
    for step, verdict in ((1, "stable"), (2, "stable"), (3, "incident"), (4, "unsettled")):
        ring.keep(step, verdict, controls)
    assert [(step, verdict) for step, verdict, _ in ring.states] == [(2, "stable"), (4, "unsettled")]
    assert (ring.last_stable(9), ring.last_stable(2)) == (2, None)
    controls.loop = prefix.loop_at(4)
    ring.restore(2, controls)
    assert same(controls.loop, prefix.copies[0])
    assert [step for step, _, _ in ring.states] == [2]


def options(**skip):
    """The recommended guard with another bound on single updates."""
    base = guard_options("recommended")
    policies = msgspec.structs.replace(
        base.policies, skip_update=msgspec.structs.replace(base.policies.skip_update, **skip)
    )
    return msgspec.structs.replace(base, policies=policies)


def test_a_guard_that_does_nothing_leaves_the_run_as_it_is(prefix, tmp_path):
    run = guarded(ArmRun("stale_fault", "guard", SEED, FAULT), prefix, FAULT + 2, options(), tmp_path / "run")
    none = prefix.loop_at(FAULT - 1).branch(regime_of("stale_fault"))
    assert run.rewards == [none.train().reward for _ in range(3)]
    assert (run.actions, run.skipped) == ([], 0)


def test_an_action_before_the_fault_leaves_the_shared_path(prefix, tmp_path):
    """Step 3 is shown with a spike of the gradient norm: the guard skips it, and the run is trained for itself from there."""
    batches = list(prefix.batches)
    batches[2] = replace(batches[2], numbers={**batches[2].numbers, "grad_norm": 1e3})
    shown = replace(prefix, batches=batches)
    run = guarded(
        ArmRun("stale_fault", "guard", SEED, FAULT),
        shown,
        FAULT + 1,
        options(ready=2, sigmas=50.0),
        tmp_path / "run",
    )
    assert [(row["step"], row["action"], row["grad_norm"]) for row in run.actions] == [
        (3, "skip_update", 1e3)
    ]
    loop = prefix.loop_at(2)
    loop.setup.before_update = lambda step, loss, norm: step == 3
    loop.train()
    loop.train()
    broken = loop.branch(regime_of("stale_fault"))
    assert run.rewards == [broken.train().reward for _ in range(2)]
    assert run.rewards != [prefix.loop_at(FAULT - 1).train().reward, run.rewards[1]]


def test_actions_are_replayed_at_other_steps(prefix):
    none = Trail()
    none.go_on(prefix.loop_at(FAULT - 1).branch(regime_of("rate_fault")), FAULT + 5)
    at = Branches("rate_fault", SEED, FAULT, FAULT + 5, prefix, none)
    rows = [{"action": "set_lever", "lever": "lr_scale", "slice": "all", "after": 0.0, "step": 1}]
    run = replayed(at, "placebo", shifted(rows, FAULT + 2))
    frozen = none.loop_at(FAULT + 2)
    frozen.setup.levers["lr_scale"] = 0.0
    assert run.rewards == none.rewards[:3] + [frozen.train().reward for _ in range(3)]
    back = replayed(at, "delayed", [{"action": "rollback", "to_step": 2, "step": FAULT + 1}])
    loop = none.loop_at(FAULT + 1)
    loop.restore(prefix.copies[0])
    assert back.rewards[2:] == [loop.train().reward for _ in range(4)]
    ended = replayed(at, "delayed", [{"action": "stop", "step": FAULT + 3}])
    assert (ended.stopped, ended.ended_early, len(ended.rewards)) == (FAULT + 3, False, 4)
    assert replayed(at, "placebo", []).rewards == none.rewards


def test_a_person_sees_the_fall_when_a_fifth_is_lost():
    prefix, none = Trail([1.0] * 20), Trail([0.0] * 20)
    at = Branches("stale_fault", 1, 21, 40, prefix, none)
    assert fallen_step(at) == 22  # 8-step means 7/8, 6/8
    assert fallen_step(replace(at, none=Trail([1.0] * 20))) is None
    assert is_lost([1.0] * 15 + [0.4] * 30, 1.0)
    assert not is_lost([1.0] * 14 + [0.4] * 30, 1.0)
    assert not is_lost([0.0] * 20 + [0.6] * 30, 1.0)


def record(cause, arm, seed, level, **changes):
    notes = {"collapses": True} if arm == "none" else {}
    run = ArmRun(cause, arm, seed, 70, [0.0] * (HORIZON - LAST) + [level] * LAST, notes=notes)
    return {**run.as_json(), "cpu_s": 1.0, **changes}


def bank_of(levels, **guard):
    """Two seeds with all arms; `levels`: arm -> mean reward at the end, 0.2 where nothing is said."""
    records = []
    for seed in (300, 301):
        records += [record("healthy", arm, seed, 0.8) for arm in HEALTHY_ARMS]
        for cause, fault in CAUSES.items():
            changes = {arm: guard if arm == "guard" else {} for arm in fault.arms}
            records += [record(cause, arm, seed, levels.get(arm, 0.2), **changes[arm]) for arm in fault.arms]
    return records


def test_figures_are_of_complete_seeds_and_runs_that_went_to_their_end():
    back = [
        {"action": "rollback", "to_step": 60, "step": 75},
        {"action": "rollback", "to_step": 71, "step": 90},
    ]
    records = bank_of({"guard": 0.73, "oracle": 0.8, "delayed": 0.71, "low_rate": 0.75}, actions=back)
    assert len(MAIN) == 2
    figures = figures_of(Bank(records))
    assert figures["saved_frac"] == figures["saved_frac_oracle"] == 1.0  # nine tenths of 0.8 are 0.72
    assert figures["saved_frac_delayed"] == figures["saved_frac_placebo"] == figures["saved_frac_none"] == 0.0
    assert figures["saved_frac_lower"] == pytest.approx(0.05 ** (1 / 4))
    assert figures["saved_frac_best_alternative"] == 1.0
    assert figures["restored_before_onset_frac"] == 0.5
    assert (figures["test_seeds"], figures["collapses"], figures["healthy_touched_frac"]) == (2, 4, 0.0)
    missing = [r for r in records if (r["cause"], r["seed"], r["arm"]) != ("rate_fault", 301, "oracle")]
    assert figures_of(Bank(missing))["test_seeds"] == 1
    for changes in ({"stopped": 100}, {"ended_early": True}):
        lost = [{**r, **changes} if r["arm"] == "guard" and r["cause"] != "healthy" else r for r in records]
        assert figures_of(Bank(lost))["saved_frac"] == 0.0
    assert "rate_fault       guard             2/2      0.73" in table_of(Bank(records))
    assert figures_of(Bank([]))["saved_frac"] is None


def test_a_fault_without_a_collapse_is_left_out():
    records = bank_of({"guard": 0.8})
    for run in records:
        if (run["cause"], run["seed"], run["arm"]) == ("stale_fault", 300, "none"):
            run["notes"] = {"collapses": False}
    alone = [r for r in records if (r["cause"], r["seed"]) != ("stale_fault", 300) or r["arm"] == "none"]
    assert figures_of(Bank(alone))["collapses"] == 3


def test_a_warning_touches_nothing_and_a_skip_does():
    for name, expected in (("warn", 0.0), ("skip_update", 0.5)):
        records = bank_of({})
        for run in records:
            if (run["cause"], run["seed"], run["arm"]) == ("healthy", 301, "guard"):
                run["actions"] = [{"action": name, "step": 9}]
        assert figures_of(Bank(records))["healthy_touched_frac"] == expected


def test_the_sign_test_is_exact():
    assert sign_test([True] * 4 + [False], [False] * 5) == pytest.approx(1 / 16)
    assert sign_test([True, False], [False, True]) == pytest.approx(0.75)
    assert sign_test([True], [True]) == 1.0


def test_records_survive_the_archive_and_damage_is_one_line(tmp_path):
    raw, store = tmp_path / "raw", tmp_path / "store"
    for seed in (100, 300):
        run = record("healthy", "none", seed, 0.5)
        write_arm(arm_file(raw, "healthy", seed, "none"), run)
    assert {path.name for path in pack_arms(raw, store, [100, 300])} == {"healthy.zip", "healthy-test.zip"}
    assert [run["seed"] for run in load_arms(store)] == [100, 300]
    fill_raw(store, tmp_path / "again")
    assert read_arm(arm_file(tmp_path / "again", "healthy", 300, "none")) == run
    path = arm_file(raw, "healthy", 100, "none")
    path.write_text(json.dumps({**run, "rewards": None}))
    with pytest.raises(RunError, match=r"none\.json has no 'rewards'"):
        read_arm(path)
    path.write_text("{")
    with pytest.raises(RunError, match="cannot be read"):
        read_arm(path)
    write_arm(path, {**run, "arm": "oracle"})
    with pytest.raises(RunError, match="names the arm"):
        read_arm(path)


def test_test_seeds_wait_for_the_registration(monkeypatch, capsys, tmp_path):
    assert not set(TUNING_SEEDS) & set(TEST_SEEDS)
    monkeypatch.setattr(command, "PAGES", dict.fromkeys(command.PAGES, Path("docs") / "not-there.md"))
    for seed, words in (("300", "wait until docs/not-there.md"), ("200", "neither a tuning seed")):
        monkeypatch.setattr("sys.argv", ["closed_loop.py", "--run", "--seeds", seed, "--raw", str(tmp_path)])
        assert command.main() == 2
        assert words in capsys.readouterr().err


def test_the_quick_run_has_every_arm(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["closed_loop.py", "--quick", "--json"])
    assert command.main() == 0
    printed = capsys.readouterr().out
    for arm in ALL_ARMS:
        assert f"stale_fault 100 {arm}: fault" in printed
    assert json.loads(printed.splitlines()[-1])["figures"]["test_seeds"] is None

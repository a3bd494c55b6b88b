"""VCPO's two remedies and the entropy controls, against closed forms and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.objectives.batches import make, tokens_of
from trimtab.errors import ObjectiveError
from trimtab.objectives.entropy_control import (
    EntropyTarget,
    entropy_bonus,
    select_by_covariance,
    select_high_entropy,
)
from trimtab.objectives.vcpo import WeightSums, learning_rate_scale, off_policy_baseline, sequence_log_weights

INF, NAN = float("inf"), float("nan")


def test_ess_of_raw_row_weights_and_its_merge():
    b = make(0, rows=6)
    logs = sequence_log_weights(b.logprobs, b.rollout, b.mask)
    w = [
        math.exp(sum(float(b.logprobs[x] - b.rollout[x]) for x in tokens_of(b) if x[0] == i))
        for i in range(6)
    ]
    assert logs.exp().tolist() == pytest.approx(w, rel=1e-12)
    expected = sum(w) ** 2 / sum(x * x for x in w) / 6
    assert WeightSums.of(logs).ess_share == pytest.approx(expected, rel=1e-12)
    parts = [WeightSums.of(logs[:2]), WeightSums.of(logs[2:3]), WeightSums.of(logs[3:])]
    for order in ((0, 1, 2), (2, 0, 1)):
        merged = parts[order[0]] + parts[order[1]] + parts[order[2]]
        assert merged.ess_share == pytest.approx(expected, rel=1e-12)
    empty = WeightSums.of(torch.zeros(0))
    assert (empty + parts[0]).ess_share == parts[0].ess_share
    assert (parts[0] + empty).ess_share == parts[0].ess_share
    assert math.isnan(empty.ess_share)
    assert math.isnan((empty + empty).ess_share)


def test_ess_does_not_overflow_and_does_not_hide_nan():
    assert WeightSums.of(torch.tensor([2000.0, 2000.0, -5.0, -5.0])).ess_share == pytest.approx(0.5)
    for bad in (NAN, INF):
        assert math.isnan(WeightSums.of(torch.tensor([0.0, bad])).ess_share)
        assert math.isnan((WeightSums.of(torch.tensor([bad])) + WeightSums.of(torch.zeros(1))).ess_share)
    assert WeightSums.of(torch.tensor([0.0, -INF])).ess_share == 0.5  # a weight of zero is a weight
    assert math.isnan(WeightSums.of(torch.tensor([-INF])).ess_share)
    assert math.isnan(learning_rate_scale(NAN))
    with pytest.raises(ObjectiveError, match="expected"):
        WeightSums.of(torch.zeros(2, 2))


def test_the_scale_of_the_learning_rate():
    assert learning_rate_scale(0.04) == pytest.approx(0.2)
    assert learning_rate_scale(0.04, rule="linear") == 0.04
    assert learning_rate_scale(0.9, base=0.6) == 1.0
    assert learning_rate_scale(0.0, floor=0.05) == 0.05
    for bad in ({"base": 0.0}, {"rule": "cube"}, {"floor": 2.0}):
        with pytest.raises(ObjectiveError):
            learning_rate_scale(0.5, **bad)
    with pytest.raises(ObjectiveError, match=r"lies in \[0, 1\]"):
        learning_rate_scale(1.5)


@pytest.mark.parametrize("seed", range(4))
def test_the_baseline_minimises_the_second_moment_of_the_weighted_gradient(seed):
    rng = np.random.default_rng(seed)
    rewards, logs = rng.normal(size=9), rng.normal(size=9)
    gradients, group = rng.normal(size=(9, 4)), np.array([0, 0, 0, 1, 1, 1, 1, 2, 2])
    norms = (gradients**2).sum(1)
    got = off_policy_baseline(*(torch.tensor(x) for x in (rewards, logs, norms, group)))
    for g in range(3):
        own = group == g

        def moment(b, own=own):
            steps = np.exp(logs[own])[:, None] * gradients[own] * (rewards[own] - b)[:, None]
            return (steps**2).sum()

        best = got[torch.tensor(own)][0].item()
        assert all(moment(best) < moment(best + d) for d in (-1e-4, 1e-4))
        assert len(set(got[torch.tensor(own)].tolist())) == 1


def test_the_baseline_at_the_edges():
    ones, zeros = torch.ones(4), torch.zeros(4)
    rewards = torch.tensor([1.0, 2.0, 3.0, 6.0])
    assert (
        off_policy_baseline(rewards, zeros, ones).tolist() == [3.0] * 4
    )  # on policy with equal norms: the mean
    assert off_policy_baseline(rewards, zeros + 900.0, ones).tolist() == [3.0] * 4
    assert off_policy_baseline(rewards, torch.tensor([0.0, 0.0, 0.0, -INF]), ones).tolist() == [2.0] * 4
    assert off_policy_baseline(rewards, zeros, zeros).isnan().all()
    silent = torch.tensor([1.0, 1.0, 1.0, 0.0])  # a row without gradient has no part, whatever its weight
    for weight in (NAN, INF, 900.0, -INF):
        assert (
            off_policy_baseline(rewards, torch.tensor([0.0, 0.0, 0.0, weight]), silent).tolist() == [2.0] * 4
        )
    assert off_policy_baseline(rewards, torch.tensor([0.0, NAN, 0.0, 0.0]), ones).isnan().all()
    assert off_policy_baseline(zeros[:0], zeros[:0], zeros[:0]).shape == (0,)
    with pytest.raises(ObjectiveError, match="negative"):
        off_policy_baseline(rewards, zeros, -ones)
    with pytest.raises(ObjectiveError, match="log_weights has shape"):
        off_policy_baseline(rewards, zeros[:2], ones)


def test_high_entropy_tokens_are_kept_by_rank_with_ties():
    entropy = torch.tensor([[0.1, 0.5, 0.9, 9.0], [0.5, 0.2, 0.3, 0.4]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    chosen = select_high_entropy(entropy, mask, fraction=0.2)  # ceil(1.4) = 2, tie at 0.5
    assert chosen.keep.tolist() == [[False, True, True, False], [True, False, False, False]]
    assert int(chosen.counts["low_entropy"]["all"]) == 4
    assert torch.equal(select_high_entropy(entropy, mask, fraction=1.0).keep, mask.bool())
    assert not select_high_entropy(entropy, mask, fraction=0.0).keep.any()
    entropy[0, 0] = NAN
    chosen = select_high_entropy(entropy, mask, fraction=0.2)
    assert bool(chosen.keep[0, 0])
    assert math.isnan(chosen.weights[0, 0].item())
    with pytest.raises(ObjectiveError, match="fraction"):
        select_high_entropy(entropy, mask, fraction=1.2)


def test_covariance_selection_drops_what_pulls_entropy_down():
    b = make(3)
    tokens = tokens_of(b)
    logs = np.array([float(b.logprobs[x]) for x in tokens])
    adv = np.array([float(b.advantages[i]) for i, _ in tokens])
    part = (logs - logs.mean()) * (adv - adv.mean())
    number = math.floor(0.2 * len(tokens))
    expected = {tokens[i] for i in np.argsort(part)[-number:]}
    got = select_by_covariance(b.logprobs, b.advantages, b.mask, fraction=0.2)
    assert {x for x in tokens if not got.keep[x]} == expected
    assert int(got.counts["covariance"]["all"]) == number > 0
    assert torch.equal(select_by_covariance(b.logprobs, b.advantages, b.mask, fraction=0.0).keep, b.mask)


def test_a_step_on_what_is_left_costs_less_entropy():
    """A tabular softmax: the exact change of entropy of a REINFORCE step, with and without the dropped token."""
    logits = torch.tensor([2.0, 0.5, 0.0, -1.0], dtype=torch.float64)
    actions, adv = torch.tensor([0, 0, 1, 2, 3, 3]), torch.tensor([2.0, 1.0, -1.0, 0.5, -0.5, -2.0]).double()
    logp = torch.log_softmax(logits, 0)[actions][:, None]
    keep = select_by_covariance(logp, adv, torch.ones(6, 1), fraction=0.34).keep[:, 0]
    assert not keep[0]

    def entropy_after(chosen):
        z = logits.clone().requires_grad_()
        (-(torch.log_softmax(z, 0)[actions] * adv)[chosen].sum()).backward()
        p = torch.softmax(logits - 0.01 * z.grad, 0)
        return float(-(p * p.log()).sum())

    assert entropy_after(keep) > entropy_after(torch.ones(6, dtype=torch.bool))


def test_the_bonus_and_its_controller():
    entropy = torch.tensor([[1.0, 2.0, NAN]], requires_grad=True)
    loss = entropy_bonus(entropy, torch.tensor([[1, 1, 0]]), coefficient=0.1, denominator=2)
    loss.value.backward()
    assert loss.value.item() == pytest.approx(-0.15)
    assert entropy.grad.tolist() == [[pytest.approx(-0.05), pytest.approx(-0.05), 0.0]]
    control = EntropyTarget(target=0.5, rate=0.01, highest=0.03)
    levels = [control.update(h) for h in (0.4, 0.4, NAN, 0.4, 0.4, 0.7, 0.7, 0.4)]
    assert levels == pytest.approx([0.01, 0.02, 0.02, 0.03, 0.03, 0.0, 0.0, 0.02])
    assert control.skipped == 1
    other = EntropyTarget(target=0.5, rate=0.01, highest=0.03)
    other.load_state_dict(control.state_dict())
    assert [other.update(h) for h in (0.4, 0.6)] == [control.update(h) for h in (0.4, 0.6)]
    assert EntropyTarget(target=0.5, rate=0.01, highest=0.1, start=0.05).coefficient == 0.05
    assert EntropyTarget(target=0.5, rate=0.01, highest=0.1, start=0.05).update(0.5) == 0.0  # on target: off
    for bad in ({"target": -1.0}, {"rate": 0.0}, {"start": 1.0}, {"target": NAN}):
        with pytest.raises(ObjectiveError):
            EntropyTarget(**{"target": 0.5, "rate": 0.01, "highest": 0.1, **bad})


def test_the_controller_brings_a_falling_entropy_back():
    """An entropy that falls by itself and rises with the coefficient settles at the target."""
    control, entropy = EntropyTarget(target=0.6, rate=0.002, highest=0.2), 1.0
    trace = []
    for _ in range(600):
        entropy += -0.01 * entropy + 0.2 * control.update(entropy)
        trace.append(entropy)
    assert min(trace) > 0.5
    assert abs(sum(trace[-200:]) / 200 - 0.6) < 0.05

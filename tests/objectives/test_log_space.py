"""Losses where a factor leaves float32 though the loss does not: finite value, finite gradient."""

from __future__ import annotations

import math

import pytest
import torch

from trimtab.objectives import decoupled_ppo, minirl

ONE = torch.ones(1, 1)


@pytest.mark.parametrize("nats", [50.0, 100.0, 1000.0])
@pytest.mark.parametrize("sign", [1.0, -1.0, 0.0])
def test_decoupled_ppo_where_the_policy_has_left_its_anchor(nats, sign):
    """Issue 17.20: log(theta/prox) beyond 88: the ratio overflows and its factor underflows, but not their product."""
    now = (-1.0 * ONE).requires_grad_()
    loss = decoupled_ppo(now, (-1.0 - nats) * ONE, -2.0 * ONE, sign * ONE[0], ONE, denominator=1)
    loss.value.backward()
    want = {1.0: -1.2 * math.exp(1.0 - nats), -1.0: math.e, 0.0: 0.0}[sign]  # pi_theta/pi_behav is e
    assert loss.value.item() == pytest.approx(want, rel=1e-5)
    assert now.grad.item() == pytest.approx(math.e if sign < 0 else 0.0, rel=1e-5)
    now = (-1.0 - nats) * ONE  # the other way: pi_theta far below its anchor
    now.requires_grad_()
    loss = decoupled_ppo(now, -ONE, -2.0 * ONE, sign * ONE[0], ONE, denominator=1)
    loss.value.backward()
    assert math.isfinite(loss.value.item())
    assert math.isfinite(now.grad.item())


def test_a_token_of_probability_zero_that_the_mask_removes_does_not_count():
    """Issue 17.20: A < 0 and staleness 0: MiniRL's own mask removes it, so 0 x -inf must not reach the loss."""
    now = torch.tensor([[-1.0, -math.inf]], requires_grad=True)
    old = torch.tensor([[-1.0, -3.0]])
    loss = minirl(now, old, old, torch.tensor([-1.0]), torch.ones(1, 2), denominator=1)
    loss.value.backward()
    assert loss.value.item() == -1.0
    assert now.grad.tolist() == [[1.0, 0.0]]
    assert int(loss.counts["clipped_low"]["all"]) == 1
    assert int(loss.counts["nonfinite"]["all"]) == 0

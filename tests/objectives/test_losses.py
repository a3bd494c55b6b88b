"""REINFORCE, MiniRL, CISPO, PPO and its kin: hand numbers, loops written from the formulas, gradients, stop-gradients."""

from __future__ import annotations

import math

import pytest
import torch

from tests.objectives.batches import Batch, clamp, make, tokens_of
from trimtab.errors import ObjectiveError
from trimtab.objectives.policy_gradient import cispo, minirl, reinforce
from trimtab.objectives.ppo import dapo, gspo, ppo_clip
from trimtab.objectives.token_slices import Cells

INF, NAN = float("inf"), float("nan")


def gradient(function, batch: Batch, **arguments):
    logp = batch.logprobs.clone().requires_grad_()
    loss = function(logp, **arguments)
    loss.value.backward()
    return loss, logp.grad


def minirl_oracle(b: Batch, d: float, *, low=0.2, high=0.27, cap=5.0, importance=True, clip=True, norm=False):
    """Plain loops over eq. 7 of arXiv 2512.01374: (value, gradient by token)."""
    value, grad = 0.0, torch.zeros_like(b.logprobs)
    for i, t in tokens_of(b):
        a, now, old, mu = (
            float(x) for x in (b.advantages[i], b.logprobs[i, t], b.old[i, t], b.rollout[i, t])
        )
        r, w = math.exp(now - old), min(math.exp(now - mu), cap) if importance else 1.0
        if clip and ((a > 0 and r > 1 + high) or (a < 0 and r < 1 - low)):
            continue
        w /= d * (int(b.mask[i].sum()) if norm else 1)
        value -= w * a * now
        grad[i, t] = -w * a
    return value, grad


@pytest.mark.parametrize(
    "ablation",
    [{}, {"importance": False}, {"clip": False}, {"norm": True}, {"cap": 1.1, "low": 0.05, "high": 0.1}],
)
@pytest.mark.parametrize("seed", range(4))
def test_minirl_equals_the_loop(seed, ablation):
    b = make(seed)
    names = {"norm": "length_norm", "low": "eps_low", "high": "eps_high"}
    arguments = {names.get(k, k): v for k, v in ablation.items()}
    loss, grad = gradient(
        minirl, b, old_logprobs=b.old, rollout_logprobs=b.rollout, advantages=b.advantages, loss_mask=b.mask,
        denominator=5, **arguments,
    )  # fmt: skip
    value, expected = minirl_oracle(b, 5, **ablation)
    assert loss.value.item() == pytest.approx(value, abs=1e-12)
    torch.testing.assert_close(grad, expected, rtol=0, atol=1e-12)


def test_minirl_counts_what_it_clipped_and_truncated_by_slice():
    now = torch.tensor([[-1.0, -1.0, -1.0, -1.0]])
    old = torch.tensor([[-1.3, -1.0, -1.0, -1.0]])  # token 0: staleness e^0.3 = 1.35 > 1.27, A > 0
    mu = torch.tensor([[-1.0, -3.0, -3.0, -3.0]])  # others: total weight e^2 = 7.4 > 5
    mask, cells = torch.tensor([[1, 1, 1, 0]]), Cells(torch.tensor([[0, 0, 1, 1]]), ("text", "post_tool"))
    loss = minirl(now, old, mu, torch.tensor([2.0]), mask, denominator=1, slices=cells)
    got = {mark: {k: int(v) for k, v in by.items()} for mark, by in loss.counts.items()}
    assert got["clipped_high"] == {"all": 1, "text": 1, "post_tool": 0}
    assert got["truncated"] == {"all": 2, "text": 1, "post_tool": 1}
    assert got["clipped_low"]["all"] == got["nonfinite"]["all"] == 0
    assert loss.value.item() == 2 * 2.0 * 5.0
    assert loss.tokens.item() == 3


def test_on_policy_minirl_has_no_clip_and_the_weight_is_the_mismatch():
    b = make(7)
    same = b.logprobs
    loss, grad = gradient(
        minirl, b, old_logprobs=same, rollout_logprobs=b.rollout, advantages=b.advantages, loss_mask=b.mask,
        denominator=1, cap=None,
    )  # fmt: skip
    assert int(loss.counts["clipped_high"]["all"]) == int(loss.counts["clipped_low"]["all"]) == 0
    expected = -torch.exp(same - b.rollout) * b.advantages[:, None] * b.mask
    torch.testing.assert_close(grad, expected, rtol=0, atol=1e-12)


def test_minirl_weight_is_a_constant_for_the_gradient():
    b = make(2)
    logp = b.logprobs.clone().requires_grad_()
    old, mu, adv = (x.clone().requires_grad_() for x in (b.old, b.rollout, b.advantages))
    minirl(logp, old, mu, adv, b.mask, denominator=1, cap=None, clip=False).value.backward()
    assert old.grad is None
    assert mu.grad is None
    assert adv.grad is None
    # without the stop-gradient the derivative of w * log pi would be w * (1 + log pi)
    w = torch.exp(b.logprobs - b.rollout)
    torch.testing.assert_close(logp.grad, -w * b.advantages[:, None] * b.mask, rtol=0, atol=1e-12)


def test_keep_drops_tokens_but_not_from_the_lengths():
    b = make(4)
    keep = b.mask & (torch.arange(7) != 2)
    loss = minirl(
        b.logprobs, b.old, b.rollout, b.advantages, b.mask, denominator=1, length_norm=True, keep=keep
    )
    rest = Batch(b.logprobs, b.old, b.rollout, b.prox, b.advantages, b.mask)
    value = sum(
        minirl_oracle(
            Batch(rest.logprobs, rest.old, rest.rollout, rest.prox, rest.advantages, m),
            float(rest.mask[i].sum()),
        )[0]
        for i in range(5)
        if rest.mask[i].any()
        for m in [keep & (torch.arange(5) == i)[:, None]]
    )
    assert loss.value.item() == pytest.approx(value, abs=1e-12)
    assert int(loss.counts["rejected"]["all"]) == int((b.mask & ~keep).sum()) > 0


def ppo_oracle(b: Batch, d: float, *, low=0.2, high=0.2, dual=None, sequence=False, norm=False, weights=None):
    value = 0.0
    for i, t in tokens_of(b):
        row = [(i, s) for j, s in tokens_of(b) if j == i]
        a = float(b.advantages[i])
        logs = [float(b.logprobs[x] - b.old[x]) for x in row]
        r = math.exp(sum(logs) / len(logs)) if sequence else math.exp(float(b.logprobs[i, t] - b.old[i, t]))
        objective = min(r * a, clamp(r, 1 - low, 1 + high) * a)
        if dual is not None and a < 0:
            objective = max(objective, dual * a)
        objective *= 1.0 if weights is None else float(weights[i, t])
        value -= objective / d / (len(row) if norm else 1)
    return value


@pytest.mark.parametrize(
    "form",
    [
        {}, {"high": 0.28}, {"dual": 1.2}, {"dual": 1.05, "norm": True}, {"sequence": True, "norm": True},
        {"sequence": True, "norm": True, "low": 3e-4, "high": 4e-4},
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(4))
def test_ppo_and_gspo_equal_the_loop_in_value_and_gradient(seed, form):
    b = make(seed, scale=0.6)
    weights = torch.rand(5, 7, generator=torch.Generator().manual_seed(seed)).double()
    lengths = b.mask.sum(dim=1) if form.get("norm") else None
    arguments = {
        "denominator": 5, "lengths": lengths, "weights": weights, "eps_low": form.get("low", 0.2),
        "eps_high": form.get("high", 0.2), "dual": form.get("dual"), "level": "sequence" if form.get("sequence") else "token",
    }  # fmt: skip
    loss, grad = gradient(
        ppo_clip, b, old_logprobs=b.old, advantages=b.advantages, loss_mask=b.mask, **arguments
    )
    if form.get("sequence"):  # one weight a row keeps the two forms of GSPO equal
        weights = weights[:, :1].expand(5, 7)
        loss, grad = gradient(
            ppo_clip,
            b,
            old_logprobs=b.old,
            advantages=b.advantages,
            loss_mask=b.mask,
            **{**arguments, "weights": weights},
        )
    assert loss.value.item() == pytest.approx(ppo_oracle(b, 5, weights=weights, **form), abs=1e-12)
    step = 1e-6
    for i, t in tokens_of(b)[::3]:  # central differences of the loop
        values = []
        for sign in (1, -1):
            moved = b.logprobs.clone()
            moved[i, t] += sign * step
            values.append(
                ppo_oracle(
                    Batch(moved, b.old, b.rollout, b.prox, b.advantages, b.mask), 5, weights=weights, **form
                )
            )
        assert grad[i, t].item() == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-7)


def test_named_compositions_are_the_clip_with_other_arguments():
    b = make(5)
    tokens = int(b.mask.sum())
    one = dapo(b.logprobs, b.old, b.advantages, b.mask, num_tokens=tokens).value.item()
    assert one == pytest.approx(ppo_oracle(b, tokens, high=0.28), abs=1e-12)
    two = gspo(b.logprobs, b.old, b.advantages, b.mask, num_responses=5).value.item()
    assert two == pytest.approx(ppo_oracle(b, 5, low=3e-4, high=4e-4, sequence=True, norm=True), abs=1e-12)


def test_cispo_equals_the_loop_and_every_token_keeps_its_gradient():
    b = make(6, scale=1.0)
    loss, grad = gradient(
        cispo,
        b,
        old_logprobs=b.old,
        advantages=b.advantages,
        loss_mask=b.mask,
        denominator=3,
        high=1.3,
        low=0.5,
    )
    value = 0.0
    for i, t in tokens_of(b):
        r = clamp(math.exp(float(b.logprobs[i, t] - b.old[i, t])), 0.5, 1.3)
        value -= r * float(b.advantages[i] * b.logprobs[i, t]) / 3
        assert grad[i, t].item() == pytest.approx(-r * float(b.advantages[i]) / 3, abs=1e-12)
    assert loss.value.item() == pytest.approx(value, abs=1e-12)
    assert (grad[b.mask] != 0).all()
    assert int(loss.counts["clipped_high"]["all"]) > 0
    assert int(loss.counts["clipped_low"]["all"]) > 0


def test_a_clip_range_a_slice_clips_each_slice_by_its_own():
    now, old = torch.full((1, 2), -1.0), torch.full((1, 2), -1.15)  # ratio 1.16 on both
    eps = torch.tensor([[0.2, 0.1]])
    loss, grad = gradient(
        ppo_clip, Batch(now, old, old, old, torch.ones(1), torch.ones(1, 2, dtype=torch.bool)),
        old_logprobs=old, advantages=torch.ones(1), loss_mask=torch.ones(1, 2), denominator=1, eps_high=eps,
    )  # fmt: skip
    assert loss.marks["clipped_high"].tolist() == [[False, True]]
    assert grad[0, 0] < 0
    assert grad[0, 1] == 0


def test_advantages_a_token():
    b = make(8)
    wide = b.advantages[:, None].expand(5, 7).clone()
    for function in (
        reinforce,
        lambda x, a, m, denominator: ppo_clip(x, b.old, a, m, denominator=denominator),
    ):
        one = function(b.logprobs, b.advantages, b.mask, denominator=2).value
        two = function(b.logprobs, wide, b.mask, denominator=2).value
        assert one.item() == two.item()
    with pytest.raises(ObjectiveError, match="advantages have shape"):
        reinforce(b.logprobs, wide[:, :3], b.mask, denominator=2)


@pytest.mark.parametrize("column", ["logprobs", "old", "rollout"])
def test_nan_in_the_loss_is_seen_and_outside_is_not(column):
    b = make(9)
    getattr(b, column)[~b.mask] = NAN
    loss, grad = gradient(
        minirl,
        b,
        old_logprobs=b.old,
        rollout_logprobs=b.rollout,
        advantages=b.advantages,
        loss_mask=b.mask,
        denominator=1,
    )
    assert math.isfinite(loss.value.item())
    assert grad.isfinite().all()
    getattr(b, column)[0, 3] = NAN
    loss, _ = gradient(
        minirl,
        b,
        old_logprobs=b.old,
        rollout_logprobs=b.rollout,
        advantages=b.advantages,
        loss_mask=b.mask,
        denominator=1,
    )
    assert math.isnan(loss.value.item())
    assert int(loss.counts["nonfinite"]["all"]) == 1
    if column != "rollout":
        ppo = ppo_clip(b.logprobs, b.old, b.advantages, b.mask, denominator=1)
        assert math.isnan(ppo.value.item())


def test_an_overflowing_ratio_of_a_clipped_token_does_not_poison_the_gradient():
    now, old = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-200.0, -1.0]])
    b = Batch(now, old, old, old, torch.ones(1), torch.ones(1, 2, dtype=torch.bool))
    loss, grad = gradient(
        ppo_clip, b, old_logprobs=old, advantages=torch.ones(1), loss_mask=b.mask, denominator=1
    )
    assert loss.value.item() == pytest.approx(-2.2)
    assert grad.tolist() == [[0.0, -1.0]]
    loss = ppo_clip(now, old, -torch.ones(1), b.mask, denominator=1)  # not clipped: the infinity shows
    assert loss.value.item() == INF
    loss = ppo_clip(now, old, -torch.ones(1), b.mask, denominator=1, dual=3.0)
    assert loss.value.item() == 4.0


def test_edges_empty_one_token_all_masked():
    for rows, tokens in ((0, 0), (0, 3), (2, 0), (1, 1), (2, 3)):
        x = torch.zeros(rows, tokens, requires_grad=True)
        mask = torch.zeros(rows, tokens, dtype=torch.bool)
        for loss in (
            minirl(x, x, x, torch.ones(rows), mask, denominator=1),
            ppo_clip(x, x, torch.ones(rows), mask, denominator=1),
            gspo(x, x, torch.ones(rows), mask, num_responses=1),
            cispo(x, x, torch.ones(rows), mask, denominator=1, high=2.0),
        ):
            loss.value.backward()
            assert loss.value.item() == 0.0
            assert loss.tokens.item() == 0


def test_gradcheck():
    b = make(10, rows=3, tokens=4, scale=0.05)  # inside the clip range, where the loss is smooth
    logp = b.logprobs.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: ppo_clip(x, b.old, b.advantages, b.mask, denominator=3).value, (logp,)
    )
    assert torch.autograd.gradcheck(
        lambda x: reinforce(x, b.advantages, b.mask, denominator=3, weights=b.rollout.exp()).value, (logp,)
    )


def test_refusals():
    b = make(11)
    with pytest.raises(ObjectiveError, match="needs rollout_logprobs"):
        minirl(b.logprobs, b.old, None, b.advantages, b.mask, denominator=1)
    with pytest.raises(ObjectiveError, match="cap must be above 0"):
        minirl(b.logprobs, b.old, b.rollout, b.advantages, b.mask, denominator=1, cap=0.0)
    with pytest.raises(ObjectiveError, match="dual must be above 1"):
        ppo_clip(b.logprobs, b.old, b.advantages, b.mask, denominator=1, dual=1.0)
    with pytest.raises(ObjectiveError, match="level must be"):
        ppo_clip(b.logprobs, b.old, b.advantages, b.mask, denominator=1, level="row")
    with pytest.raises(ObjectiveError, match="keep has shape"):
        minirl(b.logprobs, b.old, b.rollout, b.advantages, b.mask, denominator=1, keep=b.mask[:2])

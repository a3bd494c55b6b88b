"""Corrections: each against a loop over its formula, with counts by slice, and never a NaN turned into a zero."""

from __future__ import annotations

import math

import pytest
import torch

from tests.objectives.batches import make, tokens_of
from trimtab.errors import ObjectiveError
from trimtab.objectives.combined_corrections import combine, self_normalise, weight_sums
from trimtab.objectives.corrections import icepop, mis, ratio_at, tis
from trimtab.objectives.kl_penalties import kl_penalty, kl_terms
from trimtab.objectives.policy_gradient import reinforce
from trimtab.objectives.token_filters import k3_rejection, off_policy_rejection, reject_nonfinite, veto
from trimtab.objectives.token_slices import Cells, per_token

INF, NAN = float("inf"), float("nan")
CAP = {"token": 1.2, "sequence": 1.2, "geometric": 1.0}


def ratio_oracle(raw, mask, i, t, level):
    row = [float(raw[i, s]) for s in range(raw.shape[1]) if mask[i, s]]
    if level == "token":
        return math.exp(float(raw[i, t]))
    return math.exp(sum(row) / (len(row) if level == "geometric" else 1))


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("seed", range(3))
def test_tis_and_mis_equal_the_loop(seed, level):
    b = make(seed)
    raw = b.old - b.rollout
    one, two = tis(raw, b.mask, cap=CAP[level], level=level), mis(raw, b.mask, low=0.8, high=1.3, level=level)
    only = mis(raw, b.mask, low=0.8, high=1.3, level=level, weigh=False)
    truncated = below = above = 0
    for i, t in tokens_of(b):
        rho = ratio_oracle(raw, b.mask, i, t, level)
        truncated, below, above = truncated + (rho > CAP[level]), below + (rho < 0.8), above + (rho > 1.3)
        inside = 0.8 <= rho <= 1.3
        assert one.weights[i, t].item() == pytest.approx(min(rho, CAP[level]), abs=1e-12)
        assert two.weights[i, t].item() == pytest.approx(rho if inside else 0.0, abs=1e-12)
        assert only.weights[i, t].item() == float(inside)
        assert bool(two.keep[i, t]) is bool(only.keep[i, t]) is inside
    assert torch.equal(one.keep, b.mask)
    assert (one.weights[~b.mask] == 0).all()
    assert int(one.counts["truncated"]["all"]) == truncated > 0
    assert [int(two.counts[k]["all"]) for k in ("below", "above", "dropped")] == [below, above, below + above]
    assert below + above > 0


def test_icepop_masks_both_sides():
    raw = torch.tensor([[0.4, 0.6, 1.0, 4.9, 5.1]]).log()
    assert icepop(raw, torch.ones(1, 5)).keep.tolist() == [[False, True, True, True, False]]


@pytest.mark.parametrize("function", [mis, icepop])
def test_a_ratio_on_a_bound_is_inside(function):
    raw = torch.tensor([[0.0, -0.1, 0.1]])
    assert function(raw, torch.ones(1, 3), low=1.0, high=1.2).keep.tolist() == [[True, False, True]]
    assert function(raw, torch.ones(1, 3), low=0.5, high=1.0).keep.tolist() == [[True, True, False]]


def test_the_length_trap_of_sequence_ratios():
    raw = torch.full((1, 100), math.log(1.1))
    assert ratio_at(raw, torch.ones(1, 100), "sequence")[0, 0].item() == pytest.approx(13_780, rel=1e-3)
    assert ratio_at(raw, torch.ones(1, 100), "geometric")[0, 0].item() == pytest.approx(1.1, rel=1e-6)


@pytest.mark.parametrize(("level", "bound"), [("token", 0.09), ("sequence", 0.16)])
def test_k3_rejection_equals_the_loop(level, bound):
    b = make(3)
    raw = b.old - b.rollout
    fixed = k3_rejection(raw, b.mask, bound=bound, level=level)
    dropped = 0
    for i, t in tokens_of(b):
        row = [x for x in tokens_of(b) if x[0] == i] if level == "sequence" else [(i, t)]
        k3 = sum(math.exp(float(raw[x])) - 1 - float(raw[x]) for x in row) / len(row)
        assert bool(fixed.keep[i, t]) is (k3 <= bound)
        dropped += k3 > bound
    assert 0 < dropped < len(tokens_of(b))
    assert int(fixed.counts["k3_above"]["all"]) == int(fixed.counts["dropped"]["all"]) == dropped


def test_veto_drops_the_row_of_one_impossible_token_and_ignores_masked_ones():
    raw, mask = torch.zeros(3, 4), torch.ones(3, 4)
    raw[0, 2], raw[1, 3], mask[1, 3] = math.log(0.9e-4), -99.0, 0
    fixed = veto(raw, mask)
    assert fixed.keep.any(dim=1).tolist() == [False, True, True]
    assert int(fixed.counts["vetoed"]["all"]) == 4
    assert int(fixed.counts["dropped"]["all"]) == 4


def test_off_policy_rejection_drops_negative_rows_only():
    now, mu = torch.full((3, 2), -3.0), torch.tensor([[-1.0, -1.0], [-1.0, -1.0], [-2.9, -2.9]])
    fixed = off_policy_rejection(now, mu, torch.tensor([-1.0, 1.0, -1.0]), torch.ones(3, 2), bound=0.5)
    assert fixed.keep.all(dim=1).tolist() == [False, True, True]
    assert int(fixed.counts["off_policy"]["all"]) == 2


def test_counts_by_slice():
    raw = torch.tensor([[1.0, 1.0, 0.0, 1.0]])
    cells = Cells(torch.tensor([[0, 1, 1, 1]]), ("text", "search"))
    counts = tis(raw, torch.tensor([[1, 1, 1, 0]]), cap=2.0, slices=cells).counts["truncated"]
    assert {k: int(v) for k, v in counts.items()} == {"all": 2, "text": 1, "search": 1}
    post = {"post_tool": torch.tensor([[False, True, True, True]])}
    counts = mis(raw, torch.tensor([[1, 1, 1, 0]]), low=0.5, high=2.0, slices=post).counts["dropped"]
    assert {k: int(v) for k, v in counts.items()} == {"all": 2, "post_tool": 1}


def test_a_cap_a_slice():
    raw = torch.full((1, 3), math.log(4.0))
    cells = Cells(torch.tensor([[0, 1, 1]]), ("text", "search"))
    mask = torch.ones(1, 3)
    fixed = tis(raw, mask, cap=per_token(cells, {"search": 2.0}, default=5.0), slices=cells)
    torch.testing.assert_close(fixed.weights, torch.tensor([[4.0, 2.0, 2.0]]))
    assert int(fixed.counts["truncated"]["text"]) == 0
    high = per_token(cells, {"search": 2.0}, default=5.0)
    assert mis(raw, mask, low=0.0, high=high).keep.tolist() == [[True, False, False]]


def test_nan_stays_and_reaches_the_loss_until_it_is_dropped_by_name():
    raw, mask = torch.tensor([[0.1, NAN, 0.2], [0.0, INF, -INF]]), torch.ones(2, 3)
    for fixed in (
        tis(raw, mask, cap=2.0), mis(raw, mask, low=0.5, high=2.0), mis(raw, mask, low=0.5, high=2.0, weigh=False),
        k3_rejection(raw, mask, bound=0.5, level="token"),
    ):  # fmt: skip
        assert math.isnan(fixed.weights[0, 1].item())
        assert bool(fixed.keep[0, 1])
        assert int(fixed.counts["nonfinite"]["all"]) == 3
        loss = reinforce(-mask, torch.ones(2), mask, denominator=1, weights=fixed.weights, keep=fixed.keep)
        assert math.isnan(loss.value.item())
    row = mis(raw, mask, low=0.5, high=2.0, level="sequence")
    assert row.weights[0].isnan().all()  # a row's ratio is NaN as a whole
    fixed = tis(raw, mask, cap=2.0)
    assert fixed.weights[1].tolist() == [1.0, 2.0, 0.0]  # +inf truncated, -inf has weight exp(-inf)
    assert int(fixed.counts["truncated"]["all"]) == 1
    clean = reject_nonfinite(raw, mask)
    assert clean.keep.tolist() == [[True, False, True], [True, False, False]]
    assert int(clean.counts["nonfinite"]["all"]) == int(clean.counts["dropped"]["all"]) == 3
    fixed = tis(raw, clean.keep, cap=2.0, level="sequence")
    assert fixed.weights[0, 0].item() == pytest.approx(math.exp(0.3), rel=1e-6)
    loss = reinforce(-mask, torch.ones(2), mask, denominator=1, weights=fixed.weights, keep=fixed.keep)
    assert math.isfinite(loss.value.item())
    assert int(loss.counts["rejected"]["all"]) == 3


def test_masked_tokens_may_hold_anything():
    raw = torch.tensor([[0.1, NAN], [0.2, INF]])
    mask = torch.tensor([[1, 0], [1, 0]])
    for level in ("token", "sequence", "geometric"):
        fixed = tis(raw, mask, cap=5.0, level=level)
        assert fixed.weights[:, 0].tolist() == pytest.approx([math.exp(0.1), math.exp(0.2)], rel=1e-6)
        assert fixed.weights[:, 1].tolist() == [0.0, 0.0]
        assert int(fixed.counts["nonfinite"]["all"]) == 0


def test_outside_the_mask_a_ratio_is_one_and_a_rejected_weight_is_never_looked_at():
    raw, mask = torch.tensor([[0.1, NAN], [NAN, NAN]]), torch.tensor([[1, 0], [0, 0]])
    for level in ("token", "sequence", "geometric"):
        torch.testing.assert_close(
            ratio_at(raw, mask, level), torch.tensor([[math.exp(0.1), 1.0], [1.0, 1.0]])
        )
    keep = torch.tensor([[True, False]])
    logp = torch.full((1, 2), -1.0, requires_grad=True)
    loss = reinforce(
        logp, torch.ones(1), torch.ones(1, 2), denominator=1, weights=torch.tensor([[2.0, NAN]]), keep=keep
    )
    loss.value.backward()
    assert loss.value.item() == 2.0
    assert logp.grad.tolist() == [[-2.0, 0.0]]


def test_huge_rows_do_not_overflow_into_nan():
    raw = torch.full((1, 2000), 1.0)  # the row's ratio is e^2000
    assert tis(raw, torch.ones(1, 2000), cap=2.0, level="sequence").weights[0, 0].item() == 2.0
    assert not mis(raw, torch.ones(1, 2000), low=0.5, high=2.0, level="sequence").keep.any()


def test_combination_multiplies_once_and_counts_the_union():
    b = make(5)
    raw = b.old - b.rollout
    weight, drop = tis(raw, b.mask, cap=1.5), mis(raw, b.mask, low=0.7, high=1.2, weigh=False)
    both = combine(weight, drop, veto(raw, b.mask))
    torch.testing.assert_close(both.weights, weight.weights * drop.keep)
    assert torch.equal(both.keep, drop.keep)
    assert int(both.counts["dropped"]["all"]) == int(drop.counts["dropped"]["all"]) > 0
    assert {"truncated", "below", "above", "vetoed", "dropped", "nonfinite"} == set(both.counts)
    cells = Cells(torch.arange(35).reshape(5, 7) % 2, ("a", "b"))
    split = combine(weight, drop, slices=cells).counts["dropped"]
    assert int(split["a"]) + int(split["b"]) == int(split["all"])
    with pytest.raises(ObjectiveError, match="two corrections weigh"):
        combine(weight, tis(raw, b.mask, cap=2.0, level="sequence"))
    with pytest.raises(ObjectiveError, match="at least one"):
        combine()


def test_self_normalisation_over_micro_batches_is_that_of_the_whole():
    b = make(6, rows=6)
    raw = b.old - b.rollout
    whole = mis(raw, b.mask, low=0.5, high=1.5)
    done = self_normalise(whole, *weight_sums(whole, b.mask))
    assert done.weights[b.mask].mean().item() == pytest.approx(1.0, abs=1e-12)
    parts = [(mis(raw[r], b.mask[r], low=0.5, high=1.5), b.mask[r]) for r in (slice(0, 2), slice(2, 6))]
    sums = [weight_sums(fixed, mask) for fixed, mask in parts]
    total, count = sum(s for s, _ in sums), sum(n for _, n in sums)
    joined = torch.cat([self_normalise(fixed, total, count).weights for fixed, _ in parts])
    torch.testing.assert_close(joined, done.weights, rtol=1e-12, atol=0)
    nothing = mis(raw, b.mask, low=50.0, high=60.0)
    with pytest.raises(ObjectiveError, match="cannot self-normalise"):
        self_normalise(nothing, *weight_sums(nothing, b.mask))


def test_edges_empty_one_token_all_masked():
    for shape in ((0, 0), (0, 3), (2, 0), (1, 1), (2, 3)):
        mask = torch.zeros(shape, dtype=torch.bool)
        for fixed in (
            tis(torch.zeros(shape), mask, cap=2.0, level="sequence"), icepop(torch.zeros(shape), mask),
            k3_rejection(torch.zeros(shape), mask, bound=1.0), veto(torch.zeros(shape), mask),
        ):  # fmt: skip
            assert fixed.weights.sum().item() == 0.0
            assert all(int(by["all"]) == 0 for by in fixed.counts.values())


def test_weights_carry_no_gradient():
    b = make(7)
    raw = (b.old - b.rollout).requires_grad_()
    for fixed in (
        tis(raw, b.mask, cap=2.0),
        mis(raw, b.mask, low=0.5, high=2.0),
        k3_rejection(raw, b.mask, bound=1.0),
    ):
        assert not fixed.weights.requires_grad


def test_refusals():
    raw, mask = torch.zeros(2, 3), torch.ones(2, 3)
    for low, high in ((2.0, 0.5), (1.0, 1.0), (-1.0, 2.0), (NAN, 2.0)):
        with pytest.raises(ObjectiveError, match="low < high"):
            mis(raw, mask, low=low, high=high)
    with pytest.raises(ObjectiveError, match="cap must be above 0"):
        tis(raw, mask, cap=0.0)
    with pytest.raises(ObjectiveError, match="level must be"):
        tis(raw, mask, cap=2.0, level="episode")
    with pytest.raises(ObjectiveError, match="log_mismatch has shape"):
        tis(raw[:1], mask, cap=2.0)


def test_kl_terms_by_hand_and_gradient():
    p, q = torch.tensor([[-1.0, NAN]]), torch.tensor([[-1.5, 0.0]])
    mask = torch.tensor([[1, 0]])
    assert kl_terms(p, q, mask, estimator="k1")[0, 0].item() == 0.5
    assert kl_terms(p, q, mask, estimator="k2")[0, 0].item() == 0.125
    assert kl_terms(p, q, mask)[0, 0].item() == pytest.approx(math.exp(-0.5) - 1 + 0.5, rel=1e-6)
    b = make(8)
    coefficient = torch.where(torch.arange(7) < 3, 0.1, 0.5).double().expand(5, 7)
    logp = b.logprobs.clone().requires_grad_()
    loss = kl_penalty(logp, b.old, b.mask, coefficient=coefficient, denominator=4)
    loss.value.backward()
    value = 0.0
    for i, t in tokens_of(b):
        log = float(b.old[i, t] - b.logprobs[i, t])
        value += float(coefficient[i, t]) * (math.exp(log) - 1 - log) / 4
        expected = float(coefficient[i, t]) * (1 - math.exp(log)) / 4
        assert logp.grad[i, t].item() == pytest.approx(expected, abs=1e-12)
    assert loss.value.item() == pytest.approx(value, abs=1e-12)
    with pytest.raises(ObjectiveError, match="estimator"):
        kl_terms(p, q, mask, estimator="k4")

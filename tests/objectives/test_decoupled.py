"""Decoupled PPO and PPO-EWMA: the loops of the paper, the average in closed form, and a swap that restores exactly."""

from __future__ import annotations

import math

import pytest
import torch

from tests.objectives.batches import clamp, make, tokens_of
from trimtab.errors import ObjectiveError, UnsupportedError
from trimtab.objectives.batch_size_invariance import batch_size_rules
from trimtab.objectives.decoupled import decoupled_kl, decoupled_ppo
from trimtab.objectives.ppo import ppo_clip
from trimtab.objectives.weights.weight_average import WeightAverage, trainable
from trimtab.objectives.weights.weight_shards import exchanged

NAN = float("nan")


@pytest.mark.parametrize("cap", [100.0, 1.1, None])
@pytest.mark.parametrize("seed", range(3))
def test_the_clipped_form_equals_the_authors_two_branches(seed, cap):
    """max of the negated branches, in logs, with the behaviour policy lifted (openai/ppo-ewma), by central differences."""
    b = make(seed, scale=0.5)
    logp = b.logprobs.clone().requires_grad_()
    loss = decoupled_ppo(logp, b.prox, b.rollout, b.advantages, b.mask, denominator=5, cap=cap)
    loss.value.backward()

    def branch(now, prox, behaviour, a, held):  # `held` is the stopped value of now
        lifted = behaviour if cap is None else max(behaviour, held - math.log(cap))
        clipped = clamp(now - prox, math.log(0.8), math.log(1.2)) + prox
        return max(-math.exp(now - lifted) * a, -math.exp(clipped - lifted) * a) / 5

    value, capped = 0.0, 0
    for i, t in tokens_of(b):
        now, prox, mu, a = (
            float(x) for x in (b.logprobs[i, t], b.prox[i, t], b.rollout[i, t], b.advantages[i])
        )
        value += branch(now, prox, mu, a, now)
        capped += cap is not None and now - mu > math.log(cap)
        slope = (branch(now + 1e-6, prox, mu, a, now) - branch(now - 1e-6, prox, mu, a, now)) / 2e-6
        assert logp.grad[i, t].item() == pytest.approx(slope, abs=1e-7)
    assert loss.value.item() == pytest.approx(value, abs=1e-12)
    assert int(loss.counts["capped"]["all"]) == capped
    assert (capped > 0) is (cap == 1.1)


def test_identities():
    b = make(4)
    plain = ppo_clip(b.logprobs, b.rollout, b.advantages, b.mask, denominator=3).value
    same = decoupled_ppo(b.logprobs, b.rollout, b.rollout, b.advantages, b.mask, denominator=3).value
    assert same.item() == pytest.approx(plain.item(), abs=1e-14)
    free = decoupled_ppo(
        b.logprobs, b.prox, b.rollout, b.advantages, b.mask, denominator=3, eps_low=1.0, eps_high=1e9
    )
    weighted = -(torch.exp(b.logprobs - b.rollout) * b.advantages[:, None])[b.mask].sum() / 3
    assert free.value.item() == pytest.approx(weighted.item(), abs=1e-12)


def test_no_gradient_reaches_the_other_policies():
    b = make(5)
    prox, mu, now = (x.clone().requires_grad_() for x in (b.prox, b.rollout, b.logprobs))
    for loss in (
        decoupled_ppo(now, prox, mu, b.advantages, b.mask, denominator=1),
        decoupled_kl(now, prox, mu, b.advantages, b.mask, beta=1.0, denominator=1),
    ):
        loss.value.backward()
    # the lifted behaviour is detached; only pi_theta learns
    assert prox.grad is None
    assert mu.grad is None
    assert now.grad.abs().sum() > 0


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_the_kl_form_equals_the_loop(estimator):
    b = make(6)
    beta = 0.3
    loss = decoupled_kl(
        b.logprobs,
        b.prox,
        b.rollout,
        b.advantages,
        b.mask,
        beta=beta,
        denominator=2,
        estimator=estimator,
        cap=1.2,
    )
    value = 0.0
    for i, t in tokens_of(b):
        now, prox, mu, a = (
            float(x) for x in (b.logprobs[i, t], b.prox[i, t], b.rollout[i, t], b.advantages[i])
        )
        log = now - prox
        kl = log * log / 2 if estimator == "k2" else math.exp(log) - 1 - log
        value += (beta * kl - min(math.exp(now - mu), 1.2) * a) / 2
    assert loss.value.item() == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("column", ["logprobs", "prox", "rollout"])
def test_nan_reaches_the_loss_and_masked_nan_does_not(column):
    b = make(7)
    for inside in (False, True):
        values = getattr(b, column)
        values[~b.mask] = NAN
        if inside:
            values[0, 0] = NAN
        arguments = (b.logprobs, b.prox, b.rollout, b.advantages, b.mask)
        assert math.isnan(decoupled_ppo(*arguments, denominator=1).value.item()) is inside
        assert math.isnan(decoupled_kl(*arguments, beta=1.0, denominator=1).value.item()) is inside


def test_the_average_in_closed_form_at_every_update():
    p = torch.nn.Parameter(torch.tensor([3.0, -1.0], dtype=torch.float64))
    average = WeightAverage([("p", p)], centre_of_mass=8.0)
    assert average.decay == pytest.approx(8 / 9)
    history = [p.detach().clone()]
    for step in range(1, 30):
        p.data = torch.tensor([math.sin(step), step * 0.5], dtype=torch.float64)
        average.update()
        history.append(p.detach().clone())
        powers = [(8 / 9) ** (step - k) for k in range(step + 1)]
        expected = sum(w * h for w, h in zip(powers, history, strict=True)) / sum(powers)
        torch.testing.assert_close(average.average["p"], expected, rtol=1e-13, atol=1e-13)
    assert average.updates == 29


@pytest.mark.parametrize("factor", [1.0, 0.5, 0.25])
def test_the_mean_age_in_samples_is_kept_by_the_rules(factor):
    """Weights that move one unit a sample: the average lags by its centre of mass, whatever the batch."""
    rules = batch_size_rules(factor, learning_rate=1.0, centre_of_mass=8.0)
    p = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    average = WeightAverage([("p", p)], centre_of_mass=rules.centre_of_mass)
    for _ in range(int(2000 / factor)):
        p.data += factor  # a batch `factor` times as large holds so many samples
        average.update()
    assert (p.data - average.average["p"]).item() == pytest.approx(8.0, abs=1e-9)


def test_the_rules_are_the_papers_numbers():
    decays = {c: batch_size_rules(1 / c, learning_rate=1.0).decay for c in (1, 2, 4, 16)}
    assert {c: round(d, 4) for c, d in decays.items()} == {1: 0.8889, 2: 0.9412, 4: 0.9697, 16: 0.9922}
    half = batch_size_rules(0.5, learning_rate=1e-3, betas=(0.9, 0.999))
    assert half.learning_rate == pytest.approx(1e-3 / math.sqrt(2))
    assert half.betas == pytest.approx((math.sqrt(0.9), math.sqrt(0.999)))
    assert batch_size_rules(0.5, learning_rate=1e-3, optimizer="sgd").learning_rate == 5e-4
    there = batch_size_rules(4.0, learning_rate=1e-3)
    back = batch_size_rules(
        0.25, learning_rate=there.learning_rate, betas=there.betas, centre_of_mass=there.centre_of_mass
    )
    assert back.learning_rate == pytest.approx(1e-3)
    assert back.betas == pytest.approx((0.9, 0.999))
    assert back.centre_of_mass == pytest.approx(8.0)
    for bad in (
        {"factor": 0.0},
        {"learning_rate": 0.0},
        {"betas": (1.0, 0.9)},
        {"optimizer": "muon"},
        {"factor": NAN},
    ):
        with pytest.raises(ObjectiveError):
            batch_size_rules(**{"factor": 1.0, "learning_rate": 1.0, **bad})


def net(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to(dtype)


def train(model, average=None, steps=3, seed=1):
    optimizer = torch.optim.AdamW(trainable_parameters(model), lr=1e-2)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(5, 4, generator=generator).to(next(model.parameters()).dtype)
        model(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if average is not None:
            average.update()


def trainable_parameters(model):
    return [p for _, p in trainable(model)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_swapped_gives_the_average_without_gradient_and_restores_the_very_tensors(dtype):
    model = net(dtype)
    average = WeightAverage(trainable(model), centre_of_mass=2.0)
    train(model, average)
    x = torch.randn(3, 4).to(dtype)
    before, pointers = model(x), [p.data_ptr() for p in model.parameters()]
    copy = net(dtype)
    copy.load_state_dict({k: v.to(dtype) for k, v in average.average.items()})
    with average.swapped():
        inside = model(x)
        assert not inside.requires_grad
        assert torch.equal(inside, copy(x))
    assert torch.equal(model(x), before)
    assert not torch.equal(inside, before)
    assert [p.data_ptr() for p in model.parameters()] == pointers
    assert all(p.requires_grad for p in model.parameters())
    assert average.average["0.weight"].dtype == torch.float32


def test_an_exception_inside_restores_and_misuse_inside_is_refused():
    model = net()
    average = WeightAverage(trainable(model))
    train(model, average)
    pointers = [p.data_ptr() for p in model.parameters()]
    with pytest.raises(RuntimeError, match="out of memory"), average.swapped():
        raise RuntimeError("out of memory")
    assert [p.data_ptr() for p in model.parameters()] == pointers
    for call in (
        average.update,
        average.reset,
        lambda: average.load_state_dict({}),
        lambda: average.swapped().__enter__(),
    ):
        with pytest.raises(ObjectiveError, match="leave swapped"), average.swapped():
            call()
    assert [p.data_ptr() for p in model.parameters()] == pointers
    average.update()


def test_averaging_does_not_change_training():
    one, two = net(), net()
    average = WeightAverage(trainable(one))
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (one, two)]
    for step in range(4):
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(step))
        for model, optimizer in zip((one, two), optimizers, strict=True):
            loss = model(x).square().sum()
            if model is one:
                with average.swapped():
                    model(x)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        average.update()
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(p, q)


def test_half_precision_weights_do_not_lose_small_steps():
    p = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    average = WeightAverage([("p", p)], centre_of_mass=100.0)
    p.data += 2**-7  # one bf16 step: a bf16 average could never move by a hundredth of it
    for _ in range(50):
        average.update()
    assert 1 < average.average["p"].item() < 1 + 2**-7


def test_resume_is_exact(tmp_path):
    straight, broken = net(), net()
    one, two = WeightAverage(trainable(straight)), WeightAverage(trainable(broken))
    train(straight, one, steps=3)
    train(broken, two, steps=3)
    torch.save({"model": broken.state_dict(), "average": two.state_dict()}, tmp_path / "state.pt")
    again = net()
    again.load_state_dict(torch.load(tmp_path / "state.pt")["model"])
    resumed = WeightAverage(trainable(again), centre_of_mass=1.0)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt")["average"])
    train(straight, one, steps=3, seed=2)
    train(again, resumed, steps=3, seed=2)
    assert one.weight == resumed.weight
    assert one.updates == resumed.updates == 6
    assert all(torch.equal(one.average[name], resumed.average[name]) for name in one.average)


def test_lora_adapters_only():
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(
        net(), peft.LoraConfig(target_modules=["0", "2"], r=2, init_lora_weights=False)
    )
    average = WeightAverage(trainable(model), centre_of_mass=3.0)
    assert set(average.average) == {n for n, p in model.named_parameters() if "lora" in n}
    train(model, average)
    x = torch.randn(3, 4)
    before = model(x)
    base = {n: p.detach().clone() for n, p in model.named_parameters() if "lora" not in n}
    with average.swapped():
        assert not torch.equal(model(x), before)
        assert all(torch.equal(base[n], p) for n, p in model.named_parameters() if n in base)
    assert torch.equal(model(x), before)


def test_refusals():
    model = net()
    with pytest.raises(ObjectiveError, match="at least one"):
        WeightAverage([])
    with pytest.raises(ObjectiveError, match="name of its own"):
        WeightAverage([("p", model[0].weight), ("p", model[0].bias)])
    with pytest.raises(ObjectiveError, match="centre_of_mass"):
        WeightAverage(trainable(model), centre_of_mass=-1.0)
    with pytest.raises(UnsupportedError, match="meta"):
        WeightAverage([("p", torch.nn.Parameter(torch.empty(2, device="meta")))])
    with pytest.raises(UnsupportedError, match="is empty here"):
        WeightAverage([("p", torch.nn.Parameter(torch.empty(0)))])

    part = torch.nn.Parameter(torch.ones(2))
    part.placements = ("shard",)  # what is_sharded asks of a DTensor
    with pytest.raises(ObjectiveError, match="pass the model"), exchanged({"p": part}, {"p": torch.zeros(2)}):
        pass

    class FlatParameter(torch.nn.Parameter):
        pass

    with pytest.raises(UnsupportedError, match="sharded"):
        WeightAverage([("p", FlatParameter(torch.ones(2)))])
    average = WeightAverage(trainable(model))
    state = average.state_dict()
    del state["average"]["0.bias"]
    with pytest.raises(ObjectiveError, match=r"0.bias is not in the saved average"):
        average.load_state_dict(state)
    state = average.state_dict()
    state["average"]["0.bias"] = torch.zeros(1)
    with pytest.raises(ObjectiveError, match=r"0.bias was saved as \(1,\)"):
        average.load_state_dict(state)


def test_adamw_follows_adam_and_a_run_without_an_average_has_none():
    one = batch_size_rules(0.25, learning_rate=1.0, optimizer="adamw", centre_of_mass=None)
    assert (one.learning_rate, one.centre_of_mass, one.decay) == (0.5, None, None)
    assert one.betas == batch_size_rules(0.25, learning_rate=1.0).betas

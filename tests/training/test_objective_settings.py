"""Each setting of MiniRLConfig does to the loss what its formula says, computed here by hand from the batch TRL trained on."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch
from transformers import LlamaForCausalLM

from tests.adapters.tiny_trl import tiny_model
from tests.training.tiny import Spy, assert_same, fixed_rollout, loss_mask, ours, post_tool, trained
from trimtab.objectives import decoupled_kl, icepop, ppo_clip, sequence_lengths

TWO = {"num_iterations": 2, "max_steps": 2, "learning_rate": 0.05}
needs_entropy_gradient = pytest.mark.skipif(
    not hasattr(__import__("trl").GRPOConfig, "entropy_coef"), reason="this TRL's entropies have no gradient"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))[0]


def second(model, folder, **settings):
    """Inputs, pi_theta and loss of the second update of a batch: pi_theta has left pi_old."""
    trainer = ours(model, folder, rollout=fixed_rollout(tools=True, path=model, shift=0.8), **TWO, **settings)
    spy = Spy(trainer)
    trainer.train()
    inputs, logps, loss = spy.seen[1]
    assert (logps - inputs["old_per_token_logps"])[loss_mask(inputs)].abs().max() > 0.1
    return inputs, logps, float(loss), trainer


def by_hand(inputs, logps, *, cap=5.0, high=0.27, low=0.2, importance=True, clip=True):
    """-sum M sg[min(pi_theta/mu, cap)] A log pi_theta, a token (B, T)."""
    weight = (logps - inputs["sampling_per_token_logps"]).exp()
    stale = (logps - inputs["old_per_token_logps"]).exp()
    advantage = inputs["advantages"][:, None]
    out = ((advantage > 0) & (stale > 1 + high)) | ((advantage < 0) & (stale < 1 - low))
    weight = torch.minimum(weight, torch.as_tensor(cap)) if importance else torch.ones_like(weight)
    weight = torch.where(out, 0.0, weight) if clip else weight
    return -(weight * advantage * logps * loss_mask(inputs))


def test_minirl_with_the_papers_defaults(model, tmp_path):
    inputs, logps, loss, trainer = second(model, tmp_path)
    assert loss == pytest.approx(float(by_hand(inputs, logps).sum() / 4), rel=1e-5)
    args = trainer.args
    assert (args.objective, args.epsilon, args.epsilon_high, args.weight_cap) == ("minirl", 0.2, 0.27, 5.0)
    assert args.scale_rewards == "none"
    own = trainer.state.log_history[1]
    weight = (logps - inputs["sampling_per_token_logps"]).exp()
    mask = loss_mask(inputs)
    for label, tokens in (
        ("", mask),
        ("/post_tool", post_tool(inputs)),
        ("/text", mask & ~post_tool(inputs)),
    ):
        share = float(((weight > 5) & tokens).sum() / tokens.sum())
        assert own[f"trimtab/truncated_frac{label}"] == pytest.approx(share, abs=1e-6)
    assert own["trimtab/clipped_high_frac"] + own["trimtab/clipped_low_frac"] > 0


@pytest.mark.parametrize("ablation", [{"importance": False}, {"clip": False}, {"length_norm": True}])
def test_the_ablations(model, tmp_path, ablation):
    inputs, logps, loss, _ = second(model, tmp_path, **ablation)
    if "length_norm" in ablation:
        rows = by_hand(inputs, logps).sum(1) / loss_mask(inputs).sum(1)
        assert loss == pytest.approx(float(rows.sum() / 4), rel=1e-5)
    else:
        assert loss == pytest.approx(float(by_hand(inputs, logps, **ablation).sum() / 4), rel=1e-5)


def test_slices_have_numbers_of_their_own(model, tmp_path):
    slices = {
        "post_tool": {"weight_cap": 0.5, "epsilon_high": 0.01, "epsilon": 0.02},
        "text": {"weight_cap": 2.0},
    }
    inputs, logps, loss, _ = second(model, tmp_path, slices=slices)
    after = post_tool(inputs)
    assert after.any()
    knobs = {
        "cap": torch.where(after, 0.5, 2.0),
        "high": torch.where(after, 0.01, 0.27),
        "low": torch.where(after, 0.02, 0.2),
    }
    assert loss == pytest.approx(float(by_hand(inputs, logps, **knobs).sum() / 4), rel=1e-5)
    assert loss != pytest.approx(float(by_hand(inputs, logps).sum() / 4), rel=1e-3)


def test_beta_by_slice(model, tmp_path):
    slices = {"post_tool": {"beta": 0.5}, "text": {"beta": 0.0}}
    inputs, logps, loss, trainer = second(model, tmp_path, slices=slices, beta=0.1)
    gap = inputs["ref_per_token_logps"] - logps
    weight = (logps - inputs["sampling_per_token_logps"]).exp().clamp(max=5)
    k3 = weight * (gap.exp() - 1 - gap) * post_tool(inputs) * 0.5
    assert loss == pytest.approx(float((by_hand(inputs, logps) + k3).sum() / 4), rel=1e-5)
    mean = ((gap.exp() - 1 - gap) * loss_mask(inputs)).sum() / loss_mask(inputs).sum()
    assert trainer.state.log_history[1]["kl"] == pytest.approx(float(mean), rel=1e-4)


def test_corrections_and_filters(model, tmp_path):
    settings = {
        "objective": "grpo", "correction": "icepop", "correction_low": 0.7, "correction_high": 1.5, "k3_bound": 0.25,
        "veto_floor": 0.05,
    }  # fmt: skip
    inputs, logps, loss, trainer = second(model, tmp_path, **settings)
    mask, old = loss_mask(inputs), inputs["old_per_token_logps"]
    raw = old - inputs["sampling_per_token_logps"]
    fixed = icepop(raw, mask, low=0.7, high=1.5)
    k3 = ((raw.exp() - 1 - raw) * mask).sum(1) / mask.sum(1)
    vetoed = ((raw < math.log(0.05)) & mask).any(1)
    keep = fixed.keep & ((k3 <= 0.25) & ~vetoed)[:, None]
    assert 0 < int(keep.sum()) < int(fixed.keep.sum()) < int(mask.sum())
    expected = ppo_clip(
        logps, old, inputs["advantages"], mask, denominator=4, lengths=sequence_lengths(mask), weights=fixed.weights, keep=keep
    )  # fmt: skip
    assert loss == pytest.approx(float(expected.value), rel=1e-5)
    share = float(1 - keep.sum() / mask.sum())
    assert trainer.state.log_history[1]["trimtab/rejected_frac"] == pytest.approx(share, abs=1e-6)
    assert trainer.state.log_history[1]["trimtab/correction/dropped_frac"] == pytest.approx(share, abs=1e-6)


def test_decoupled_kl_and_its_coefficient(model, tmp_path):
    inputs, logps, loss, _ = second(model, tmp_path, objective="decoupled_kl", prox_beta=0.3)
    mask = loss_mask(inputs)
    expected = decoupled_kl(
        logps, inputs["old_per_token_logps"], inputs["sampling_per_token_logps"], inputs["advantages"], mask, beta=0.3,
        denominator=float(mask.sum()),
    )  # fmt: skip
    assert loss == pytest.approx(float(expected.value), rel=1e-5)


def test_a_nonfinite_mu_is_dropped_and_counted(model, tmp_path):
    inner = fixed_rollout(path=model)

    def broken(prompts, trainer):
        out = inner(prompts, trainer)
        out["logprobs"][0][1] = math.nan
        return out

    trainer = ours(model, tmp_path, rollout=broken, max_steps=1, drop_nonfinite=True)
    spy = Spy(trainer)
    trainer.train()
    inputs, logps, loss = spy.seen[0]
    known = torch.isfinite(inputs["sampling_per_token_logps"])
    weight = torch.where(known, (logps - inputs["sampling_per_token_logps"]).exp(), 0.0).clamp(max=5)
    hand = -(weight * inputs["advantages"][:, None] * logps * loss_mask(inputs)).sum() / 4
    assert float(loss) == pytest.approx(float(hand), rel=1e-5)
    dropped = trainer.state.log_history[0]["trimtab/correction/nonfinite_frac"]
    assert dropped == pytest.approx(1 / int(loss_mask(inputs).sum()), rel=1e-6)
    assert trainer.state.log_history[0]["trimtab/mismatch/abs_max"] < 5  # of the tokens that have one


@pytest.mark.parametrize("objective", ["minirl", "dapo"])
def test_accumulation_of_unequal_micro_batches_is_one_large_batch(model, tmp_path, objective):
    shared = {"objective": objective, "max_steps": 2, "num_generations": 8}
    rollout = fixed_rollout(tools=True, path=model)
    large, _ = trained(ours, model, tmp_path, rollout=rollout, per_device_train_batch_size=8, **shared)
    small, _ = trained(
        ours, model, tmp_path, rollout=rollout, per_device_train_batch_size=2, gradient_accumulation_steps=4, **shared
    )  # fmt: skip
    assert_same(large, small, rtol=1e-3, atol=2e-5)


def test_self_normalised_weights_have_the_mean_of_the_step(model, tmp_path):
    shared = {
        "objective": "grpo", "correction": "tis", "correction_high": 1.2, "self_normalise": True, "max_steps": 1,
        "num_generations": 8,
    }  # fmt: skip
    rollout = fixed_rollout(path=model)
    trainer = ours(model, tmp_path, rollout=rollout, per_device_train_batch_size=8, **shared)
    spy = Spy(trainer)
    trainer.train()
    inputs, _, loss = spy.seen[0]
    mask = loss_mask(inputs)
    weight = (inputs["old_per_token_logps"] - inputs["sampling_per_token_logps"]).exp().clamp(max=1.2)
    weight = weight / weight[mask].mean()
    rows = (-(weight * inputs["advantages"][:, None]) * mask).sum(1) / mask.sum(1)
    assert float(loss) == pytest.approx(float(rows.mean()), rel=1e-4, abs=1e-6)
    one, _ = trained(ours, model, tmp_path, rollout=rollout, per_device_train_batch_size=8, **shared)
    two, _ = trained(
        ours, model, tmp_path, rollout=rollout, per_device_train_batch_size=2, gradient_accumulation_steps=4, **shared
    )  # fmt: skip
    assert_same(one, two, rtol=1e-4, atol=1e-6)


def test_the_learning_rate_follows_the_ess(model, tmp_path):
    keep, trainer = trained(
        ours, model, tmp_path, rollout=fixed_rollout(path=model, shift=0.4), max_steps=1, lr_by_ess=True
    )
    rows = trainer.state.log_history[0]
    spy_rollout = fixed_rollout(path=model, shift=0.4)
    fresh = ours(model, tmp_path, rollout=spy_rollout, max_steps=1)
    spy = Spy(fresh)
    fresh.train()
    inputs, logps, _ = spy.seen[0]
    weights = ((logps - inputs["sampling_per_token_logps"]) * loss_mask(inputs)).sum(1).double().exp()
    share = float(weights.sum() ** 2 / (4 * (weights**2).sum()))
    assert rows["vcpo/ess_share"] == pytest.approx(share, rel=1e-4)
    assert rows["vcpo/lr_scale"] == pytest.approx(share**0.5, rel=1e-4)
    assert rows["vcpo/lr_scale"] < 0.95
    start = dict(LlamaForCausalLM.from_pretrained(model).named_parameters())
    for name, parameter in trainer.model.named_parameters():
        moved = start[name].detach() - 0.02 * share**0.5 * keep[0][name]
        torch.testing.assert_close(parameter.detach(), moved, rtol=1e-4, atol=1e-6)
    assert trainer.optimizer.param_groups[0]["lr"] == 0.02


def test_tokens_are_selected_over_the_whole_generation(model, tmp_path):
    shared = {"num_generations": 8, "gradient_accumulation_steps": 2, "max_steps": 1, "entropy_keep": 0.5}
    trainer = ours(model, tmp_path, rollout=fixed_rollout(path=model), covariance_drop=0.1, **shared)
    spy = Spy(trainer)
    entropies = []
    inner = trainer._get_per_token_logps_and_entropies

    def keep(*args, **kwargs):
        result = inner(*args, **kwargs)
        entropies.append(result[1].detach())
        return result

    trainer._get_per_token_logps_and_entropies = keep
    trainer.train()
    rows = [(inputs, entropy) for (inputs, _, _), entropy in zip(spy.seen, entropies, strict=True)]
    masks = [loss_mask(inputs) for inputs, _ in rows]
    every = torch.cat([entropy[mask] for (_, entropy), mask in zip(rows, masks, strict=True)])
    logs = torch.cat(
        [inputs["old_per_token_logps"][mask] for (inputs, _), mask in zip(rows, masks, strict=True)]
    )
    worth = torch.cat(
        [inputs["advantages"][:, None].expand_as(m)[m] for (inputs, _), m in zip(rows, masks, strict=True)]
    )
    part = (logs - logs.mean()) * (worth - worth.mean())
    number = len(every)
    wanted = (every >= every.sort(descending=True).values[math.ceil(0.5 * number) - 1]) & (
        part < part.sort(descending=True).values[int(0.1 * number) - 1]
    )
    kept = torch.cat(
        [inputs["trimtab_selected"][mask] for (inputs, _), mask in zip(rows, masks, strict=True)]
    )
    assert torch.equal(kept, wanted)
    assert trainer.state.log_history[0]["trimtab/selected_frac"] == pytest.approx(
        float(wanted.float().mean()), abs=1e-6
    )
    assert trainer.state.log_history[0]["trimtab/rejected_frac"] == pytest.approx(
        1 - float(wanted.float().mean()), abs=1e-6
    )


def test_a_scaled_rate_is_given_back_to_schedulers_that_multiply(model, tmp_path):
    net = LlamaForCausalLM.from_pretrained(model)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda _: 1.0)
    rollout = fixed_rollout(path=model, shift=0.4)
    trainer = ours(
        net, tmp_path, rollout=rollout, max_steps=2, lr_by_ess=True, optimizers=(optimizer, schedule)
    )
    trainer.train()
    assert trainer.state.log_history[0]["vcpo/lr_scale"] < 0.95
    assert optimizer.param_groups[0]["lr"] == 0.01


@needs_entropy_gradient
def test_the_entropy_bonus_starts_after_a_step_below_its_target(model, tmp_path):
    shared = {
        "rollout": fixed_rollout(path=model),
        "max_steps": 2,
        "reward_funcs": lambda completions, **_: [0.0] * len(completions),
    }
    grads, trainer = trained(
        ours, model, tmp_path, bonus_target=100.0, bonus_rate=0.02, bonus_highest=0.03, **shared
    )
    history = trainer.state.log_history
    assert [row["trimtab/bonus_coefficient"] for row in history[:2]] == [0.0, 0.02]
    assert trainer.bonus.coefficient == 0.03
    assert all(
        float(grad.abs().max()) == 0 for grad in grads[0].values()
    )  # equal rewards: no policy gradient
    assert max(float(grad.abs().max()) for grad in grads[1].values()) > 1e-4
    assert history[1]["entropy"] == pytest.approx(history[0]["entropy"], rel=0.2)

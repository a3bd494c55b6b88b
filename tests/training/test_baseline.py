"""VCPO's baseline in the trainer: each row's advantage against weights and gradients computed one row at a time on a plain model."""

from __future__ import annotations

import math
from contextlib import nullcontext

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import numpy as np
import torch
from transformers import AutoModelForCausalLM

from tests.adapters.tiny_trl import tiny_model
from tests.training.tiny import fixed_rollout, loss_mask, moe, ours
from trimtab.errors import ObjectiveError, UnsupportedError
from trimtab.objectives import RoutingReplay


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))[0]


def rewards(completions, completion_ids, **_):
    return [float(sum(ids) % 7) for ids in completion_ids]


def trained(model, folder, *, rollout=None, reward=rewards, **settings):
    """(batch of the first generation before TRL shuffles it, trainer) after one step of two groups of four."""
    rollout = fixed_rollout(tools=True, path=model, shift=0.3) if rollout is None else rollout
    trainer = ours(
        model, folder, rollout=rollout, reward_funcs=reward, per_device_train_batch_size=8, num_generations=4, max_steps=1,
        **{"off_policy_baseline": True, **settings},
    )  # fmt: skip
    batches, inner = [], trainer._generate_and_score_completions

    def keep(inputs):
        batches.append(inner(inputs))
        assert all(
            p.grad is None for p in trainer.model.parameters()
        )  # the rows' gradients are not the step's
        return batches[-1]

    trainer._generate_and_score_completions = keep
    trainer.train()
    return batches[0], trainer


def by_hand(path, batch, routes=False):
    """Row weights w and squared gradient norms, a row at a time without padding, through `backward`; under the batch's routes if asked."""
    net = AutoModelForCausalLM.from_pretrained(path).eval()
    replay = RoutingReplay(net) if routes else None
    weights, norms = [], []
    for row in range(len(batch["completion_ids"])):
        prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()]
        completion = batch["completion_ids"][row][batch["completion_mask"][row].bool()]
        wanted = loss_mask(batch)[row][: len(completion)]
        exists = torch.cat([batch["prompt_mask"][row], batch["completion_mask"][row]]).bool()
        forced = (
            nullcontext()
            if replay is None
            else replay.replaying(batch["trimtab_routes"][row : row + 1, exists])
        )
        with forced:
            logits = net(torch.cat([prompt, completion])[None]).logits[0, len(prompt) - 1 : -1]
            logs = logits.double().log_softmax(-1).gather(-1, completion[:, None])[:, 0][wanted]
            net.zero_grad()
            logs.sum().backward()
        mu = batch["sampling_per_token_logps"][row][: len(completion)][wanted]
        weights.append(math.exp(float((logs.detach() - mu).sum())))
        norms.append(sum(float(p.grad.square().sum()) for p in net.parameters() if p.grad is not None))
    return np.array(weights), np.array(norms)


def baselines(own, weights, norms):
    """sum w^2 g^2 R / sum w^2 g^2 of each group of four."""
    out = []
    for start in range(0, len(own), 4):
        group = slice(start, start + 4)
        share = weights[group] ** 2 * norms[group]
        out += [float((share * own[group]).sum() / share.sum())] * 4
    return np.array(out)


def of(batch):
    return np.array([float(sum(ids[mask.bool()].tolist()) % 7) for ids, mask in zip(batch["completion_ids"], batch["completion_mask"], strict=True)])  # fmt: skip


def test_the_advantage_is_the_reward_less_the_baseline(model, tmp_path):
    batch, trainer = trained(model, tmp_path)
    weights, norms = by_hand(model, batch)
    own = of(batch)
    expected = own - baselines(own, weights, norms)
    np.testing.assert_allclose(batch["advantages"].numpy(), expected, rtol=2e-4, atol=2e-4)
    centred = own - own.reshape(2, 4).mean(1).repeat(4)
    assert np.abs(centred - expected).max() > 0.2
    for group in (
        slice(0, 4),
        slice(4, 8),
    ):  # what it is for: no constant of the group gives a smaller second moment

        def moment(advantage, group=group):
            return float((weights[group] ** 2 * norms[group] * advantage[group] ** 2).sum())

        assert moment(expected) < min(moment(centred), moment(expected + 0.05), moment(expected - 0.05))
    logged = trainer.state.log_history[0]
    assert logged["vcpo/baseline_shift"] == pytest.approx(float(np.abs(centred - expected).mean()), rel=1e-3)
    assert logged["vcpo/no_baseline_frac"] == 0.0
    assert list(trainer._logs["advantages"]) == pytest.approx(batch["advantages"].tolist(), rel=1e-5)


def test_advantages_divided_by_their_std_are_shifted_in_its_units(model, tmp_path):
    batch, _ = trained(model, tmp_path, objective="grpo")
    own = of(batch)
    expected = own - baselines(own, *by_hand(model, batch))
    scale = own.reshape(2, 4).std(1, ddof=1).repeat(4) + 1e-4
    np.testing.assert_allclose(batch["advantages"].numpy(), expected / scale, rtol=5e-4, atol=5e-4)


def test_rows_without_a_reward_or_without_a_token(model, tmp_path):
    inner = fixed_rollout(path=model)

    def rollout(prompts, trainer):
        out = inner(prompts, trainer)
        for row in (4, 5, 6, 7):  # a group whose every token is a tool's
            out["env_mask"][row] = [0] * len(out["completion_ids"][row])
        return out

    def scores(completions, completion_ids, **_):
        return [None if row == 2 else float(sum(ids) % 7) for row, ids in enumerate(completion_ids)]

    batch, trainer = trained(model, tmp_path, rollout=rollout, reward=scores)
    weights, norms = by_hand(model, batch)
    assert norms[4:].max() == 0
    norms[2] = 0.0
    own = of(batch)[:4]
    share = weights[:4] ** 2 * norms[:4]
    expected = own - (share * own).sum() / share.sum()
    expected[2] = 0.0
    np.testing.assert_allclose(batch["advantages"][:4].numpy(), expected, rtol=2e-4, atol=2e-4)
    rest = of(batch)[4:]
    np.testing.assert_allclose(batch["advantages"][4:].numpy(), rest - rest.mean(), rtol=1e-5, atol=1e-5)
    assert trainer.state.log_history[0]["vcpo/no_baseline_frac"] == pytest.approx(5 / 8)


def test_a_mixture_is_scored_under_its_replayed_routes(tmp_path):
    path, inner = moe(tmp_path / "moe"), fixed_rollout()

    def rollout(prompts, trainer):  # experts no router of these weights would choose
        out, generator = inner(prompts, trainer), torch.Generator().manual_seed(0)
        lengths = [len(p) + len(c) for p, c in zip(out["prompt_ids"], out["completion_ids"], strict=True)]
        pairs = [[torch.randperm(8, generator=generator)[:2] for _ in range(2 * n)] for n in lengths]
        return {**out, "routes": [torch.stack(own).reshape(-1, 2, 2) for own in pairs]}

    batch, _ = trained(path, tmp_path, rollout=rollout, routing_replay="R3", objective="reinforce")
    own = of(batch)
    expected = own - baselines(own, *by_hand(path, batch, routes=True))
    np.testing.assert_allclose(batch["advantages"].numpy(), expected, rtol=1e-3, atol=1e-3)
    natural = own - baselines(own, *by_hand(path, batch))
    assert np.abs(natural - expected).max() > 0.01


def test_an_adapter_counts_its_own_gradient_alone(model, tmp_path):
    library = pytest.importorskip("peft")
    config = library.LoraConfig(
        r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", init_lora_weights=False
    )
    _, trainer = trained(model, tmp_path, peft_config=config, gradient_checkpointing=True)
    whole, _ = trained(model, tmp_path)[1], None
    assert trainer.state.log_history[0]["vcpo/baseline_shift"] > 0
    assert (
        trainer.state.log_history[0]["vcpo/baseline_shift"]
        != whole.state.log_history[0]["vcpo/baseline_shift"]
    )


@pytest.mark.parametrize("drop", [False, True])
def test_an_unknown_mu_is_an_unknown_baseline_unless_dropped(model, tmp_path, drop):
    inner = fixed_rollout(path=model)

    def broken(prompts, trainer):
        out = inner(prompts, trainer)
        out["logprobs"][0][1] = math.nan
        return out

    if not drop:
        with pytest.raises(ObjectiveError, match="1 of mu, 0 of pi_theta; set drop_nonfinite=True"):
            trained(model, tmp_path, rollout=broken, drop_nonfinite=False)
        return
    batch, _ = trained(model, tmp_path, rollout=broken, drop_nonfinite=True)
    assert not bool(torch.isnan(batch["advantages"][:4]).any())
    assert bool(torch.isfinite(batch["advantages"][4:]).all())


def test_what_it_cannot_have_is_refused(model, tmp_path):
    with pytest.raises(UnsupportedError, match="off_policy_baseline with use_reentrant=True"):
        ours(
            model, tmp_path, off_policy_baseline=True, gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": True},
        )  # fmt: skip
    inner = fixed_rollout()

    def silent(prompts, trainer):
        return {**inner(prompts, trainer), "logprobs": None}

    with pytest.raises(ObjectiveError, match="grpo needs the sampler's log-probabilities"):
        trained(model, tmp_path, rollout=silent, objective="grpo")

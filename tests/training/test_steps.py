"""Around an optimizer step: a loss that is no number stops it, a useless ESS brakes it, and the log says what the step saw."""

from __future__ import annotations

import copy
import logging
import math

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch

from tests.adapters.tiny_trl import text_rows, tiny_model
from tests.training.tiny import Spy, by_length, fixed_rollout, loss_mask, ours, post_tool
from trimtab.errors import ObjectiveError
from trimtab.training import MiniRLTrainer


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))[0]


def changed(model, change, **settings):
    inner = fixed_rollout(path=model, shift=0.4, **settings)

    def rollout(prompts, trainer):
        out = inner(prompts, trainer)
        change(out)
        return out

    return rollout


def test_a_token_without_mu_stops_the_run_before_the_weights_move(model, tmp_path):
    """Issue 17.20: beyond the stated fraction of tokens; one alone is dropped and counted."""
    rollout = changed(model, lambda out: out["logprobs"].__setitem__(0, [math.nan] * len(out["logprobs"][0])))
    trainer = ours(model, tmp_path, rollout=rollout, max_steps=2)
    before = copy.deepcopy(trainer.model.state_dict())
    with pytest.raises(
        ObjectiveError,
        match=r"step 1: the sampler's log-probability is not finite at .* beyond nonfinite_limit=0.05",
    ):
        trainer.train()
    assert all(torch.equal(value, before[name]) for name, value in trainer.model.state_dict().items())


def test_an_advantage_that_is_no_number_stops_it_too(model, tmp_path):
    def rewards(completions, **_):
        return [math.inf, *by_length(completions)[1:]]

    trainer = ours(model, tmp_path, rollout=fixed_rollout(path=model), max_steps=1, reward_funcs=rewards)
    with pytest.raises(ObjectiveError, match="0 of mu, 0 of pi_theta; check the rewards"):
        trainer.train()


def test_an_infinite_weight_takes_the_smallest_learning_rate(model, tmp_path):
    rollout = changed(model, lambda out: out["logprobs"][0].__setitem__(1, -math.inf))
    trainer = ours(model, tmp_path, rollout=rollout, max_steps=1, lr_by_ess=True, drop_nonfinite=False)
    trainer.train()
    row = trainer.state.log_history[0]
    assert row["vcpo/lr_scale"] == 0.5  # the root of one row in four
    assert row["trimtab/mismatch/abs_max"] == math.inf


def test_rows_without_a_loss_token_have_no_part_in_the_ess(model, tmp_path):
    def silence(out):
        for row in (1, 3):
            out["env_mask"][row] = [0] * len(out["env_mask"][row])

    trainer = ours(model, tmp_path, rollout=changed(model, silence, tools=True), max_steps=1, lr_by_ess=True)
    spy = Spy(trainer)
    trainer.train()
    inputs, logps, _ = spy.seen[0]
    mask = loss_mask(inputs)
    live = mask.any(1)
    assert int(live.sum()) == 2
    weights = ((logps - inputs["sampling_per_token_logps"]) * mask).sum(1).double().exp()[live]
    share = float(weights.sum() ** 2 / (2 * (weights**2).sum()))
    assert trainer.state.log_history[0]["vcpo/ess_share"] == pytest.approx(share, rel=1e-4)


def test_the_mismatch_and_the_clip_are_logged_in_training_and_evaluation(model, tmp_path):
    trainer = ours(
        model, tmp_path, rollout=fixed_rollout(tools=True, path=model, shift=0.6), num_iterations=2, max_steps=2,
        gradient_accumulation_steps=2, learning_rate=0.3, eval_dataset=text_rows(2), per_device_eval_batch_size=4,
    )  # fmt: skip
    spy = Spy(trainer)
    trainer.train()
    history, last = trainer.state.log_history[1], spy.seen[-2:]
    for label, tokens in (("", loss_mask), ("/post_tool", post_tool)):
        raw = [
            (inputs["old_per_token_logps"] - inputs["sampling_per_token_logps"])[tokens(inputs)].double()
            for inputs, _, _ in last
        ]
        every = torch.cat(raw)
        wanted = {
            "abs_mean": every.abs().mean(),
            "abs_max": every.abs().max(),
            "k3_mean": (every.exp() - 1 - every).mean(),
        }
        for name, value in wanted.items():
            assert history[f"trimtab/mismatch/{name}{label}"] == pytest.approx(float(value), rel=1e-3)
    low = []
    for inputs, logps, _ in last:
        stale, mask = (logps - inputs["old_per_token_logps"]).exp(), loss_mask(inputs)
        low.append(float(((stale < 0.8) & (inputs["advantages"][:, None] < 0) & mask).sum() / mask.sum()))
    assert history["clip_ratio/low_min"] == pytest.approx(min(low), abs=1e-6)
    assert history["clip_ratio/low_min"] < history["clip_ratio/low_mean"] < history["clip_ratio/high_max"] + 1
    found = trainer.evaluate()
    assert found["eval_entropy"] == pytest.approx(history["entropy"], rel=0.5)
    assert {"eval_clip_ratio/region_mean", "eval_trimtab/mismatch/abs_mean"} <= set(found)


def test_numbers_by_slice_without_a_tool_mask_are_said_once(model, tmp_path, caplog):
    inner = fixed_rollout(path=model)

    def rollout(prompts, trainer):
        out = inner(prompts, trainer)
        del out["env_mask"]
        return out

    trainer = ours(model, tmp_path, rollout=rollout, max_steps=2, slices={"post_tool": {"epsilon_high": 0.1}})
    with caplog.at_level(logging.WARNING):
        trainer.train()
    assert caplog.text.count("no token is post_tool") == 1


def test_without_args_it_makes_a_config_of_its_own(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "transformers.training_args.is_torch_bf16_gpu_available", lambda: True
    )  # TRL's default is bf16
    trainer = MiniRLTrainer(model, by_length, train_dataset=text_rows(8))
    assert (trainer.args.objective, trainer.args.epsilon_high) == ("minirl", 0.27)
    assert trainer.args.output_dir.endswith("-MiniRL")

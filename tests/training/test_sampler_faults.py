"""What a sampler gets wrong, and corrections of two parts, through MiniRLTrainer."""

from __future__ import annotations

import logging
import math

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch

from tests.adapters.tiny_trl import tiny_model
from tests.training.test_objective_settings import by_hand, second
from tests.training.test_steps import changed
from tests.training.tiny import Spy, loss_mask, ours
from trimtab.adapters.trl import watch
from trimtab.objectives import mis, ppo_clip, sequence_lengths, tis
from trimtab.report.run_view import load_view


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))[0]


def test_one_nan_of_the_sampler_is_dropped_counted_and_alarmed_by_default(model, tmp_path, caplog):
    """Issue 17.20: a default run goes on; the token has no gradient; the watch has an alarm."""
    rollout = changed(model, lambda out: out["logprobs"][0].__setitem__(1, math.nan))
    trainer = ours(model, tmp_path, rollout=rollout, max_steps=2)
    watch(trainer, tmp_path / "run")
    spy = Spy(trainer)
    logging.getLogger("transformers").propagate = True
    with caplog.at_level(logging.WARNING):
        trainer.train()
    inputs, logps, loss = spy.seen[0]
    known = torch.isfinite(inputs["sampling_per_token_logps"])
    assert int((~known & loss_mask(inputs)).sum()) == 1
    terms = torch.where(known, by_hand(inputs | {"old_per_token_logps": logps.detach()}, logps), 0.0)
    assert float(loss) == pytest.approx(float(terms.sum() / 4), rel=1e-5)
    row = trainer.state.log_history[0]
    assert row["trimtab/correction/nonfinite_frac"] == pytest.approx(1 / int(loss_mask(inputs).sum()))
    lines = [r.getMessage() for r in caplog.records if "nonfinite_limit" in r.getMessage()]
    assert len(lines) == 1
    assert "at 1 of" in lines[0]
    assert any("nonfinite" in alarm.rule for alarm in load_view(tmp_path / "run").alarms)


def test_the_kl_of_minirl_has_the_unbiased_gradient(model, tmp_path):
    """Issue 17.19: sg[min(pi_theta/mu, 5)] x k3+, whose gradient is that weight x log(pi_theta/pi_ref)."""
    inputs, logps, loss, trainer = second(model, tmp_path, beta=0.1)
    assert (trainer.args.kl_estimator, trainer.args.kl_weight_cap) == ("k3+", 5.0)
    gap = inputs["ref_per_token_logps"] - logps
    weight = (logps - inputs["sampling_per_token_logps"]).exp().clamp(max=5)
    kl = 0.1 * weight * (gap.exp() - 1 - gap) * loss_mask(inputs)
    assert loss == pytest.approx(float((by_hand(inputs, logps) + kl).sum() / 4), rel=1e-5)


def test_trls_weighted_kl(model, tmp_path):
    """Issue 17.20: use_bias_correction_kl is honoured: pi_theta/pi_old x k3."""
    inputs, logps, loss, _ = second(model, tmp_path, beta=0.1, use_bias_correction_kl=True)
    gap = inputs["ref_per_token_logps"] - logps
    weight = (logps - inputs["old_per_token_logps"]).exp()
    kl = 0.1 * weight * (gap.exp() - 1 - gap) * loss_mask(inputs)
    assert loss == pytest.approx(float((by_hand(inputs, logps) + kl).sum() / 4), rel=1e-5)


def test_a_rejection_and_a_weight_together(model, tmp_path):
    """Issue 17.20: rows dropped by their geometric mean, the rest weighted by min(rho, cap) a token."""
    settings = {
        "correction": ("geometric_rejection", "token_tis"),
        "correction_low": 0.8,
        "correction_high": 1.25,
    }
    inputs, logps, loss, _ = second(model, tmp_path, objective="grpo", correction_cap=1.1, **settings)
    mask, old = loss_mask(inputs), inputs["old_per_token_logps"]
    raw = old - inputs["sampling_per_token_logps"]
    keep = mis(raw, mask, low=0.8, high=1.25, level="geometric", weigh=False).keep
    assert 0 < int(keep.sum()) < int(mask.sum())
    weights = tis(raw, mask, cap=1.1).weights
    expected = ppo_clip(
        logps, old, inputs["advantages"], mask, denominator=4, lengths=sequence_lengths(mask), weights=weights, keep=keep
    )  # fmt: skip
    assert loss == pytest.approx(float(expected.value), rel=1e-5)

"""What verl's policy losses cannot have is refused by name before verl is even imported; what its weights must be, on plain tensors."""

from __future__ import annotations

import doctest
import math
import sys

import pytest
import torch

import trimtab.adapters.verl.micro_batch as columns_module
import trimtab.objectives
from trimtab.adapters.verl.micro_batch import divisor
from trimtab.adapters.verl.policy_losses import OBJECTIVES, policy_loss, register
from trimtab.adapters.verl.unsupported import REFUSED, mu_of
from trimtab.errors import ObjectiveError, UnsupportedError

HELPERS = {
    "aggregate", "batch_size_rules", "combine", "count_marks", "group_advantages", "kl_terms", "local_denominator", "merge_counts",
    "per_token", "ppo_clip", "ratio_at", "sequence_lengths", "sequence_log_weights", "trainable", "weight_sums",
}  # fmt: skip


def test_every_objective_is_either_there_or_refused():
    public = {name for name in trimtab.objectives.__all__ if name.islower()} - HELPERS
    assert "decoupled_ppo" in public
    known = {"decoupled_ppo" if name == "decoupled" else name for name in OBJECTIVES} | set(REFUSED)
    assert public <= known
    assert not set(OBJECTIVES) & set(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_what_verl_does_not_hand_over_is_refused_at_registration(name):
    with pytest.raises(UnsupportedError) as refused:
        register("minirl", name)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


def test_the_words_of_a_refusal():
    with pytest.raises(
        UnsupportedError, match=r"no rollout log-probabilities, so veto .* algorithm.rollout_correction"
    ):
        register("veto")
    with pytest.raises(UnsupportedError, match=r"actor\.use_kl_loss=True"):
        register("kl_penalty")
    with pytest.raises(
        ObjectiveError, match="no objective is called 'mini'; verl can have minirl, reinforce"
    ):
        register("mini")
    with pytest.raises(ObjectiveError, match="give numbers with one objective"):
        register(cap=3.0)
    with pytest.raises(ObjectiveError, match="ppo takes the numbers none; cap is not one"):
        register("ppo", cap=3.0)
    with pytest.raises(
        ObjectiveError, match="decoupled_kl takes the numbers beta, cap, estimator; beta must be given"
    ):
        register("decoupled_kl")


def test_without_verl_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "verl", None)
    monkeypatch.setitem(sys.modules, "verl.trainer.ppo.core_algos", None)
    with pytest.raises(UnsupportedError, match="needs verl"):
        register()


def test_denominators():
    assert doctest.testmod(columns_module).failed == 0
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]]).bool()
    one = {mode: divisor(mode, mask, {})[0] for mode in columns_module.MODES}
    assert one == {"token-mean": 3, "token-sum": 1, "seq-mean-token-sum": 2, "seq-mean-token-mean": 2, "seq-mean-token-sum-norm": 6}  # fmt: skip
    info = {"dp_size": 4, "batch_num_tokens": 100, "global_batch_size": 32, "loss_scale_factor": 10}
    many = {mode: divisor(mode, mask, info)[0] for mode in columns_module.MODES}
    assert many == {"token-mean": 25, "token-sum": 0.25, "seq-mean-token-sum": 8, "seq-mean-token-mean": 8, "seq-mean-token-sum-norm": 80}  # fmt: skip
    assert divisor("seq-mean-token-mean", mask, info)[1].tolist() == [2, 1, 0]
    assert divisor("token-mean", mask & False, {})[0] == 1
    for mode in ("token-mean", "seq-mean-token-sum"):
        with pytest.raises(ObjectiveError, match="over 2 ranks needs the whole batch's size"):
            divisor(mode, mask, {"dp_size": 2})
    with pytest.raises(ObjectiveError, match="loss_agg_mode must be one of token-mean"):
        divisor("mean", mask, {})


def weights_of(log_ratio):
    return torch.exp(torch.as_tensor(log_ratio))


def test_mu_is_read_off_untruncated_token_weights():
    old, gap = torch.randn(3, 10).double(), 0.4 * torch.randn(3, 10).double()
    mask = torch.ones(3, 10).bool()
    mask[1, 4:] = False
    weights = torch.where(mask, weights_of(gap), 0.0)  # verl gives 0 outside the mask
    mu = mu_of("trimtab_minirl", old, weights, mask)
    torch.testing.assert_close(mu[mask], (old - gap)[mask], rtol=1e-13, atol=1e-13)
    assert bool(torch.isfinite(mu).all())
    nothing = torch.zeros(0, 4)
    assert mu_of("x", nothing, nothing, nothing.bool()).shape == (0, 4)
    assert math.isnan(mu_of("x", old, torch.full_like(old, math.nan), mask)[0, 0])


def test_weights_that_lost_mu_are_refused():
    old, mask = torch.zeros(3, 10), torch.ones(3, 10).bool()
    raw = weights_of(torch.linspace(-1, 1.4, 30).reshape(3, 10))
    mu_of("x", old, raw, mask)  # untruncated: e^1.4 is 4.055
    for weights, words in (
        (None, "no rollout_is_weights arrive"),
        (raw.clamp(max=2.0), "they end at 2"),
        (raw.clamp(max=1.5), "they end at 1.5"),
        (torch.where(raw > 0.5, raw, 0.0), "some are 0"),
        (raw[:, :1].expand(3, 10), "one weight"),
    ):
        with pytest.raises(UnsupportedError, match=words) as refused:
            mu_of("x", old, weights, mask)
        assert "set algorithm.rollout_correction.rollout_is=token, rollout_is_threshold=1e9" in str(
            refused.value
        )


def test_what_looks_like_lost_weights_and_is_not():
    old, mask = torch.zeros(2, 10), torch.ones(2, 10).bool()
    mu_of("x", old, torch.ones(2, 10), mask)  # equal engines
    short = mask.clone()
    short[:, 3:] = False
    mu_of("x", old, torch.full((2, 10), math.exp(0.31)), short)  # answers of three tokens prove nothing
    coarse = weights_of(torch.tensor([[k % 4 / 256 for k in range(10)]] * 2))  # bf16 log-probabilities tie
    mu_of("x", old, coarse, mask)


def test_a_loss_without_the_actors_settings_says_so():
    one = torch.ones(1, 1)
    with pytest.raises(ObjectiveError, match="trimtab_ppo needs config"):
        policy_loss("ppo")(old_log_prob=one, log_prob=one, advantages=one, response_mask=one)

"""trimtab's policy losses in verl's own table: parity with verl's losses, its denominators, its weights and its `ppo_loss`.

`bash .ci/verl.sh` makes an environment with verl and runs this file; float64 throughout.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="needs verl: run bash .ci/verl.sh")
import torch
from tensordict import TensorDict
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, agg_loss, get_policy_loss_fn
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights
from verl.utils import tensordict_utils as tu
from verl.workers.config import ActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss

from trimtab.adapters.verl import register
from trimtab.adapters.verl.micro_batch import MODES, divisor
from trimtab.adapters.verl.policy_losses import OBJECTIVES
from trimtab.errors import UnsupportedError
from trimtab.objectives import aggregate, decoupled_kl, decoupled_ppo, minirl

pytestmark = pytest.mark.verl
ROOT = Path(__file__).parents[2]
REGISTERED = register()
STEP = {"dp_size": 4, "batch_num_tokens": 150, "global_batch_size": 24, "loss_scale_factor": 20}
EXACT = {"rel": 1e-12, "abs": 0.0}


def actor(info=None, **settings):
    own = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 2.0, **settings}
    config = ActorConfig(strategy="fsdp", rollout_n=4, ppo_micro_batch_size_per_gpu=4, **own)
    config.global_batch_info.update(info or {})
    return config


def batch(seed=0, rows=5, tokens=12, equal=False, scale=0.4):
    """verl's tensors: padding at the end, an inner run of tool tokens, advantages spread over the tokens, a bool mask."""
    g = torch.Generator().manual_seed(seed)
    draw = lambda s=1.0: s * torch.randn(rows, tokens, generator=g, dtype=torch.float64)  # noqa: E731
    mask = torch.ones(rows, tokens).bool()
    if not equal:
        for row in range(rows):
            mask[row, tokens - row :] = False
            mask[row, 2 : 2 + row] = False
    old = -1.5 + draw(0.5)
    advantages = torch.randn(rows, 1, generator=g, dtype=torch.float64).expand(rows, tokens) * mask
    return {
        "old_log_prob": old, "log_prob": old + draw(scale), "advantages": advantages, "response_mask": mask,
        "gap": draw(0.4),
    }  # fmt: skip


def called(loss, b, config, mode, weights=None):
    """(value, gradient, metrics) of a policy loss called as verl calls it."""
    now = b["log_prob"].clone().requires_grad_()
    value, metrics = loss(
        old_log_prob=b["old_log_prob"], log_prob=now, advantages=b["advantages"], response_mask=b["response_mask"],
        loss_agg_mode=mode, config=config, rollout_is_weights=weights,
    )  # fmt: skip
    value.backward()
    return float(value.detach()), now.grad, metrics


def same(one, two, tolerance=EXACT):
    assert one[0] == pytest.approx(two[0], **tolerance)
    torch.testing.assert_close(one[1], two[1], rtol=tolerance["rel"], atol=1e-15)
    assert abs(one[0]) > 1e-4
    assert float(one[1].abs().max()) > 1e-5


def of(name):
    return get_policy_loss_fn(f"trimtab_{name}")


def test_registered_under_names_of_their_own():
    assert set(REGISTERED) == {f"trimtab_{name}" for name in OBJECTIVES if name != "decoupled_kl"}
    assert set(REGISTERED) <= set(POLICY_LOSS_REGISTRY)
    assert POLICY_LOSS_REGISTRY["vanilla"] is core_algos.compute_policy_loss_vanilla
    assert register("decoupled_kl", beta=0.1) == ("trimtab_decoupled_kl",)


@pytest.mark.parametrize("info", [{}, STEP], ids=["alone", "step"])
@pytest.mark.parametrize("mode", MODES)
def test_aggregation_is_verls(mode, info):
    b = batch(1)
    mask = b["response_mask"]
    denominator, lengths = divisor(mode, mask, info)
    ours = float(aggregate(b["gap"], mask, denominator=denominator, lengths=lengths))
    theirs = float(agg_loss(loss_mat=b["gap"], loss_mask=mask, loss_agg_mode=mode, **info))
    assert ours == pytest.approx(theirs, **EXACT)


SAME = {
    "ppo": ("vanilla", MODES, {}),
    "grpo": ("vanilla", ("seq-mean-token-mean",), {"clip_ratio_c": 1e9}),  # the papers have no dual clip
    "dr_grpo": ("vanilla", ("seq-mean-token-sum-norm",), {"clip_ratio_c": 1e9}),
    "dapo": ("vanilla", ("token-mean",), {"clip_ratio_c": 1e9}),
    "gspo": ("gspo", ("seq-mean-token-mean",), {"clip_ratio_low": 0.1, "clip_ratio_high": 0.1}),
    "cispo": ("cispo", ("token-mean",), {}),
}


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("info", [{}, STEP], ids=["alone", "step"])
@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name in SAME for mode in SAME[name][1]])
def test_value_and_gradient_are_those_of_verls_own_loss(name, mode, info, weighted):
    theirs, _, settings = SAME[name]
    b = batch(2)
    weights = torch.exp(b["gap"]).clamp(max=2.0) * b["response_mask"] if weighted else None
    config = actor(info, **settings)
    ours = called(of(name), b, config, mode, weights)
    verls = called(get_policy_loss_fn(theirs), b, config, mode, weights)
    same(ours, verls)
    own, other = ours[2], verls[2]
    assert own["actor/pg_clipfrac"] == pytest.approx(other["actor/pg_clipfrac"], rel=1e-5)
    assert own["actor/ppo_kl"] == pytest.approx(other["actor/ppo_kl"], rel=1e-6)
    clipped = own["actor/trimtab/clipped_high"] + own["actor/trimtab/clipped_low"]
    assert clipped / own["actor/trimtab/tokens"] == pytest.approx(own["actor/pg_clipfrac"], rel=1e-12)
    assert 0 < clipped < own["actor/trimtab/tokens"] == int(b["response_mask"].sum())
    if name == "ppo":
        dual = own["actor/trimtab/dual"] / own["actor/trimtab/tokens"]
        assert dual == pytest.approx(other["actor/pg_clipfrac_lower"], rel=1e-5)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("mode", ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm"])
def test_reinforce_is_verls(mode, weighted):
    b = batch(3)
    weights = torch.exp(b["gap"]) * b["response_mask"] if weighted else None
    config = actor(STEP)
    now = b["log_prob"].clone().requires_grad_()
    value, _ = core_algos.compute_policy_loss_reinforce(
        b["old_log_prob"], now, b["advantages"], b["response_mask"], mode, config, weights
    )
    value.backward()
    same(called(of("reinforce"), b, config, mode, weights), (float(value.detach()), now.grad))


def test_nothing_is_clamped_where_verl_clamps_the_log_ratio():
    b = batch(4, rows=1, tokens=4, equal=True)
    b["log_prob"] = b["old_log_prob"] + torch.tensor([[25.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    b["advantages"] = -torch.ones(1, 4, dtype=torch.float64)
    config = actor(clip_ratio_c=1e300)
    ours = called(of("dapo"), b, config, "token-mean")
    verls = called(get_policy_loss_fn("vanilla"), b, config, "token-mean")
    assert ours[0] == pytest.approx((math.exp(25) + 3) / 4, rel=1e-12)
    assert verls[0] == pytest.approx((math.exp(20) + 3) / 4, rel=1e-12)
    assert float(verls[1][0, 0]) == 0.0  # and the gradient of that token is gone there
    assert float(ours[1][0, 0]) == pytest.approx(math.exp(25) / 4, rel=1e-12)


def verls_weights(b, level="token", threshold=1e9):
    return compute_rollout_correction_weights(
        b["gap"], b["response_mask"], rollout_is=level, rollout_is_threshold=threshold
    )[0]


def by_hand(b, cap=5.0, low=0.2, high=0.27):
    """MiniRL's sum over tokens, eq. 7, token by token; mu = pi_old / exp(gap)."""
    total = 0.0
    for row, token in b["response_mask"].nonzero().tolist():
        now, old, gap, a = (
            float(b[key][row, token]) for key in ("log_prob", "old_log_prob", "gap", "advantages")
        )
        staleness = math.exp(now - old)
        clipped = (a > 0 and staleness > 1 + high) or (a < 0 and staleness < 1 - low)
        total -= 0.0 if clipped else min(math.exp(now - (old - gap)), cap) * a * now
    return total


def test_minirl_on_verls_untruncated_token_weights():
    b = batch(5, rows=6, scale=1.0)
    config = actor(STEP, clip_ratio_high=0.27)
    value, gradient, metrics = called(of("minirl"), b, config, "seq-mean-token-sum", verls_weights(b))
    assert value == pytest.approx(by_hand(b) / 24 * 4, **EXACT)
    now = b["log_prob"].clone().requires_grad_()
    mu = b["old_log_prob"] - b["gap"]
    known = minirl(now, b["old_log_prob"], mu, b["advantages"], b["response_mask"], denominator=24 / 4)
    known.value.backward()
    same((value, gradient), (float(known.value.detach()), now.grad))
    for mark in ("truncated", "clipped_high", "clipped_low", "nonfinite"):
        assert metrics[f"actor/trimtab/{mark}"] == int(known.counts[mark]["all"])
    assert metrics["actor/trimtab/truncated"] > 0
    assert metrics["actor/trimtab/clipped_low"] > 0


def test_minirls_ablations():
    b, config = batch(6), actor(clip_ratio_high=0.27)
    rest = (b["old_log_prob"], None, b["advantages"], b["response_mask"])
    register("minirl", importance=False)
    try:
        value = called(of("minirl"), b, config, "seq-mean-token-mean")[0]
        plain = minirl(b["log_prob"], *rest, denominator=5, importance=False, length_norm=True)
        assert value == pytest.approx(float(plain.value), **EXACT)
        with pytest.raises(
            UnsupportedError, match="importance=False has no weight, but rollout_is_weights arrive"
        ):
            called(of("minirl"), b, config, "seq-mean-token-mean", verls_weights(b))
        register("minirl", cap=1.1, clip=False)
        value = called(of("minirl"), b, config, "seq-mean-token-sum", verls_weights(b))[0]
        assert value == pytest.approx(by_hand(b, cap=1.1, low=math.inf, high=math.inf) / 5, **EXACT)
    finally:
        register("minirl")


@pytest.mark.parametrize("name", ["decoupled", "decoupled_kl"])
def test_decoupled_ppo_is_anchored_at_pi_old(name):
    b, config = batch(7), actor(STEP)
    policies = (
        b["log_prob"],
        b["old_log_prob"],
        b["old_log_prob"] - b["gap"],
        b["advantages"],
        b["response_mask"],
    )
    denominator = 150 / 4
    if name == "decoupled":
        known = decoupled_ppo(*policies, denominator=denominator, eps_low=0.2, eps_high=0.28)
    else:
        register("decoupled_kl", beta=0.1)
        known = decoupled_kl(*policies, denominator=denominator, beta=0.1)
    value = called(of(name), b, config, "token-mean", verls_weights(b))[0]
    assert value == pytest.approx(float(known.value), **EXACT)
    with pytest.raises(UnsupportedError, match=f"trimtab_{name} needs pi_old/mu of each token"):
        called(of(name), b, config, "token-mean")


@pytest.mark.parametrize(
    ("level", "threshold", "words"),
    [("token", 2.0, "they end at 2:"), ("token", "0.5_2.0", "some are 0"), ("sequence", 1e9, "one weight"), ("sequence", 2.0, "one weight")],
)  # fmt: skip
def test_minirl_refuses_what_verl_made_of_the_weights(level, threshold, words):
    b = batch(8, rows=6)
    b["gap"][0] += 0.2
    with pytest.raises(UnsupportedError, match=f"trimtab_minirl needs .*{words}"):
        called(of("minirl"), b, actor(), "seq-mean-token-sum", verls_weights(b, level, threshold))


@pytest.mark.parametrize("name", ["minirl", "grpo", "dr_grpo", "dapo", "gspo", "cispo"])
def test_another_denominator_is_another_algorithm(name):
    allowed = OBJECTIVES[name].modes
    with pytest.raises(UnsupportedError, match=rf"set actor\.loss_agg_mode={allowed[0]}$"):
        called(of(name), batch(), actor(), next(mode for mode in MODES if mode not in allowed))


def test_an_empty_micro_batch_and_a_value_that_is_no_number():
    b = batch(9)
    b["response_mask"] = torch.zeros_like(b["response_mask"])
    value, gradient, metrics = called(of("ppo"), b, actor(), "token-mean")
    assert (value, float(gradient.abs().max()), metrics["actor/trimtab/tokens"]) == (0.0, 0.0, 0)
    b = batch(9)
    b["log_prob"][0, 0] = math.nan
    value, _, metrics = called(of("ppo"), b, actor(), "token-mean")
    assert math.isnan(value)
    assert metrics["actor/trimtab/nonfinite"] == 1


def nested(b, rows, info, weights):
    """verl's data of a micro-batch: jagged, two prompt tokens a row, all response places kept."""

    def jagged(tensor):  # fmt: skip
        return torch.nested.as_nested_tensor([tensor[row] for row in rows], layout=torch.jagged)

    width = b["log_prob"].shape[1]
    data = TensorDict(
        {
            "prompts": jagged(torch.ones(len(b["log_prob"]), 2, dtype=torch.long)),
            "responses": jagged(torch.ones(len(b["log_prob"]), width, dtype=torch.long)),
            "response_mask": jagged(b["response_mask"].long()),
            "old_log_probs": jagged(b["old_log_prob"]), "advantages": jagged(b["advantages"]),
            "rollout_is_weights": jagged(weights),
        },
        batch_size=len(rows),
    )  # fmt: skip
    for key in ("dp_size", "batch_num_tokens", "global_batch_size"):
        tu.assign_non_tensor(data, **{key: info[key]})
    return data


def test_through_verls_ppo_loss_two_micro_batches_are_one():
    b = batch(10, rows=5)
    weights = verls_weights(b)
    info = {"dp_size": 1, "batch_num_tokens": int(b["response_mask"].sum()), "global_batch_size": 5}
    chosen = PolicyLossConfig(loss_mode="trimtab_minirl")

    def run(rows):
        config = actor(clip_ratio_high=0.27, loss_agg_mode="seq-mean-token-sum", policy_loss=chosen)
        now = b["log_prob"][rows].clone().requires_grad_()
        # the model scores the token after each place: verl shifts by one, the last place and the prompt's are unused
        places = [
            torch.cat([torch.zeros(1, dtype=torch.float64), row, torch.zeros(1, dtype=torch.float64)])
            for row in now
        ]
        scored = {"log_probs": torch.nested.as_nested_tensor(places, layout=torch.jagged)}
        value, metrics = ppo_loss(config, scored, nested(b, rows, info, weights))
        value.backward()
        return float(value.detach()), now.grad, metrics

    whole = run([0, 1, 2, 3, 4])
    parts = [run([0, 1]), run([2, 3, 4])]
    assert whole[0] == pytest.approx(by_hand(b) / 5, **EXACT)
    assert parts[0][0] + parts[1][0] == pytest.approx(whole[0], **EXACT)
    torch.testing.assert_close(torch.cat([parts[0][1], parts[1][1]]), whole[1], rtol=1e-12, atol=0.0)
    both = parts[0][2]
    for name, metric in parts[1][2].items():
        both[name].append(metric)
    for mark in (
        "clipped_high",
        "clipped_low",
        "truncated",
    ):  # a quotient of verl's means is the share of the step
        share = both[f"actor/trimtab/{mark}"].aggregate() / both["actor/trimtab/tokens"].aggregate()
        assert share == pytest.approx(
            whole[2][f"actor/trimtab/{mark}"].aggregate() / info["batch_num_tokens"], rel=1e-12
        )


LOADED = "from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY as r; print(sum(n.startswith('trimtab_') for n in r))"


@pytest.mark.parametrize("how", ["external_lib", "environment"])
def test_the_two_lines_of_a_user_load_it_in_a_fresh_process(tmp_path, how):
    code, environment = LOADED, {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    if how == "external_lib":
        from transformers import LlamaConfig

        tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
        LlamaConfig(architectures=["LlamaForCausalLM"], **tiny).save_pretrained(tmp_path)
        made = f"HFModelConfig(path={str(tmp_path)!r}, load_tokenizer=False, external_lib='trimtab.adapters.verl.plugin')"
        code = f"from verl.workers.config import HFModelConfig; {made}; {LOADED}"
    else:
        environment["VERL_USE_EXTERNAL_MODULES"] = "trimtab.adapters.verl.plugin"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[-1] == str(len(REGISTERED))

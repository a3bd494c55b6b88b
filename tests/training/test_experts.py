"""R2 and R3 in training: which experts every forward used, seen at the experts themselves, and what is refused."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch

from tests.training.tiny import Spy, assert_same, fixed_rollout, loss_mask, moe, ours, trained
from trimtab.errors import ObjectiveError, RoutesError
from trimtab.training import MiniRLConfig

LAYERS, TOP, EXPERTS = 2, 2, 8


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return moe(tmp_path_factory.mktemp("moe"))


def routed(change=None):
    """The fixed rollout with routes nobody's router would take: token t of layer l to experts t + l and t + l + 3."""
    inner = fixed_rollout()

    def rollout(prompts, trainer):
        out = inner(prompts, trainer)
        out["routes"] = [
            pattern(len(p) + len(c) - 1)
            for p, c in zip(out["prompt_ids"], out["completion_ids"], strict=True)
        ]
        if change is not None:
            change(out)
        return out

    return rollout


def pattern(tokens):
    first = torch.arange(tokens)[:, None] + torch.arange(LAYERS)
    return (torch.stack([first, first + 3], dim=-1) % EXPERTS).numpy()


class Used:
    """Experts that each forward hands to the expert modules, by layer: (calls, N, K)."""

    def __init__(self, model):
        self.calls = [[] for _ in range(LAYERS)]
        for number, layer in enumerate(model.model.layers):
            layer.mlp.experts.register_forward_pre_hook(self.keep(number), with_kwargs=True)

    def keep(self, number):
        def hook(module, args, kwargs):
            taken = args[1] if len(args) > 1 else kwargs["top_k_index"]
            self.calls[number].append((torch.is_grad_enabled(), taken.clone()))

        return hook


@pytest.mark.parametrize("checkpointing", [False, True])
def test_r3_forces_the_samplers_experts_in_every_pass_and_the_router_learns(model, tmp_path, checkpointing):
    keep = {
        "num_iterations": 2,
        "max_steps": 2,
        "routing_replay": "R3",
        "ewma_centre_of_mass": 2.0,
        "gradient_checkpointing": checkpointing,
    }
    seen = {}

    def watch_experts(*arguments, **named):
        made = ours(*arguments, **named)
        seen["used"], seen["spy"] = Used(made.model), Spy(made)
        return made

    steps, trainer = trained(watch_experts, model, tmp_path, rollout=routed(), **keep)
    inputs = seen["spy"].seen[0][0]
    routes, required = inputs["trimtab_routes"].long(), inputs["trimtab_routes_required"].flatten()
    for number, calls in enumerate(seen["used"].calls):
        modes = [grad for grad, _ in calls]
        assert modes.count(False) >= 3  # pi_old once, pi_prox twice
        assert modes.count(True) >= 2
        wanted = routes[:, :, number].flatten(0, 1)[required].sort(-1).values
        passes = [taken.sort(-1).values for _, taken in calls]
        assert all(torch.equal(taken[required], wanted) for taken in passes[-2:])
        for taken in passes:  # rows of pi_old's pass stand as they came, before TRL's shuffle
            assert not Counter(map(tuple, wanted.tolist())) - Counter(map(tuple, taken.tolist()))
    for grads in steps:
        for layer in range(LAYERS):
            assert float(grads[f"model.layers.{layer}.mlp.gate.weight"].abs().max()) > 1e-6
    assert trainer.state.log_history[0]["routing/missing_layer_0_frac"] == 0


def test_r2_keeps_the_routes_of_pi_old_after_the_router_moved(model, tmp_path):
    shared = {"num_iterations": 3, "max_steps": 3, "learning_rate": 0.5, "rollout": fixed_rollout()}
    changed = {}
    for mode in ("off", "R2"):
        trainer = ours(model, tmp_path / mode, routing_replay=mode, routing_compare=mode == "R2", **shared)
        used, spy = Used(trainer.model), Spy(trainer)
        trainer.train()
        train = [taken.sort(-1).values for grad, taken in used.calls[1] if grad]
        changed[mode] = float((train[0] != train[-1]).any(-1).float().mean())
        if mode == "R2":
            assert all(torch.equal(train[0], other) for other in train)
            history = trainer.state.log_history
            assert history[0]["routing/changed_frac"] == 0
            assert history[2]["routing/changed_frac"] > 0.01
            first, third = spy.seen[0], spy.seen[2]
            mask = loss_mask(first[0])
            gap = (first[1] - first[0]["old_per_token_logps"])[mask].abs().max()
            assert float(gap) < 1e-5  # first update: recorded is natural
            assert torch.equal(first[0]["trimtab_routes"], third[0]["trimtab_routes"])
    assert changed == {"off": pytest.approx(changed["off"]), "R2": 0.0}
    assert changed["off"] > 0.01


def test_r2_is_a_no_op_with_one_update_a_batch(model, tmp_path):
    rollout = fixed_rollout()
    plain, _ = trained(ours, model, tmp_path / "a", rollout=rollout, max_steps=2)
    replayed, _ = trained(ours, model, tmp_path / "b", rollout=rollout, max_steps=2, routing_replay="R2")
    assert_same(plain, replayed, rtol=0.0, atol=0.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda out: out.pop("routes"), "R3 needs `routes`"),
        (lambda out: out["routes"].__setitem__(1, pattern(3)), "row 1 has 3 routes"),
        (lambda out: out["routes"].__setitem__(2, None), "row 2 has no routes"),
        (lambda out: out["routes"][2].__setitem__((4, 1), -1), "no recorded route"),
        (lambda out: out["routes"][2].__setitem__((4, 1, 0), 8), "an expert outside 0 to 7"),
        (lambda out: out["logprobs"].__setitem__(0, [0.0]), "row 0 has 1 log-probabilities"),
        (lambda out: out.__setitem__("logprobs", None), "needs the sampler's log-probabilities"),
    ],
)
def test_what_a_rollout_lacks_is_named(model, tmp_path, change, words):
    trainer = ours(model, tmp_path, rollout=routed(change), max_steps=1, routing_replay="R3")
    with pytest.raises(ObjectiveError, match=words):
        trainer.train()
    assert issubclass(RoutesError, ObjectiveError)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda out: out["routes"].__setitem__(1, pattern(len(out["completion_ids"][1]))),
            "row 1 has .* of the prompt",
        ),
        (lambda out: out["routes"].__setitem__(1, pattern(60)), "row 1 has 60 routes"),
    ],
)
def test_routes_that_may_start_elsewhere_are_refused_whatever_may_be_missing(model, tmp_path, change, words):
    settings = {"max_steps": 1, "routing_replay": "R3", "routing_allow_missing": True}
    trainer = ours(model, tmp_path, rollout=routed(change), **settings)
    with pytest.raises(RoutesError, match=words):
        trainer.train()


def test_shares_are_of_the_required_tokens_of_a_layer_in_the_policys_own_pass(model, tmp_path):
    def change(out):
        out["routes"][2][4:7, 1] = -1
        out["routes"][3] = None

    settings = {
        "max_steps": 1,
        "routing_replay": "R3",
        "routing_allow_missing": True,
        "routing_compare": True,
    }
    rows = []
    for own in ({}, {"ewma_centre_of_mass": 2.0, "pad_to_multiple_of": 64}):
        if set(own) - set(MiniRLConfig.__dataclass_fields__):
            continue
        trainer = ours(model, tmp_path, rollout=routed(change), **settings, **own)
        spy = Spy(trainer)
        trainer.train()
        rows.append(trainer.state.log_history[0])
        inputs = spy.seen[0][0]
        required, routes = inputs["trimtab_routes_required"], inputs["trimtab_routes"]
        gone = (routes == -1).all(-1) & required[..., None]
        number = int(required.sum())
        assert int(gone[..., 1].sum()) == int(gone[..., 0].sum()) + 3 > 3
        for layer in range(LAYERS):
            share = int(gone[..., layer].sum()) / number
            assert rows[-1][f"routing/missing_layer_{layer}_frac"] == pytest.approx(share, rel=1e-6)
        assert 0.5 < rows[-1]["routing/changed_frac"] < 1 - int(gone.sum()) / number / LAYERS
    assert rows[0]["routing/changed_frac"] == pytest.approx(rows[-1]["routing/changed_frac"], abs=1e-6)


@pytest.mark.parametrize("peft", [False, True])
def test_the_reference_takes_the_replayed_experts_too(model, tmp_path, peft):
    extra = {}
    if peft:  # a fresh adapter: the reference is this model without it
        library = pytest.importorskip("peft")
        extra["peft_config"] = library.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    trainer = ours(model, tmp_path, rollout=routed(), max_steps=1, routing_replay="R3", beta=0.1, **extra)
    trainer.train()
    assert trainer.state.log_history[0]["kl"] == pytest.approx(0, abs=1e-6)  # equal weights, equal experts


def test_r2_replays_pi_old_in_the_reference_after_the_router_moved(model, tmp_path):
    shared = {"num_iterations": 2, "max_steps": 3, "learning_rate": 0.5, "routing_replay": "R2", "beta": 0.01}
    trainer = ours(model, tmp_path, rollout=fixed_rollout(), **shared)
    used, spy = Used(trainer.ref_model), Spy(trainer)
    trainer.train()
    inputs = spy.seen[2][0]
    required = inputs["trimtab_routes_required"].flatten()
    for number, calls in enumerate(used.calls):
        assert len(calls) == 2  # one a generation
        wanted = inputs["trimtab_routes"].long()[:, :, number].flatten(0, 1)[required].sort(-1).values
        taken = calls[1][1].sort(-1).values
        assert not Counter(map(tuple, wanted.tolist())) - Counter(map(tuple, taken.tolist()))


def test_missing_routes_are_counted_by_layer_when_allowed(model, tmp_path):
    def change(out):
        out["routes"][2][4, 1] = -1

    trainer = ours(
        model, tmp_path, rollout=routed(change), max_steps=1, routing_replay="R3", routing_allow_missing=True
    )
    trainer.train()
    row = trainer.state.log_history[0]
    assert "routing/changed_frac" not in row
    assert row["routing/missing_layer_0_frac"] == 0
    assert row["routing/missing_layer_1_frac"] > 0

"""The gradients of training steps are TRL's own where the formulas coincide, through the public trainers."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the trl extra")

from transformers.utils import logging

from tests.adapters.tiny_trl import text_rows, tiny_model
from tests.training.tiny import assert_same, fixed_rollout, moe, ours, plain, trained


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))[0]


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo": ({"loss_type": "grpo"}, {"objective": "grpo"}),
    "grpo_reference": ({"loss_type": "grpo", "beta": 0.1, "use_bias_correction_kl": False}, {"objective": "grpo", "beta": 0.1}),
    "dual": ({"loss_type": "dapo", "delta": 1.1, "epsilon_high": 0.05}, {"objective": "ppo", "delta": 1.1, "epsilon_high": 0.05}),
    "dapo": ({"loss_type": "dapo", "epsilon_high": 0.28}, {"objective": "dapo"}),
    "dr_grpo": ({"loss_type": "dr_grpo", "scale_rewards": "none"}, {"objective": "dr_grpo"}),
    "gspo": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.02, "epsilon_high": 0.03, "learning_rate": 2e-3},
        {"objective": "gspo", "epsilon": 0.02, "epsilon_high": 0.03, "learning_rate": 2e-3},
    ),
    "cispo": ({"loss_type": "cispo", "epsilon_high": 1.01}, {"objective": "cispo", "epsilon_high": 1.01}),
    "off_policy": (
        {"loss_type": "grpo", "off_policy_mask_threshold": 0.05},
        {"objective": "grpo", "off_policy_mask_threshold": 0.05},
    ),
}  # fmt: skip


def undivided(*arguments: Any, **named: Any) -> Any:
    """Under transformers 5.2 accelerate divides TRL's loss, already divided, by the accumulation steps once more; not here."""
    trainer = plain(*arguments, **named)
    trainer.accelerator.gradient_accumulation_steps = 1
    return trainer


@pytest.mark.parametrize("case", CASES)
def test_two_updates_of_two_micro_batches_give_the_gradients_of_trl(model, tmp_path, case):
    theirs, own = CASES[case]
    shared = {"gradient_accumulation_steps": 2, "num_iterations": 2, "max_steps": 3}
    rollout = fixed_rollout(tools=True, path=model)
    one, _ = trained(undivided, model, tmp_path / "a", rollout=rollout, **shared, **theirs)
    two, trainer = trained(ours, model, tmp_path / "b", rollout=rollout, **shared, **own)
    assert_same(one, two)
    if case != "cispo":
        assert "clip_ratio/region_mean" in trainer.state.log_history[1]


def test_the_load_balancing_loss_of_a_mixture_is_trls(tmp_path):
    if not hasattr(__import__("trl").GRPOConfig, "router_aux_loss_coef"):
        pytest.skip("this TRL adds no auxiliary loss")
    model = moe(tmp_path / "moe", router_aux_loss_coef=0.5)
    shared = {"rollout": fixed_rollout(), "gradient_accumulation_steps": 2, "max_steps": 2}
    one, _ = trained(undivided, model, tmp_path / "a", loss_type="grpo", **shared)
    two, _ = trained(ours, model, tmp_path / "b", objective="grpo", **shared)
    assert_same(one, two)
    bare, _ = trained(ours, model, tmp_path / "c", objective="grpo", router_aux_loss_coef=0.0, **shared)
    gate = "model.layers.0.mlp.gate.weight"
    assert (bare[0][gate] - two[0][gate]).abs().max() > 1e-4


def test_the_logged_loss_is_the_policys_and_the_coefficient_times_the_routers(tmp_path, caplog):
    """The coefficient comes from the model's config: that is said, and all three numbers are logged. Oracles: TRL, and a run without."""
    if not hasattr(__import__("trl").GRPOConfig, "router_aux_loss_coef"):
        pytest.skip("this TRL adds no auxiliary loss")
    model = moe(tmp_path / "moe", router_aux_loss_coef=0.5)
    shared = {
        "rollout": fixed_rollout(),
        "gradient_accumulation_steps": 2,
        "max_steps": 1,
        "objective": "grpo",
    }
    logging.enable_propagation()  # of transformers' loggers, to pytest's
    rows = {}
    for name, own in {
        "adopted": {},
        "off": {"router_aux_loss_coef": 0.0},
        "set": {"router_aux_loss_coef": 2.0},
    }.items():
        caplog.clear()
        _, trainer = trained(ours, model, tmp_path / name, eval_dataset=text_rows(4), eval_strategy="steps", eval_steps=1, **shared, **own)  # fmt: skip
        rows[name] = trainer.state.log_history[0]
        assert ("0.5 x aux_loss, as the model's config says" in caplog.text) == (name == "adopted")
        assert ("eval_trimtab/policy_loss" in trainer.state.log_history[1]) == (name != "off")
    shared |= {"loss_type": shared.pop("objective")}
    _, theirs = trained(undivided, model, tmp_path / "trl", **shared)
    assert rows["adopted"]["aux_loss"] == pytest.approx(theirs.state.log_history[0]["aux_loss"], rel=1e-5)
    assert rows["adopted"]["aux_loss"] > 1  # so it is larger than the policy's by far
    for name, coefficient in (("adopted", 0.5), ("set", 2.0)):
        row = rows[name]
        assert row["trimtab/aux_coefficient"] == coefficient
        assert row["trimtab/policy_loss"] == pytest.approx(rows["off"]["loss"], abs=1e-6)
        assert row["loss"] == pytest.approx(
            row["trimtab/policy_loss"] + coefficient * row["aux_loss"], rel=1e-5
        )
    assert not {"aux_loss", "trimtab/policy_loss", "trimtab/aux_coefficient"} & rows["off"].keys()

"""PPO-EWMA in training: the average is the closed form, the anchor is scored with it, and a resume continues it bit for bit."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch
from transformers import LlamaForCausalLM, TrainerCallback

from tests.adapters.tiny_trl import tiny_model
from tests.training.tiny import Spy, fixed_rollout, loss_mask, ours
from trimtab.objectives import decoupled_ppo


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))[0]


needs_entropy_gradient = pytest.mark.skipif(
    not hasattr(__import__("trl").GRPOConfig, "entropy_coef"), reason="this TRL's entropies have no gradient"
)


class Weights(TrainerCallback):
    """Trainable weights at the start and after every step."""

    def __init__(self):
        self.history = []

    def take(self, model):
        self.history.append({n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad})

    def on_train_begin(self, args, state, control, model=None, **_):
        self.take(model)

    def on_step_end(self, args, state, control, model=None, **_):
        self.take(model)


def closed_form(history, mass):
    decay = 1 - 1 / (1 + mass)
    weights = [decay ** (len(history) - 1 - k) for k in range(len(history))]
    total = sum(weights)
    return {
        name: sum(w * h[name].double() for w, h in zip(weights, history, strict=True)) / total
        for name in history[0]
    }


def test_the_average_is_the_closed_form_and_anchors_the_clip(model, tmp_path):
    keep = Weights()
    trainer = ours(
        model, tmp_path, rollout=fixed_rollout(tools=True, path=model), callbacks=[keep], max_steps=4, objective="decoupled",
        ewma_centre_of_mass=2.0, num_iterations=2, learning_rate=0.1,
    )  # fmt: skip
    spy = Spy(trainer)
    trainer.train()
    expected = closed_form(keep.history, 2.0)
    assert trainer.average.updates == 4
    for name, value in expected.items():
        torch.testing.assert_close(trainer.average.average[name].double(), value, rtol=1e-5, atol=1e-7)
        assert not torch.equal(trainer.average.average[name], keep.history[-1][name])
    inputs, logps, loss = spy.seen[3]
    clean = LlamaForCausalLM.from_pretrained(model).eval()
    clean.load_state_dict({n: v.float() for n, v in closed_form(keep.history[:4], 2.0).items()}, strict=False)
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attended = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    width, mask = inputs["completion_ids"].size(1), loss_mask(inputs)
    with torch.no_grad():
        logits = clean(input_ids=ids, attention_mask=attended).logits[:, -width - 1 : -1]
    oracle = logits.log_softmax(-1).gather(-1, inputs["completion_ids"][..., None])[..., 0]
    prox = inputs["prox_per_token_logps"]
    torch.testing.assert_close(prox[mask], oracle[mask], rtol=1e-4, atol=1e-5)
    assert (prox - inputs["old_per_token_logps"])[mask].abs().max() > 1e-2
    behaviour = inputs["sampling_per_token_logps"]
    hand = decoupled_ppo(logps, oracle, behaviour, inputs["advantages"], mask, denominator=float(mask.sum()))
    assert float(loss) == pytest.approx(float(hand.value), rel=1e-4)


def test_minirl_masks_on_the_average(model, tmp_path):
    settings = {
        "rollout": fixed_rollout(path=model),
        "ewma_centre_of_mass": 8.0,
        "max_steps": 3,
        "learning_rate": 0.1,
    }
    trainer = ours(model, tmp_path, **settings)
    spy = Spy(trainer)
    trainer.train()
    inputs, logps, loss = spy.seen[2]
    advantage = inputs["advantages"][:, None]
    stale = (logps - inputs["prox_per_token_logps"]).exp()
    out = ((advantage > 0) & (stale > 1.27)) | ((advantage < 0) & (stale < 0.8))
    assert out.any()
    weight = torch.where(out, 0.0, (logps - inputs["sampling_per_token_logps"]).exp().clamp(max=5))
    hand = -(weight * advantage * logps * loss_mask(inputs)).sum() / 4
    assert float(loss) == pytest.approx(float(hand), rel=1e-4)


@pytest.mark.parametrize("peft", [False, True])
def test_a_resume_continues_bit_for_bit(model, tmp_path, peft):
    extra = {}
    if peft:
        library = pytest.importorskip("peft")
        extra["peft_config"] = library.LoraConfig(
            r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"
        )
    shared = {
        "save_strategy": "steps", "save_steps": 2, "objective": "decoupled", "ewma_centre_of_mass": 3.0, "optim": "adamw_torch",
        "learning_rate": 1e-2, "max_steps": 4, **extra,
    }  # fmt: skip
    whole = ours(model, tmp_path / "whole", rollout=fixed_rollout(path=model), **shared)
    whole.train()
    again = ours(model, tmp_path / "again", rollout=fixed_rollout(path=model), **shared)
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "out" / "checkpoint-2"))
    assert again.average.updates == whole.average.updates == 4
    assert again.average.weight == whole.average.weight
    names = set(whole.average.average)
    assert all("lora" in name for name in names) == peft
    for name in names:
        assert torch.equal(whole.average.average[name], again.average.average[name])
        assert torch.equal(whole.average.parameters[name], again.average.parameters[name])
    assert any(not torch.equal(whole.average.average[n], whole.average.parameters[n]) for n in names)


@pytest.mark.parametrize("bonus", [None, pytest.param(0.1, marks=needs_entropy_gradient)])
def test_a_checkpoint_without_an_average_starts_one_at_its_weights(model, tmp_path, bonus, caplog):
    shared = {
        "save_strategy": "steps", "save_steps": 1, "max_steps": 1, "objective": "decoupled", "bonus_target": bonus
    }  # fmt: skip
    first = ours(model, tmp_path / "a", rollout=fixed_rollout(path=model), **shared)
    first.train()
    trained = copy.deepcopy(first.model.state_dict())
    shared |= {"max_steps": 2, "ewma_centre_of_mass": 1.0}
    keep = Weights()
    second = ours(model, tmp_path / "b", rollout=fixed_rollout(path=model), callbacks=[keep], **shared)
    second.train(resume_from_checkpoint=str(Path(first.args.output_dir) / "checkpoint-1"))
    assert "checkpoint-1 holds no weight average: it starts anew" in caplog.text
    assert second.average.updates == 1
    for name, value in second.average.average.items():
        torch.testing.assert_close(value, (0.5 * trained[name] + keep.history[-1][name]) / 1.5)


def test_a_changed_centre_of_mass_counts_from_the_resume_on(model, tmp_path, caplog):
    shared = {"save_strategy": "steps", "save_steps": 1, "max_steps": 1}
    one, two = Weights(), Weights()
    first = ours(
        model,
        tmp_path / "a",
        rollout=fixed_rollout(path=model),
        callbacks=[one],
        ewma_centre_of_mass=3.0,
        **shared,
    )
    first.train()
    shared |= {"max_steps": 2, "ewma_centre_of_mass": 1.0}
    second = ours(model, tmp_path / "b", rollout=fixed_rollout(path=model), callbacks=[two], **shared)
    second.train(resume_from_checkpoint=str(Path(first.args.output_dir) / "checkpoint-1"))
    assert second.average.centre_of_mass == 1.0
    assert "ewma_centre_of_mass=1, but" in caplog.text
    for name, value in second.average.average.items():
        sums = 0.5 * (0.75 * one.history[0][name] + one.history[1][name]) + two.history[-1][name]
        torch.testing.assert_close(value, sums / (0.5 * 1.75 + 1), rtol=1e-5, atol=1e-7)

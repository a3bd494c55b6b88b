"""A TRL trainer under a guard's hands: levers act and let go, states are whole, a resume repeats the run bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the trl extra")

import torch
from safetensors.torch import load_file
from transformers import TrainerCallback
from trl import GRPOTrainer

from tests.adapters.tiny_trl import grpo_config, random_reward, text_rows, tiny_model
from trimtab.adapters.trl.guard_controls import TrlControls
from trimtab.errors import RunError, UnsupportedError
from trimtab.guard.controls import LEVERS, Controls
from trimtab.training.lab_faults import FaultPlan, fault_trainer
from trimtab.training.lab_grpo import lab_trainer
from trimtab.training.minirl.trainer import MiniRLTrainer

Weights = dict[str, torch.Tensor]
REUSED = {"num_iterations": 4}
SPLIT = {"steps_per_generation": 2, "per_device_train_batch_size": 4}
ACCUMULATED = {
    **SPLIT,
    "gradient_accumulation_steps": 2,
    "steps_per_generation": 4,
    "lr_scheduler_type": "cosine",
}


class At(TrainerCallback):
    """Calls functions at the end of steps; step 0 is the beginning of training."""

    def __init__(self, actions: dict[int, Callable[[], Any]]) -> None:
        self.actions = actions

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.actions.get(0, lambda: None)()

    def on_step_end(self, _args: Any, state: Any, control: Any, **__: Any) -> Any:
        action = self.actions.pop(state.global_step, None)
        if action is not None:
            action()
        return control


def lab(folder: Path, kind: type = GRPOTrainer, steps: int = 8, epoch: int = 16, **config: Any) -> Any:
    """A trainer of the lab and its controls; `epoch` is the number of steps that the data are good for."""
    trainer = lab_trainer(
        "open",
        folder,
        steps=epoch,
        prompts_per_step=2,
        generations=4,
        kind=kind,
        **{"max_steps": steps, **config},
    )
    return trainer, TrlControls(trainer)


def weights(trainer: Any) -> Weights:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def moments(trainer: Any) -> list[torch.Tensor]:
    return [state["exp_avg"].clone() for state in trainer.optimizer.state.values()]


def equal(one: Weights, two: Weights) -> bool:
    return all(torch.equal(one[name], two[name]) for name in one)


def folder_of(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


CASES = {
    "plain": (GRPOTrainer, 3, {"lr_scheduler_type": "linear"}),
    "buffer open, reused": (GRPOTrainer, 5, REUSED),
    "buffer open, split": (GRPOTrainer, 3, SPLIT),
    "buffer open, accumulated": (GRPOTrainer, 3, ACCUMULATED),
    "shuffled, over an epoch": (GRPOTrainer, 3, {"shuffle_dataset": True, "epoch": 5, "max_steps": 9}),
    "minirl": (MiniRLTrainer, 3, {"ewma_centre_of_mass": 8.0, "beta": 0.01, "num_iterations": 2}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_resume_repeats_the_run_bit_for_bit(tmp_path, case):
    """From the same trainer after it went on, and from a new one as after a crash."""
    kind, saved, config = CASES[case]
    steps = config.get("max_steps", 8)
    config = {**config, "max_steps": steps}
    folder, ends = folder_of(tmp_path), []
    trainer, controls = lab(tmp_path, kind, **config)
    first_weights, last = weights(trainer), saved + 3 if steps == 8 else steps

    def note() -> None:
        ends.append(weights(trainer))
        if len(ends) == 2:
            controls.stop()

    trainer.add_callback(At({saved: lambda: controls.save(folder)}))
    second = At({last: lambda: (note(), second.actions.update({last: note}), controls.resume(folder))})
    trainer.add_callback(second)
    if last == steps:  # the loop ends there: only the new trainer can repeat it
        second.actions = {last: note}
    trainer.train()
    if last != steps:
        assert equal(*ends)
    other, its = lab(tmp_path, kind, **config)
    other.add_callback(At({0: lambda: its.resume(folder), last: lambda: its.stop()}))
    other.train()
    assert other.state.global_step == last
    assert equal(ends[0], weights(other))
    assert not equal(first_weights, ends[0])


def test_a_rollback_restores_the_step_and_goes_on_with_other_data(tmp_path):
    trainer, controls = lab(tmp_path, **SPLIT, lr_scheduler_type="linear")
    folder, at, prompts, seen = folder_of(tmp_path), {}, [], {}
    inner = trainer.rollout_func

    def rollout(texts: list[str], its: Any) -> Any:
        prompts.append((its.state.global_step, frozenset(texts)))
        return inner(texts, its)

    trainer.rollout_func = rollout

    def save() -> None:
        controls.save(folder)
        at.update(weights=weights(trainer), moments=moments(trainer), rate=trainer.lr_scheduler.get_last_lr())

    def back() -> None:
        controls.restore(folder)
        seen.update(
            weights=weights(trainer), moments=moments(trainer), rate=trainer.lr_scheduler.get_last_lr()
        )
        seen["buffer"] = trainer._buffered_inputs

    trainer.add_callback(At({2: save, 5: back}))
    trainer.train()
    assert equal(at["weights"], seen["weights"])
    assert all(map(torch.equal, at["moments"], seen["moments"]))
    assert at["rate"] == seen["rate"]
    assert seen["buffer"] is None
    assert trainer.state.global_step == 8
    assert [step for step, _ in prompts] == [0, 2, 4, 5, 7]  # the generation of step 4 was left half used
    assert len(set.union(*(set(texts) for _, texts in prompts))) == sum(len(texts) for _, texts in prompts)
    (record,) = controls.restores
    assert (record["to_step"], record["step"], record["batches_left_out"]) == (2, 5, 1)
    assert record["data_then"]["batches"] == 2
    assert not equal(at["weights"], weights(trainer))


@pytest.mark.parametrize("mode", ["lora", "weights"])
def test_adapters_alone_are_saved_and_the_momentum_may_start_anew(tmp_path, mode):
    peft = pytest.importorskip("peft")
    path, tokenizer = tiny_model(tmp_path / "model")
    trainer = GRPOTrainer(
        path,
        random_reward,
        args=grpo_config(tmp_path, max_steps=5),
        train_dataset=text_rows(64),
        processing_class=tokenizer,
        peft_config=peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    controls = TrlControls(trainer, mode)
    folder, at, after = folder_of(tmp_path), {}, {}

    def state() -> dict[str, Any]:
        return {"weights": weights(trainer), "moments": moments(trainer)}

    trainer.add_callback(
        At(
            {
                2: lambda: (controls.save(folder), at.update(state())),
                4: lambda: (
                    after.update(moved=weights(trainer)),
                    controls.restore(folder),
                    after.update(state()),
                ),
            }
        )
    )
    trainer.train()
    assert equal(at["weights"], after["weights"])
    assert not equal(at["weights"], after["moved"])
    assert len(after["moments"]) == (len(at["moments"]) if mode == "lora" else 0)
    trained = sum(p.numel() * 4 for p in trainer.model.parameters() if p.requires_grad)
    stored = load_file(folder / "weights.safetensors")
    assert sum(t.numel() * 4 for t in stored.values()) == trained
    assert all("lora" in name for name in stored)
    assert controls.state_bytes == (3 if mode == "lora" else 1) * trained
    optimizer = torch.load(folder / "optimizer.pt", weights_only=True)["optimizer"]
    assert (optimizer is None) == (mode == "weights")


def test_the_learning_rate_is_scaled_and_the_schedule_is_not(tmp_path):
    trainer, controls = lab(tmp_path, steps=6, lr_scheduler_type="linear")
    used, inner = [], torch.optim.AdamW.step

    def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        used.append(optimizer.param_groups[0]["lr"])
        return inner(optimizer, *args, **kwargs)

    torch.optim.AdamW.step = step
    try:
        trainer.add_callback(
            At(
                {
                    2: lambda: controls.set("lr_scale", "all", 0.25),
                    4: lambda: controls.set("lr_scale", "all", 1.0),
                }
            )
        )
        trainer.train()
    finally:
        torch.optim.AdamW.step = inner
    schedule = [2e-4 * (1 - i / 6) for i in range(6)]
    scale = [1, 1, 0.25, 0.25, 1, 1]
    assert used == pytest.approx(
        [rate * factor for rate, factor in zip(schedule, scale, strict=True)], rel=1e-12
    )
    assert controls.get("lr_scale") == 1.0
    logged = [row["learning_rate"] for row in trainer.state.log_history if "learning_rate" in row]
    assert logged == pytest.approx([*schedule[1:], 0.0], abs=1e-12) or logged == pytest.approx(
        schedule, rel=1e-9
    )


def test_an_update_that_is_left_out_moves_nothing_and_counts(tmp_path):
    trainer, controls = lab(tmp_path, steps=4)
    norms, before, after = [], {}, {}
    shares: list[float] = []

    def judge(step: int, norm: float, ess_frac: float | None) -> bool:
        norms.append((step, norm))
        shares.append(ess_frac)
        if step == 3:
            before.update(weights=weights(trainer), moments=moments(trainer))
            next(p for p in trainer.model.parameters() if p.grad is not None).grad.fill_(math.nan)
        return step != 3

    controls.before_update = judge
    trainer.add_callback(At({3: lambda: after.update(weights=weights(trainer), moments=moments(trainer))}))
    trainer.train()
    assert equal(before["weights"], after["weights"])
    assert all(map(torch.equal, before["moments"], after["moments"]))
    assert trainer.state.global_step == 4
    assert controls.num_skipped == 1
    assert not equal(after["weights"], weights(trainer))
    assert all(torch.isfinite(p).all() for p in trainer.model.parameters())
    logged = [row["grad_norm"] for row in trainer.state.log_history if "grad_norm" in row]
    assert [norm for _, norm in norms] == pytest.approx(logged)
    assert [step for step, _ in norms] == [1, 2, 3, 4]
    assert shares == pytest.approx([1.0] * 4, abs=1e-3), "these rollouts are of the weights that are trained"


def batch_of(trainer: Any) -> dict[str, Any]:
    """The batch of the first step, and the trainer as it was before it moved."""
    batches: list[Any] = []
    inner = trainer._compute_loss
    trainer._compute_loss = lambda model, inputs: (batches.append(dict(inputs)), inner(model, inputs))[1]
    trainer.train()
    del batches[1:]
    return batches[0]


def test_caps_weigh_tokens_and_drop_sequences(tmp_path):
    """pi_theta/pi_old is 1, so the loss is the mean over rows of the mean over tokens of -A w."""
    trainer, controls = lab(tmp_path, steps=1, loss_type="grpo", learning_rate=0.0)
    batch = batch_of(trainer)
    mask = (batch["completion_mask"] * batch["tool_mask"]).bool()
    torch.manual_seed(0)
    gaps = torch.randn(mask.shape) * 0.3 * mask  # log pi_theta/mu
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    with torch.no_grad():
        own = trainer._get_per_token_logps_and_entropies(trainer.model, ids, attention, mask.shape[1])[0]
    batch["sampling_per_token_logps"] = own - gaps
    batch["advantages"] = torch.linspace(-1, 2, len(mask))

    def loss() -> float:
        return float(trainer._compute_loss(trainer.model, batch))

    def expected(weight: torch.Tensor) -> float:
        rows = (batch["advantages"][:, None] * weight * mask).sum(1) / mask.sum(1)
        return -float(rows.mean())

    trainer.model.train()
    assert loss() == pytest.approx(expected(torch.ones(mask.shape)), abs=1e-6)
    raw = gaps.sum(1).double().exp()
    ess_frac = float(raw.sum() ** 2 / (len(raw) * raw.square().sum()))
    assert controls._caps.take_ess_frac() == pytest.approx(ess_frac, abs=1e-4)
    assert 0.1 < ess_frac < 0.95
    assert controls._caps.take_ess_frac() is None
    controls.set("token_is_cap", "all", 1.2)
    assert loss() == pytest.approx(expected(gaps.exp().clamp(max=1.2)), abs=1e-6)
    controls.set("token_is_cap", "all", math.inf)
    rows = gaps.sum(1)
    cap = math.exp(float(rows.abs().median()))
    controls.set("sequence_is_cap", "all", cap)
    keep = (rows.abs() <= math.log(cap)).float()[:, None]
    assert 0 < keep.sum() < len(mask)
    assert loss() == pytest.approx(expected(keep.expand(mask.shape)), abs=1e-6)
    assert trainer._metrics["train"]["guard/dropped_sequences_frac"][-1] == pytest.approx(
        1 - float(keep.mean())
    )
    assert controls.get("sequence_is_cap") == cap
    assert batch["advantages"].dim() == 1  # what the watch sees is as it was


@pytest.mark.parametrize("kind", [GRPOTrainer, MiniRLTrainer])
def test_the_kl_coefficient_is_linear_in_the_loss_and_can_be_switched_off(tmp_path, kind):
    trainer, controls = lab(tmp_path, kind, steps=2, beta=0.04)
    batch = batch_of(trainer)
    trainer.model.train()
    losses = []
    for value in (0.0, 0.5, 1.0):
        controls.set("kl_coef", "all", value)
        assert controls.get("kl_coef") == value
        losses.append(float(trainer._compute_loss(trainer.model, dict(batch))))
    assert losses[2] - losses[0] == pytest.approx(2 * (losses[1] - losses[0]), rel=1e-3)
    assert losses[1] - losses[0] > 1e-6
    assert "ref_per_token_logps" in batch


def test_minirl_turns_one_slice(tmp_path):
    trainer, controls = lab(tmp_path, MiniRLTrainer, steps=2, num_iterations=2, beta=0.01)
    assert controls.levers() == {
        "lr_scale": ("all",),
        "kl_coef": ("all", "text", "post_tool"),
        "token_is_cap": ("all", "text", "post_tool"),
        "clip_range": ("all", "text", "post_tool"),
        "sequence_is_cap": ("all",),
        "max_lag": ("all",),
    }
    assert (controls.get("token_is_cap"), controls.get("clip_range")) == (5.0, 0.27)
    controls.set("token_is_cap", "post_tool", 2.0)
    controls.set("clip_range", "post_tool", 0.1)
    assert trainer.args.slices == {"post_tool": {"weight_cap": 2.0, "epsilon_high": 0.1}}
    assert (controls.get("token_is_cap", "post_tool"), controls.get("token_is_cap", "text")) == (2.0, 5.0)
    trainer.train()
    controls.set("token_is_cap", "post_tool", 5.0)
    controls.set("clip_range", "post_tool", 0.27)
    assert trainer.args.slices is None


def test_old_generations_are_sampled_anew(tmp_path):
    trainer, controls = lab(tmp_path, steps=8, **REUSED)
    calls, inner = [], trainer.rollout_func
    trainer.rollout_func = lambda prompts, its: (calls.append(its.state.global_step), inner(prompts, its))[1]
    trainer.add_callback(At({4: lambda: controls.set("max_lag", "all", 1.0)}))
    trainer.train()
    assert calls == [0, 4, 6]


def test_a_queue_of_rollouts_is_bounded_and_emptied(tmp_path):
    trainer = fault_trainer(tmp_path, FaultPlan("stale", fault_step=2, steps=12))
    controls, sampler, lags = TrlControls(trainer), trainer.lab_sampler, {}
    folder, inner = folder_of(tmp_path), sampler._rollout

    def played(*args: Any) -> Any:
        step = trainer.state.global_step
        lags[step + 1] = step - sampler.version
        return inner(*args)

    sampler._rollout = played
    trainer.add_callback(
        At(
            {
                2: lambda: controls.save(folder),
                6: lambda: controls.set("max_lag", "all", 2.0),
                8: lambda: controls.set("max_lag", "all", math.inf),
                10: lambda: controls.restore(folder),
            }
        )
    )
    trainer.train()
    assert list(lags.values()) == [0, 1, 2, 3, 4, 5, 2, 2, 3, 4, 0, 1]


def test_levers_that_would_do_nothing_are_not_offered(tmp_path):
    _, controls = lab(tmp_path, steps=1)
    assert set(controls.levers()) == {"lr_scale", "token_is_cap", "sequence_is_cap"}
    with pytest.raises(UnsupportedError, match=r"no lever kl_coef for all; it has lr_scale \(all\)"):
        controls.set("kl_coef", "all", 0.1)
    port: Controls = controls
    for lever, slices in port.levers().items():
        assert slices[0] == "all"
        assert port.get(lever) == LEVERS[lever].neutral


def test_a_stop_ends_training_after_its_step(tmp_path):
    trainer, controls = lab(tmp_path)
    trainer.add_callback(At({3: controls.stop}))
    trainer.train()
    assert trainer.state.global_step == 3


def test_a_state_that_does_not_fit_touches_nothing(tmp_path):
    trainer, controls = lab(tmp_path, steps=1)
    trainer.train()
    folder = folder_of(tmp_path)
    controls.save(folder)
    before = weights(trainer)
    with torch.no_grad():
        for p in trainer.model.parameters():
            p.add_(1.0)
    moved = weights(trainer)
    whole = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunError, match="cannot be read"):
        controls.restore(folder)
    assert equal(moved, weights(trainer))
    (folder / "weights.safetensors").write_bytes(whole)
    (folder / "optimizer.pt").write_bytes(b"\x80\x04cos\nsystem\n(S'touch /tmp/never'\ntR.")
    with pytest.raises(RunError, match="cannot be read"):
        controls.restore(folder)
    assert equal(moved, weights(trainer))
    assert not equal(before, moved)

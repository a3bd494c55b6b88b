"""What MiniRLTrainer cannot honour raises at construction and names it; a watched run of it is not blind."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the trl extra")
from trl import GRPOConfig

from tests.adapters.tiny_trl import tiny_model
from tests.training.tiny import COMMON, fixed_rollout, moe, ours
from trimtab import UnsupportedError
from trimtab.adapters.trl import watch
from trimtab.adapters.trl.batch_arrays import clip_range_of
from trimtab.errors import ObjectiveError
from trimtab.report.run_view import load_view
from trimtab.training import MiniRLConfig, MiniRLTrainer
from trimtab.training.minirl.refused_settings import refuse_trainer


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))[0]


FEATURES = {
    "loss_type": ({"loss_type": "dapo"}, "set objective='dapo'"),
    "other loss_type": ({"loss_type": "sapo"}, "loss_type='sapo'"),
    "sequence": ({"importance_sampling_level": "sequence"}, "set objective='gspo'"),
    "liger": ({"use_liger_kernel": True}, "use_liger_kernel"),
    "vllm correction": ({"vllm_importance_sampling_correction": True}, "set correction"),
    "entropy mask": ({"top_entropy_quantile": 0.2}, "set entropy_keep"),
    "two kls": ({"use_bias_correction_kl": True, "kl_estimator": "k2"}, "kl_estimator='k3_weighted'; set one"),
    "dual clip": ({"delta": 2.0}, "delta"),
    "twice": ({"correction": "tis"}, "corrected twice"),
    "ablation": ({"objective": "grpo", "importance": False}, "ablations"),
    "length": ({"objective": "grpo", "length_norm": True}, "length_norm"),
    "cap": ({"objective": "grpo", "weight_cap": 2.0}, "weight_cap"),
    "ewma": ({"objective": "grpo", "ewma_centre_of_mass": 8.0}, "ewma_centre_of_mass"),
    "prox beta": ({"objective": "decoupled_kl"}, "prox_beta"),
    "self normalise": ({"self_normalise": True}, "self_normalise"),
    "window": (
        {"objective": "dapo", "gradient_accumulation_steps": 4, "steps_per_generation": 1},
        "steps_per_generation x num_iterations a multiple",
    ),
}  # fmt: skip
VALUES = {
    "objective": ({"objective": "mini"}, "objective must be one of minirl, reinforce"),
    "replay": ({"routing_replay": "R1"}, "off, R2, R3"),
    "slice": ({"slices": {"tools": {"epsilon": 0.1}}}, "text and post_tool"),
    "knob": ({"slices": {"text": {"eps": 0.1}}}, "'eps'"),
    "slice beta": ({"slices": {"text": {"beta": 0.1}}}, "beta above 0"),
    "slice level": (
        {"objective": "grpo", "slices": {"text": {"correction_high": 2.0}}},
        "correction_level='token'",
    ),
}


@pytest.mark.parametrize("case", FEATURES)
def test_features_of_trl_that_it_cannot_honour(case, tmp_path):
    settings, words = FEATURES[case]
    with pytest.raises(UnsupportedError, match=words):
        MiniRLConfig(**{**COMMON, "output_dir": str(tmp_path), **settings})


@pytest.mark.parametrize("case", VALUES)
def test_values_that_cannot_be_right(case, tmp_path):
    settings, words = VALUES[case]
    with pytest.raises(ObjectiveError, match=words):
        MiniRLConfig(**{**COMMON, "output_dir": str(tmp_path), **settings})


def test_the_engine_must_show_its_distribution(model, tmp_path):
    paged = {f.name for f in MiniRLConfig.__dataclass_fields__.values()} & {
        "use_transformers_continuous_batching", "use_transformers_paged"
    }  # fmt: skip
    assert paged
    for settings, words in (
        ({"generation_kwargs": {"do_sample": False}}, "greedy"),
        ({"generation_kwargs": {"num_beams": 2}}, "num_beams"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            ours(model, tmp_path, **settings)
    ours(model, tmp_path, objective="grpo", generation_kwargs={"do_sample": False})  # which needs no mu
    trainer = ours(model, tmp_path)
    setattr(trainer.args, min(paged), True)
    with pytest.raises(UnsupportedError, match="continuous batching"):
        refuse_trainer(trainer, needs_mu=True)


@pytest.mark.parametrize(
    ("kind", "words"), [("FSDP", "FSDP1 shards them, use FSDP2"), ("DEEPSPEED", "DEEPSPEED shards")]
)
def test_sharded_weights_are_refused_by_name(model, tmp_path, kind, words):
    trainer = ours(model, tmp_path, ewma_centre_of_mass=8.0)
    fake = SimpleNamespace(
        args=trainer.args, accelerator=SimpleNamespace(distributed_type=f"DistributedType.{kind}"), rollout_func=print,
        use_vllm=False, _is_vlm=False,
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match=f"ewma_centre_of_mass needs whole parameters; {words}"):
        refuse_trainer(fake, needs_mu=True)


def test_fsdp2_is_refused_only_what_needs_a_gradient_of_each_row(model, tmp_path):
    trainer = ours(model, tmp_path, ewma_centre_of_mass=8.0)
    accelerator = SimpleNamespace(distributed_type="DistributedType.FSDP", is_fsdp2=True)
    fake = SimpleNamespace(args=trainer.args, accelerator=accelerator, rollout_func=print, use_vllm=False, _is_vlm=False)  # fmt: skip
    refuse_trainer(fake, needs_mu=True)
    trainer.args.off_policy_baseline = True
    with pytest.raises(UnsupportedError, match="off_policy_baseline needs a gradient of each row"):
        refuse_trainer(fake, needs_mu=True)


def test_models_and_configs_of_another_kind(model, tmp_path):
    with pytest.raises(UnsupportedError, match="no router"):
        ours(model, tmp_path, routing_replay="R2")
    with pytest.raises(ObjectiveError, match="MiniRLConfig"):
        MiniRLTrainer(model, print, args=GRPOConfig(**{**COMMON, "output_dir": str(tmp_path)}))
    settings = {
        "routing_replay": "R2",
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": True},
    }
    with pytest.raises(UnsupportedError, match="use_reentrant"):
        ours(moe(tmp_path / "moe"), tmp_path, **settings)


def test_the_config_survives_being_written_and_read(tmp_path):
    args = MiniRLConfig(**{**COMMON, "output_dir": str(tmp_path), "slices": '{"text": {"epsilon": 0.1}}'})
    assert args.slices == {"text": {"epsilon": 0.1}}
    again = MiniRLConfig(
        **{
            k: v
            for k, v in vars(args).items()
            if k in COMMON or k in ("epsilon", "objective", "output_dir", "slices")
        }
    )
    assert (again.epsilon, again.slices) == (args.epsilon, args.slices)
    helps = [field.metadata.get("help", "") for field in MiniRLConfig.__dataclass_fields__.values()]
    assert all(helps[-20:])


def test_a_watched_run_has_every_column_and_is_not_blind(model, tmp_path):
    trainer = ours(
        model, tmp_path, rollout=fixed_rollout(tools=True, path=model), num_iterations=2, max_steps=6, ewma_centre_of_mass=2.0
    )  # fmt: skip
    run = watch(trainer, tmp_path / "run", min_tokens=20, min_trajectories=2, strict=True)
    batches, inner = [], run.observe

    def observe(batch=None, **arrays):
        from trimtab import token_batch

        batches.append(token_batch(**arrays) if batch is None else batch)
        inner(batches[-1])

    run.observe = observe
    trainer.train()
    last = batches[-1]
    for name in (
        "rollout_logprobs",
        "old_logprobs",
        "prox_logprobs",
        "logprobs",
        "advantages",
        "entropy",
        "reward",
    ):
        assert getattr(last, name) is not None, name
    moved = np.abs(last.logprobs - last.prox_logprobs)[last.loss_mask]
    assert moved.max() > 1e-4
    view = load_view(tmp_path / "run")
    assert view.verdict.word != "blind"
    assert not view.errors
    assert view.series("mismatch/p99", "all")
    assert view.series("staleness/p99", "all")
    assert clip_range_of(trainer) is None  # its clip is anchored at the average
    assert clip_range_of(ours(model, tmp_path / "b", rollout=fixed_rollout())) == (0.2, 0.27)

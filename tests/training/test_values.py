"""MiniRLConfig refuses at construction, in one line that names the field, the value and what to do."""

from __future__ import annotations

import dataclasses
import logging
import math

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
from trl import GRPOConfig

from tests.training.tiny import COMMON
from trimtab.errors import ObjectiveError, TrimtabError, UnsupportedError
from trimtab.training import MiniRLConfig


@pytest.fixture
def config(tmp_path):
    return lambda **settings: MiniRLConfig(**{**COMMON, "output_dir": str(tmp_path), **settings})


MIS = {"objective": "grpo", "correction": "mis"}
IMPOSSIBLE = [
    ({"epsilon": -1}, "epsilon must be 0 or more"),
    ({"epsilon_high": math.nan}, "epsilon_high must be 0 or more"),
    ({"epsilon": "x"}, "epsilon must be a number"),
    ({"veto_floor": 2.0}, r"veto_floor must be in \(0, 1\)"),
    ({"entropy_keep": 0.0}, r"entropy_keep must be in \(0, 1\]"),
    ({"entropy_keep": 2}, "entropy_keep must be in"),
    ({"covariance_drop": -1}, "covariance_drop must be in"),
    ({"objective": "decoupled_kl", "prox_beta": -1}, "prox_beta must be 0 or more"),
    ({"beta": -1}, "beta must be 0 or more"),
    ({"weight_cap": -1}, "weight_cap must be above 0"),
    ({"lr_by_ess": True, "ess_base": 0}, "ess_base must be in"),
    ({"lr_by_ess": True, "ess_floor": 7}, "ess_floor must be in"),
    ({**MIS, "correction_low": 3, "correction_high": 2}, "correction_low must be below correction_high; got 3 and 2"),
    ({**MIS, "correction_low": 2.5}, "correction_low must be below correction_high; got 2.5 and 2"),
    ({**MIS, "slices": {"text": {"correction_high": 0.2}}}, "of slices.'text'. must be below correction_high"),
    ({"correction": ("tis", "mis"), "objective": "grpo"}, "correction must be one of .*geometric_rejection,token_tis"),
    ({"nonfinite_limit": 2.0}, "nonfinite_limit must be in"),
    ({"kl_estimator": "k4"}, "kl_estimator must be one of k1, k2, k3, k3"),
    ({"k3_bound": -1}, "k3_bound must be above 0"),
    ({"objective": "grpo", "delta": 0.5}, "delta must be above 1"),
    ({"bonus_target": math.inf}, "bonus_target must be"),
    ({"ewma_centre_of_mass": -1}, "ewma_centre_of_mass must be"),
    ({"off_policy_mask_threshold": 0.0}, "off_policy_mask_threshold must be above 0"),
    ({"num_iterations": 0}, "num_iterations must be a whole number of 1 or more; got 0"),
    ({"scale_rewards": "grup"}, "scale_rewards must be group, batch or none; got 'grup'"),
    ({"slices": {"post_tool": {"epsilon": None}}}, r"slices\['post_tool'\]\['epsilon'\] must be a number"),
    ({"slices": {"post_tool": {"epsilon": "x"}}}, "must be a number 0 or more"),
    ({"slices": {"post_tool": {"epsilon": -0.1}}}, "must be 0 or more"),
    ({"slices": ["a"]}, "slices must be a table"),
    ({"slices": "{bad"}, "slices must be a table .* got '{bad'"),
]  # fmt: skip
NO_READER = [
    ({**MIS, "correction": "icepop", "correction_level": "sequence"}, "correction_level='sequence' has no effect"),
    ({**MIS, "correction": "tis", "correction_weighs": False}, "correction_weighs=False has no effect"),
    ({**MIS, "correction": "tis", "correction_low": 0.1}, "correction_low=0.1 has no effect"),
    ({"correction_high": 3.0}, "correction_high=3.0 has no effect without a correction"),
    ({"correction_weighs": False}, "correction_weighs"),
    ({"correction_level": "sequence"}, "correction_level"),
    ({**MIS, "correction_cap": 3.0}, "correction_cap=3.0 has no effect"),
    ({"kl_estimator": "k3", "kl_weight_cap": 3.0}, "kl_weight_cap=3.0 has no effect"),
    ({"drop_nonfinite": False, "nonfinite_limit": 0.5}, "nonfinite_limit=0.5 has no effect"),
    ({"clip": False, "ewma_centre_of_mass": 8.0}, "ewma_centre_of_mass=8.0 has no effect"),
    ({"clip": False, "epsilon": 0.1}, "epsilon=0.1 has no effect"),
    ({"prox_beta": 0.1}, "prox_beta=0.1 has no effect without objective='decoupled_kl'"),
    ({"prox_estimator": "k3"}, "prox_estimator"),
    ({"objective": "reinforce", "epsilon": 0.2}, "epsilon=0.2 has no effect"),
    ({"objective": "reinforce", "epsilon_high": 0.2}, "epsilon_high=0.2 has no effect"),
    ({"objective": "decoupled_kl", "prox_beta": 1.0, "epsilon": 0.1}, "epsilon=0.1 has no effect"),
    ({"objective": "cispo", "epsilon": 0.1}, "epsilon=0.1 has no effect"),
    ({"importance": False, "weight_cap": 3.0}, "weight_cap=3.0 has no effect"),
    ({"ess_base": 0.5}, "ess_base=0.5 has no effect without lr_by_ess=True"),
    ({"bonus_rate": 0.1}, "bonus_rate=0.1 has no effect without a bonus_target"),
    ({"routing_compare": True}, "routing_compare=True has no effect without routing_replay"),
    ({"routing_allow_missing": True}, "routing_allow_missing=True has no effect without routing_replay"),
    ({"k3_level": "token"}, "k3_level='token' has no effect without a k3_bound"),
    ({"objective": "reinforce", "slices": {"text": {"epsilon": 0.1}}}, "objective='reinforce' does not read epsilon"),
    ({"objective": "decoupled_kl", "prox_beta": 1.0, "slices": {"text": {"epsilon": 0.1}}}, "does not read epsilon"),
    ({"objective": "cispo", "slices": {"text": {"epsilon": 0.1}}}, "does not read epsilon"),
    ({"clip": False, "slices": {"text": {"epsilon": 0.1}}}, "clip=False does not read epsilon"),
    ({"importance": False, "slices": {"text": {"weight_cap": 2.0}}}, "importance=False does not read weight_cap"),
    ({**MIS, "correction": "tis", "slices": {"text": {"correction_low": 0.1}}}, "does not read correction_low"),
    ({"vllm_importance_sampling_mode": "token_truncate"}, "vllm_importance_sampling_mode='token_truncate' tunes TRL's"),
    ({"vllm_importance_sampling_clip_max": 2.0}, "vllm_importance_sampling_clip_max=2.0 tunes TRL's"),
    ({"vllm_importance_sampling_cap": 2.0}, "vllm_importance_sampling_cap=2.0 tunes TRL's"),
    ({"multi_objective_aggregation": "normalize_then_sum"}, "objective='minirl' centres only"),
    ({"generation_kwargs": {"num_return_sequences": 2}}, "num_return_sequences: set num_generations"),
    ({"objective": "dr_grpo", "max_completion_length": None}, "max_completion_length: set it"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "words"), IMPOSSIBLE)
def test_a_value_that_cannot_be_right(config, settings, words):
    with pytest.raises(ObjectiveError, match=words) as caught:
        config(**settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("settings", "words"), NO_READER)
def test_a_setting_that_nothing_reads(config, settings, words):
    absent = set(settings) - set(MiniRLConfig.__dataclass_fields__)
    if absent:
        pytest.skip(f"this TRL has no {', '.join(absent)}")
    with pytest.raises(UnsupportedError, match=words) as caught:
        config(**settings)
    assert "\n" not in str(caught.value)


ALLOWED = [
    {}, {"objective": "reinforce"}, {"objective": "cispo", "epsilon_high": 3.0}, {"clip": False}, {"importance": False},
    {"weight_cap": math.inf, "epsilon_high": math.inf}, {"objective": "decoupled_kl", "prox_beta": 0.0}, {"ewma_centre_of_mass": 0},
    {**MIS, "correction_weighs": False, "correction_level": "geometric", "correction_low": 0.99, "correction_high": 1.01},
    {**MIS, "slices": {"post_tool": {"correction_low": 0.7}, "text": {"epsilon": 0.1}}}, {"scale_rewards": True},
    {"objective": "grpo", "correction": ("geometric_rejection", "token_tis"), "correction_low": 0.99, "correction_high": 1.01},
    {"use_bias_correction_kl": True, "beta": 0.1}, {"kl_estimator": "k3", "beta": 0.1},
    {"multi_objective_aggregation": "normalize_then_sum", "scale_rewards": "group"}, {"entropy_keep": 1},
    {"objective": "gspo", "slices": {"text": {"epsilon_high": 1e-3}}},
]  # fmt: skip


@pytest.mark.parametrize("settings", ALLOWED)
def test_what_has_a_meaning_passes_and_can_be_built_again_from_what_it_settled_on(config, settings):
    if set(settings) - set(MiniRLConfig.__dataclass_fields__):
        pytest.skip("this TRL has no such field")
    first = config(**settings)
    chosen = {f.name for f in dataclasses.fields(MiniRLConfig)} - {
        f.name for f in dataclasses.fields(GRPOConfig)
    }
    chosen |= {"epsilon", "epsilon_high", "scale_rewards", "beta", "delta", "multi_objective_aggregation"}
    again = config(**{name: getattr(first, name) for name in chosen if hasattr(first, name)})
    assert {n: getattr(again, n, None) for n in chosen} == {n: getattr(first, n, None) for n in chosen}


def test_one_epsilon_for_both_sides_is_said(config, caplog):
    with caplog.at_level(logging.WARNING):
        assert config(epsilon=0.1).epsilon_high == 0.1
        assert caplog.text.count("epsilon=0.1 sets epsilon_high too") == 1
        assert "0.2 and 0.27" in caplog.text
        caplog.clear()
        config(epsilon=0.1, epsilon_high=0.27)
        config(objective="grpo", epsilon=0.1)  # whose paper has one number
        config()
        assert "epsilon" not in caplog.text
    assert issubclass(ObjectiveError, TrimtabError)

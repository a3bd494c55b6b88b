"""The key tables: one meaning a key, names of the catalog only, and TRL's keys are in the installed TRL's source."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from trimtab.catalog import METRIC_NAMES
from trimtab.measure.sequences.aggregates import TRAINER_KEYS, trainer_aggregates
from trimtab.metric_logs import FRAMEWORKS, aliases, read_metric_log


def log_of(tmp_path, keys, **kwargs):
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps({"step": 1, **{key: float(i) for i, key in enumerate(keys)}}) + "\n")
    return read_metric_log(path, **kwargs)


def test_tables_hold_only_names_of_the_catalog():
    for framework in FRAMEWORKS.values():
        assert set(framework.keys) | set(framework.patterns) <= set(METRIC_NAMES), framework.name
        for key in framework.notes:
            assert key in {theirs for keys in framework.keys.values() for theirs in keys}, (
                framework.name,
                key,
            )


def test_a_key_means_one_thing_whoever_writes_it():
    meaning: dict[str, str] = {}
    for framework in FRAMEWORKS.values():
        for ours, keys in framework.keys.items():
            for theirs in keys:
                assert meaning.setdefault(theirs, ours) == ours, (framework.name, theirs)


def test_every_table_finds_itself(tmp_path):
    for framework in FRAMEWORKS.values():
        keys = [theirs[0] for theirs in framework.keys.values()]
        log = log_of(tmp_path, keys)
        assert log.framework == framework.name, log.why
        assert log.why.startswith(f"{framework.name}: it knows {len(keys)} of the keys, ")
        assert log.mapped == {ours: theirs[0] for ours, theirs in framework.keys.items()}


def test_the_watch_and_the_logs_use_one_table():
    assert aliases() == TRAINER_KEYS
    assert trainer_aggregates({"actor/ppo_kl": 0.1}) == {"policy_kl": 0.1}
    assert trainer_aggregates({"actor/kl_loss": 0.2, "kl": 0.1}) == {"kl": 0.1}


@pytest.mark.parametrize("prefix", ["", "train/"])
def test_trl_as_it_is_and_as_wandb_writes_it(tmp_path, prefix):
    keys = [
        f"{prefix}{key}"
        for key in (
            "reward",
            "reward_std",
            "frac_reward_zero_std",
            "clip_ratio/high_mean",
            "tools/call_frequency",
        )
    ]
    evaluation = (
        ["eval/reward", "eval/loss", "eval/entropy"]
        if prefix
        else ["eval_reward", "eval_loss", "eval_entropy"]
    )
    log = log_of(tmp_path, keys + evaluation)
    assert log.framework == "trl"
    assert list(log.mapped) == [
        "reward", "reward_std", "zero_std_frac", "held_out_reward", "clip_high_frac", "held_out_loss", "tool_calls",
    ]  # fmt: skip
    assert log.unmapped == (evaluation[2],)  # an evaluation's entropy is not the training's


def test_names_of_tasks_and_agents_inside_keys(tmp_path):
    keys = ["optim/grad_norm", "train/agg/effective/solver/reward/mean", "train/math/effective/solver/reward/mean",
            "eval/aime/effective/solver/avg@8", "eval/zebra/effective/solver/avg@8"]  # fmt: skip
    log = log_of(tmp_path, keys)
    assert log.framework == "prime-rl"
    assert log.mapped["reward"] == keys[1]
    assert log.mapped["held_out_reward"] == keys[3]
    assert any("2 keys would give it" in note for note in log.notes)


def test_a_mapping_overrides_and_frees_the_key(tmp_path):
    log = log_of(tmp_path, ["reward", "kl", "my/score"], mapping={"reward": "my/score", "mismatch_kl": "kl"})
    assert log.mapped == {"reward": "my/score", "mismatch_kl": "kl"}
    assert log.unmapped == ("reward",)


def test_a_mapping_alone_reads_a_log_nobody_knows(tmp_path):
    log = log_of(tmp_path, ["my/score"], mapping={"reward": "my/score"})
    assert (log.framework, log.rows) == ("custom", [(1, {"reward": 0.0})])


def test_a_framework_can_be_forced(tmp_path):
    log = log_of(tmp_path, ["reward", "kl", "vllm_kl"], framework="openrlhf")
    assert (log.why, log.mapped["mismatch_kl"]) == ("openrlhf: as asked for", "vllm_kl")


HF = {"loss", "grad_norm", "learning_rate", "eval_loss"}
"""Logged by transformers' Trainer itself."""


def test_trl_keys_are_in_the_installed_trl():
    trl, transformers = pytest.importorskip("trl"), pytest.importorskip("transformers")
    trainers = "\n".join(
        path.read_text(encoding="utf-8")
        for path in (Path(trl.__file__).parent / "trainer").glob("*_trainer.py")
    )
    written = set(re.findall(r"_metrics\[[^\]]+\]\[f?\"([^\"]+)\"\]", trainers))
    assert len(written) > 40
    for keys in FRAMEWORKS["trl"].keys.values():
        for key in keys:
            if key in HF:
                continue
            assert key.removeprefix("eval_") in written, f"TRL logs no {key}"
    source = (Path(transformers.__file__).parent / "trainer.py").read_text(encoding="utf-8")
    for key in HF - {"eval_loss"}:
        assert f'logs["{key}"]' in source, f"transformers logs no {key}"
    assert "_loss" in source


PAIRS = {"train/accuracy": "preference_accuracy", "train/rewards/chosen": "chosen_reward"}


def test_an_accuracy_is_of_pairs_only_beside_other_metrics_of_pairs(tmp_path):
    """fair-rlvr logs its own `accuracy` of answers, which is no preference accuracy."""
    alone = log_of(tmp_path, ["train/reward", "train/accuracy"])
    assert (list(alone.mapped), alone.unmapped) == (["reward"], ("train/accuracy",))
    beside = log_of(tmp_path, list(PAIRS))
    assert {theirs: ours for ours, theirs in beside.mapped.items()} == PAIRS
    assert list(log_of(tmp_path, ["accuracy", "margin", "mean_reward"]).mapped) == ["reward", "margin", "preference_accuracy"]  # fmt: skip
    assert list(log_of(tmp_path, ["accuracy"], mapping={"preference_accuracy": "accuracy"}).mapped) == ["preference_accuracy"]  # fmt: skip
    assert trainer_aggregates({"accuracy": 0.5, "reward": 1.0}) == {"reward": 1.0}
    assert trainer_aggregates({"accuracy": 0.5, "margin": 1.0}) == {"margin": 1.0, "preference_accuracy": 0.5}


def test_keys_of_trl_until_0_16(tmp_path):
    """`completion_length`, and the parts of the reward without `/mean`; DPO's are none."""
    log = log_of(tmp_path, ["reward", "kl", "completion_length", "rewards/format", "rewards/right"])
    assert log.mapped["length"] == "completion_length"
    assert (log.mapped["reward_part:format"], log.unmapped) == ("rewards/format", ())
    pairs = log_of(tmp_path, ["rewards/chosen", "rewards/margins", "rewards/accuracies", "reward", "kl"])
    assert not any(name.startswith("reward_part") for name in pairs.mapped)
    later = log_of(tmp_path, ["reward", "kl", "rewards/a/mean", "rewards/a/std", "rewards/b/c/mean"])
    assert {k: v for k, v in later.mapped.items() if ":" in k} == {
        "reward_part:a": "rewards/a/mean", "reward_part:b/c": "rewards/b/c/mean"
    }  # fmt: skip


def test_a_step_that_stands_still_is_not_taken_where_another_moves(tmp_path):
    """fair-rlvr: `train/global_step` is 0 in all 58 rows of W&B, and one row was left of them."""
    rows = [{"train/global_step": 0, "_step": i, "train/reward": float(i)} for i in range(5)]
    path = tmp_path / "m.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_metric_log(path).steps.tolist() == [0, 1, 2, 3, 4]
    path.write_text("".join(json.dumps({"step": 0, "reward": 1.0}) + "\n" for _ in range(3)))
    assert read_metric_log(path).steps.tolist() == [0]

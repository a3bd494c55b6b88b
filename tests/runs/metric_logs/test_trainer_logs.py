"""What trainers write today, key by key, with signs and units.

`writers/` holds small logs that the trainers' own code wrote, run once on a CPU outside this repository, with numbers chosen by hand:
slime 624b824 (`log_rollout_data`, `log_eval_rollout_data`, `reduce_train_step_metrics`, printed by its logger), AReaL 1.0.4 (its
statistics tracker), tinker-cookbook 0.6.1 (`compute_trajectory_metrics`, `compute_kl_sample_train`, `JsonLogger`), openpipe-art 0.5.18
(`Model.log`) and prime-rl 559b447 (`FileMonitor`, its imports of configurations replaced). What slime's `model.py` adds to a row of an
update, and the names under which AReaL's `actor.py` records, were typed after these files. The other logs here are written after the sources that the key tables name.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from trimtab.metric_logs import aliases, read_metric_log

WRITERS = Path(__file__).parent / "writers"


def first(log) -> dict[str, float]:
    """Our names -> the first number of each."""
    return {name: float(values[0]) for name, (_, values) in log.columns.items()}


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_metric_log(path)


def test_areals_log_ratios_are_turned_into_divergences() -> None:
    """pi_theta is 0.25 nats under pi_prox and that as much under the sampler: both KLs by k1 are +0.25."""
    log = read_metric_log(WRITERS / "areal.jsonl")
    assert (log.framework, log.steps.tolist()) == ("areal", [0, 1, 2])
    assert log.columns["reward"][1].tolist() == [0.0, 0.25, 0.5]
    got = first(log)
    assert (got["policy_kl"], got["mismatch_kl"]) == (0.25, 0.25)
    assert got["weight_mean"] == pytest.approx(math.exp(-0.25))
    assert got["clip_frac"] == pytest.approx(1 / 3)  # of the three tokens with a gradient
    assert {name: got[name] for name in ("entropy", "staleness_lag", "grad_norm", "loss", "length", "num_turns")} == {
        "entropy": 1.5, "staleness_lag": 2.0, "grad_norm": 0.5, "loss": 0.25, "length": 2.5, "num_turns": 2.0,
    }  # fmt: skip
    assert any("k1, turned here" in note for note in log.notes)


def test_a_key_of_the_other_sign_is_not_an_alias_and_a_mapping_takes_it_as_it_is(tmp_path) -> None:
    key = "ppo_actor/update/approx_kl/avg"
    assert key not in aliases()["policy_kl"]
    row = {"step": 1, key: -0.5, "ppo_actor/update/entropy/avg": 1.0}
    assert written(tmp_path / "a.jsonl", [row]).rows == [(1, {"policy_kl": 0.5, "entropy": 1.0})]
    log = read_metric_log(tmp_path / "a.jsonl", mapping={"policy_kl": key})
    assert log.rows == [(1, {"policy_kl": -0.5, "entropy": 1.0})]


def test_slimes_console_by_its_own_code() -> None:
    log = read_metric_log(WRITERS / "slime_console.txt")
    assert (log.framework, log.format, log.steps.tolist()) == ("slime", "console", list(range(6)))
    assert log.columns["length"][0].tolist() == [0, 2, 4]  # one rollout, two updates
    assert log.columns["entropy"][1].tolist() == [1.5, 1.5, 1.0, 1.0, 0.5, 0.5]
    got = first(log)
    assert (got["length"], got["truncated_frac"], got["held_out_reward"]) == (8.5, 0.25, 0.5)
    assert got["policy_kl"] == pytest.approx(0.001)
    assert got["mismatch_abs"] == pytest.approx(0.01)
    assert got["kl"] == pytest.approx(0.005)
    assert (got["clip_frac"], got["grad_norm"], got["learning_rate"], got["generation_s"]) == (
        0.0625,
        0.75,
        1e-6,
        2.5,
    )


def test_slimes_rows_in_wandb_stand_on_one_axis(tmp_path) -> None:
    """Its rows carry `rollout/step` or `train/step`, never both: half of them used to be left out."""
    rows = []
    for rollout in range(3):
        rows.append({"rollout/raw_reward": rollout / 4, "rollout/step": rollout, "_step": len(rows)})
        rows += [{"train/loss": 0.5, "train/step": 2 * rollout + k, "_step": len(rows) + k} for k in range(2)]
    log = written(tmp_path / "w.jsonl", rows)
    assert log.columns["reward"][0].tolist() == [0, 2, 4]
    assert log.columns["loss"][0].tolist() == list(range(6))
    assert "rows without a step" not in log.excluded


def test_tinker_cookbooks_metrics_by_its_own_code() -> None:
    log = read_metric_log(WRITERS / "tinker.jsonl")
    assert (log.framework, log.steps.tolist()) == ("tinker", [0, 1, 2])
    assert first(log) == {
        "reward": 0.25, "solved_all_frac": 0.0, "solved_none_frac": 0.5, "mismatch_kl": 0.015625, "entropy": 1.25,
        "learning_rate": 1e-5, "num_turns": 1.0, "length": 4.0, "staleness_lag": 1.0, "step_s": 2.5,
    }  # fmt: skip
    assert "env/all/stop/max_tokens" in log.unmapped  # a mean over the truncated episodes alone


def test_arts_history_by_its_own_code(tmp_path) -> None:
    log = read_metric_log(WRITERS / "art_history.jsonl")
    assert (log.framework, log.steps.tolist()) == ("art", [0, 1, 2])
    assert log.columns["held_out_reward"][1].tolist() == [0.25, 0.5, 0.75]
    assert log.columns["kl"][1].tolist() == [0.0, 0.01, 0.02]
    got = first(log)
    assert got == {
        "reward": 0.25, "reward_std": 0.25, "held_out_reward": 0.25, "kl": 0.0, "entropy": 1.5, "grad_norm": 0.5, "loss": 0.125,
        "learning_rate": 1e-5, "length": 10.5,
    }  # fmt: skip
    (tmp_path / "history.jsonl").write_bytes((WRITERS / "art_history.jsonl").read_bytes())
    (tmp_path / "state.json").write_text("{}")
    assert read_metric_log(tmp_path).framework == "art"  # the model's folder, as ART leaves it


def test_prime_rls_file_by_its_own_code() -> None:
    """Its file has a row for each kind of number, and drops the NaN of step 2."""
    log = read_metric_log(WRITERS / "prime_rl.jsonl")
    assert (log.framework, log.steps.tolist()) == ("prime-rl", [1, 2, 3])
    assert log.columns["grad_norm"][0].tolist() == [0, 2]
    assert first(log) == {
        "reward": 0.25, "mismatch_kl": 0.002, "mismatch_max": 0.5, "entropy": 1.5, "clip_frac": 0.01, "staleness_lag": 1.0,
        "grad_norm": 0.5, "loss": 0.25, "learning_rate": 1e-6, "step_s": 9.5, "tokens_per_s": 812.0,
    }  # fmt: skip


def test_nemo_rls_two_kls_of_the_engines_are_not_taken_for_the_step_of_the_policy(tmp_path) -> None:
    """`policy_kl_error` is KL(pi_old || mu), the mismatch the other way round: nothing of an update."""
    row = {"train/loss": 0.25, "train/gen_kl_error": 0.002, "train/policy_kl_error": 0.003, "train/approx_entropy": 1.5,
           "train/reward": 0.5, "train/grad_norm": 0.75, "train/mean_gen_tokens_per_sample": 12.0,
           "performance/tokens_per_sec": 812.0, "timing/train/total_step_time": 9.5}  # fmt: skip
    log = written(tmp_path / "n.jsonl", [{"step": 1, **row}])
    assert log.framework == "nemo_rl"
    assert first(log) == {
        "reward": 0.5, "mismatch_kl": 0.002, "entropy": 1.5, "grad_norm": 0.75, "loss": 0.25, "length": 12.0, "step_s": 9.5,
        "tokens_per_s": 812.0,
    }  # fmt: skip
    assert log.unmapped == ("train/policy_kl_error",)


def test_openrlhfs_rollout_statistics(tmp_path) -> None:
    row = {"policy_loss": 0.25, "ppo_kl": 0.001, "vllm_kl": -0.002, "actor_grad_norm": 0.5, "rollout/reward_mean": 0.75,
           "rollout/response_length_mean": 12.0, "rollout/truncated_rate": 0.125}  # fmt: skip
    log = written(
        tmp_path / "o.jsonl", [{"train/global_step": 3, **{f"train/{k}": v for k, v in row.items()}}]
    )
    assert (log.framework, log.steps.tolist()) == ("openrlhf", [3])
    assert first(log) == {
        "reward": 0.75, "policy_kl": 0.001, "truncated_frac": 0.125, "mismatch_kl": -0.002, "loss": 0.25, "grad_norm": 0.5, "length": 12.0,
    }  # fmt: skip
    assert any("k1, which may be negative" in note for note in log.notes)


@pytest.mark.parametrize("prefix", ["", "\x1b[36m(skyrl_entrypoint pid=71)\x1b[0m "])
def test_skyrls_console(tmp_path, prefix) -> None:
    """A step's dict stands on the lines after it, floats as text of four places; Ray marks every line."""
    path = tmp_path / "skyrl.log"
    row = "{{'policy/policy_entropy': '1.5000',\n 'reward/avg_raw_reward': '0.2500',\n 'policy/policy_kl': 'nan',\n 'trainer/global_step': {n}}}"  # fmt: skip
    text = "".join(
        f"2026-11-23 10:00:00 | INFO | tracking:log:189 - Step {n}: \n{row.format(n=n)}\n" for n in (1, 2)
    )
    path.write_text("".join(prefix + line for line in text.splitlines(keepends=True)))
    log = read_metric_log(path)
    assert (log.framework, log.steps.tolist()) == ("skyrl", [1, 2])
    assert repr(first(log)) == "{'reward': 0.25, 'kl': nan, 'entropy': 1.5}"


def test_agent_lightning_is_verl_and_its_own_keys(tmp_path) -> None:
    row = {"actor/entropy": 1.5, "actor/grad_norm": 0.5, "actor/ppo_kl": 0.001, "critic/score/mean": 0.125, "training/reward": 0.75,
           "val/reward": 0.5, "response_length/training/avg_by_turn": 40.0, "timing_s/step": 9.5}  # fmt: skip
    log = written(tmp_path / "a.jsonl", [{"step": 1, "data": row}])
    assert log.framework == "agent-lightning"
    assert first(log) == {
        "reward": 0.75, "policy_kl": 0.001, "entropy": 1.5, "grad_norm": 0.5, "length": 40.0, "step_s": 9.5, "held_out_reward": 0.5,
    }  # fmt: skip
    plain = {key: value for key, value in row.items() if key.startswith(("actor/", "critic/"))}
    assert written(tmp_path / "v.jsonl", [{"step": 1, "data": plain}]).framework == "verl"

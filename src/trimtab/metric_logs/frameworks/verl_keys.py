"""verl's keys: PPO family and SFT."""

from __future__ import annotations

from trimtab.metric_logs.frameworks.base import Framework

_PROBS = "mismatch_abs, mismatch_max: verl's rollout_probs_diff is of probabilities, not of log-probabilities"

VERL = Framework(
    name="verl",
    versions="0.7 to 0.9.1",
    keys={
        "reward": ("critic/score/mean", "critic/rewards/mean"), "reward_max": ("critic/score/max", "critic/rewards/max"),
        "reward_min": ("critic/score/min", "critic/rewards/min"), "kl": ("actor/kl_loss", "actor/reward_kl_penalty"),
        "policy_kl": ("actor/ppo_kl",), "mismatch_kl": ("rollout_corr/k3_kl", "rollout_corr/kl"),
        "mismatch_abs": ("training/rollout_probs_diff_mean",), "mismatch_max": ("training/rollout_probs_diff_max",),
        "clamped_ess_frac": ("rollout_corr/rollout_is_eff_sample_size",), "weight_mean": ("rollout_corr/rollout_is_mean",),
        "entropy": ("actor/entropy", "actor/entropy_loss"), "clip_frac": ("actor/pg_clipfrac",),
        "dual_clip_frac": ("actor/pg_clipfrac_lower",), "staleness_lag": ("training/off_policy/trajectory_staleness/mean",),
        "grad_norm": ("actor/grad_norm", "train/grad_norm"), "loss": ("actor/pg_loss", "train/loss"),
        "held_out_loss": ("val/loss",), "learning_rate": ("actor/lr", "train/lr"), "advantage_mean": ("critic/advantages/mean",),
        "value_loss": ("critic/vf_loss",), "value_explained_variance": ("critic/vf_explained_var",),
        "length": ("response_length/mean",), "length_max": ("response_length/max",),
        "truncated_frac": ("response_length/clip_ratio",), "num_turns": ("num_turns/mean",),
        "tool_calls": ("tool_call_counts/mean",), "step_s": ("perf/time_per_step", "timing_s/step"),
        "generation_s": ("timing_s/gen",), "tokens_per_s": ("perf/throughput",),
    },
    patterns={"held_out_reward": (r"val-core/.+/mean@\d+", r"val-core/.+", r"val/test_score/.+")},
    notes={
        "actor/ppo_kl": "policy_kl: verl's actor/ppo_kl is KL(pi_old || pi_theta), not KL to the reference",
        "actor/kl_loss": "kl: verl's actor/kl_loss is the KL to the reference by the configured estimator",
        "actor/pg_clipfrac_lower": "dual_clip_frac: verl's pg_clipfrac_lower is dual clipping (A < 0, ratio over clip_ratio_c), "
        "not the lower bound 1 - eps",
        "rollout_corr/rollout_is_eff_sample_size": "clamped_ess_frac: verl clamps the weights before it computes the ESS, so a "
        "heavy tail cannot lower it",
        "rollout_corr/kl": "mismatch_kl: verl's rollout_corr/kl is the k1 estimate and may be negative",
        "training/rollout_probs_diff_mean": _PROBS,
        "critic/rewards/mean": "reward: verl's critic/rewards holds the KL penalty when the KL is in the reward",
        "response_length/mean": "length: verl's response_length counts the tools' tokens too",
        "response_length/clip_ratio": "truncated_frac: a response counts as cut by its length, the tools' tokens included",
        "perf/throughput": "tokens_per_s: verl's throughput is a GPU's",
    },
)  # fmt: skip

"""Key tables of prime-rl, OpenRLHF, slime, SkyRL, NeMo RL, tinker-cookbook, and of the peers rldoctor and rlprobe.

Read at:

- PrimeIntellect-ai/prime-rl@559b447: `src/prime_rl/trainer/rl/train.py`, `trainer/rl/loss.py`,
  `orchestrator/orchestrator.py`, `orchestrator/metrics.py`, `monitors/file.py`.
- OpenRLHF 0.11.2 (PyPI): `openrlhf/trainer/ppo_trainer.py`, `trainer/ray/ppo_actor.py`, `models/loss.py`,
  `utils/logging_utils.py`.
- THUDM/slime@624b824: `slime/backends/megatron_utils/loss.py` and `model.py`,
  `slime/observability/rollout_metrics.py` and `train_metric_utils.py`, `examples/train_infer_mismatch_helper/mis.py`.
- SkyRL 0.3.0 (PyPI) and NovaSky-AI/SkyRL@a956457: `skyrl/train/trainer.py`, `train/generators/utils.py`,
  `train/fully_async_trainer.py`, `train/utils/tracking.py`, `backends/skyrl_train/workers/worker.py`.
- NVIDIA-NeMo/RL@7ea279a: `nemo_rl/algorithms/grpo.py`, `algorithms/loss/loss_functions.py`, `algorithms/utils.py`,
  `experience/rollouts.py`, `utils/logger.py`.
- tinker-cookbook 0.6.1 (PyPI): `tinker_cookbook/rl/metrics.py`, `rl/metric_util.py`, `rl/train.py`, `utils/ml_log.py`.
"""

from __future__ import annotations

from trimtab.metric_logs.frameworks.base import Framework

_AGG = r"(?:train/)?(?:agg|[^/]+)/effective/[^/]+/"

PRIME_RL = Framework(
    "prime-rl", "559b447 (2026-08-21)",
    keys={
        "reward": ("reward/all/mean", "reward/mean"), "mismatch_kl": ("mismatch_kl/all/mean", "mismatch_kl/mean"),
        "mismatch_max": ("mismatch_kl/all/max", "mismatch_kl/max"), "entropy": ("entropy/all/mean", "entropy/mean"),
        "clip_frac": ("is_masked/mean", "is_masked/all/mean"), "clip_high_frac": ("is_masked_high/mean",),
        "clip_low_frac": ("is_masked_low/mean",), "staleness_lag": ("off_policy/mean",), "grad_norm": ("optim/grad_norm",),
        "loss": ("loss/mean",), "held_out_loss": ("val/loss",), "learning_rate": ("optim/lr",),
        "length": ("seq_len/all/mean",), "truncated_frac": ("is_truncated/all/mean",), "step_s": ("time/step",),
        "tokens_per_s": ("perf/throughput",),
    },
    patterns={
        "reward": (r"train/agg/effective/[^/]+/reward/mean", _AGG + "reward/mean"),
        "solved_all_frac": (r"train/agg/effective/[^/]+/solved_all", r"train/.+/solved_all", "solved_all(/all)?"),
        "solved_none_frac": (r"train/agg/effective/[^/]+/solved_none", r"train/.+/solved_none", "solved_none(/all)?"),
        "truncated_frac": (r"train/agg/effective/[^/]+/is_truncated/mean", _AGG + "is_truncated/mean"),
        "length": (r"train/agg/effective/[^/]+/num_output_tokens/mean", _AGG + "num_output_tokens/mean"),
        "length_max": (r"train/agg/effective/[^/]+/num_output_tokens/max",),
        "num_turns": (r"train/agg/effective/num_turns/mean", r"train/.+/effective/num_turns/mean"),
        "held_out_reward": (r"eval/.+/effective/[^/]+/avg@\d+", r"eval/.+/avg@\d+"),
    },
    notes={
        "mismatch_kl/all/max": "mismatch_max: the largest k3 term of a token, not of |log pi_old - log mu|",
        "mismatch_kl/all/mean": "mismatch_kl: between the sampler and the weights that are trained, so that staleness is in it",
        "optim/grad_norm": "prime-rl's metrics.jsonl drops values that are not finite: a NaN shows as a gap, not as a number",
    },
)  # fmt: skip

OPENRLHF = Framework(
    "openrlhf", "0.11.2", prefixes=("train/",),
    keys={
        "reward": ("reward", "rollout/reward_mean"), "reward_std": ("group_reward_std",), "kl": ("kl",),
        "policy_kl": ("ppo_kl",), "truncated_frac": ("rollout/truncated_rate",), "mismatch_kl": ("vllm_kl",), "entropy": ("entropy_loss",), "clip_frac": ("ppo_clip_ratio",),
        "loss": ("policy_loss", "gpt_loss", "loss"), "value_loss": ("critic_loss",),
        "grad_norm": ("actor_grad_norm", "grad_norm"), "learning_rate": ("actor_lr", "lr"), "length": ("response_length", "rollout/response_length_mean"),
        "chosen_reward": ("chosen_reward",), "rejected_reward": ("reject_reward",), "preference_accuracy": ("acc",),
        "held_out_loss": ("eval_eval_loss", "eval_loss"), "step_s": ("timing/step_total",),
        "generation_s": ("timing/generation",),
    },
    patterns={"held_out_reward": (r"eval_.+_pass1",)},
    notes={
        "ppo_kl": "policy_kl: OpenRLHF's ppo_kl is KL(pi_old || pi_theta) by k1, not KL to the reference",
        "vllm_kl": "mismatch_kl: KL(mu || pi_old) by k1, which may be negative; logged with a correction only",
        "kl": "kl: by the configured estimator, k1 unless set otherwise",
        "group_reward_std": "reward_std: logged by algorithms with groups only",
    },
)  # fmt: skip

SLIME = Framework(
    "slime", "624b824 (2026-08-21)",
    keys={
        "reward": ("rollout/raw_reward", "rollout/rewards"), "kl": ("train/kl_loss",), "policy_kl": ("train/ppo_kl",),
        "mismatch_abs": ("train/train_rollout_logprob_abs_diff",), "mismatch_kl": ("train/mis_k3_kl", "train/mis_kl"),
        "weight_mean": ("train/tis", "train/ois"), "entropy": ("train/entropy_loss", "rollout/entropy"),
        "clip_frac": ("train/pg_clipfrac",), "grad_norm": ("train/grad_norm",), "loss": ("train/pg_loss", "train/loss"),
        "learning_rate": ("train/lr-pg_0",), "advantage_mean": ("rollout/advantages",),
        "value_loss": ("train/value_loss", "train/critic-value_loss"),
        "length": ("rollout/response_len/mean", "multi_turn/wo_obs_response_length/response_length_mean"),
        "length_max": ("rollout/response_len/max",), "truncated_frac": ("rollout/truncated_ratio", "rollout/truncated"),
        "repetition_frac": ("rollout/repetition_frac",),
        "num_turns": ("multi_turn/multi_turn_metric/round_number_mean",),
        "step_s": ("perf/step_time",), "generation_s": ("perf/rollout_time",),
        "tokens_per_s": ("perf/actor_train_tok_per_s",),
    },
    patterns={"held_out_reward": (r"eval/(?!step$)[^/]+(?<!-truncated_ratio)",)},
    notes={
        "train/ppo_kl": "policy_kl: slime's ppo_kl is of the policy before the update by k1, not of the reference",
        "train/tis": "weight_mean: slime logs it before it is clipped",
        "train/ois": "weight_mean: slime's ois is of pi_theta / pi_old, not of the engines",
        "rollout/rewards": "reward: slime's rollout/rewards are normalised within groups, their mean says little",
        "train/mis_kl": "mismatch_kl: the k1 estimate, which may be negative",
        "rollout/repetition_frac": "repetition_frac: the fraction of samples whose end repeats itself",
    },
)  # fmt: skip

SKYRL = Framework(
    "skyrl", "0.3.0 and a956457 (2026-08-21)",
    keys={
        "reward": ("reward/avg_raw_reward", "loss/avg_final_rewards"), "kl": ("policy/policy_kl", "loss/avg_kl"),
        "entropy": ("policy/policy_entropy",), "clip_frac": ("policy/loss_metrics/clip_ratio", "policy/ppo_clip_ratio"),
        "mismatch_abs": ("policy/rollout_train_logprobs_abs_diff_mean", "policy/minibatch_rollout_logprobs_abs_diff_mean"),
        "mismatch_max": ("policy/rollout_train_logprobs_abs_diff_max",), "staleness_lag": ("async/staleness_mean",),
        "grad_norm": ("policy/grad_norm", "policy/raw_grad_norm"), "loss": ("policy/policy_loss", "policy/final_loss"),
        "learning_rate": ("policy/policy_lr",), "advantage_mean": ("loss/avg_raw_advantages",),
        "value_loss": ("critic/critic_loss",),
        "length": ("generate/avg_assistant_tokens", "generate/avg_num_tokens"),
        "length_max": ("generate/max_assistant_tokens", "generate/max_num_tokens"), "step_s": ("timing/step",),
        "generation_s": ("timing/generate",), "tokens_per_s": ("trainer/tokens_per_second_per_gpu",),
    },
    patterns={"held_out_reward": (r"eval/all/avg_score", r"eval/.+/avg_score")},
    notes={
        "generate/avg_num_tokens": "length: SkyRL's avg_num_tokens counts the environment's tokens too",
        "policy/policy_loss": "loss: SkyRL sums losses of micro-batches",
    },
)  # fmt: skip

NEMO_RL = Framework(
    "nemo_rl", "7ea279a (2026-08-22)",
    prefixes=("train/",),
    keys={
        "reward": ("reward",), "kl": ("kl_penalty",), "mismatch_kl": ("gen_kl_error",),
        "weight_mean": ("sampling_importance_ratio",), "entropy": ("approx_entropy",), "grad_norm": ("grad_norm",),
        "loss": ("loss",), "learning_rate": ("lr",), "advantage_mean": ("advantages/mean",),
        "length": ("mean_gen_tokens_per_sample",), "length_max": ("max_gen_tokens_per_sample",),
        "truncated_frac": ("truncation_rate",), "num_turns": ("avg_turns_per_sample",),
        "staleness_lag": ("avg_trajectory_age",), "held_out_reward": ("validation/accuracy", "validation/reward"),
        "held_out_loss": ("validation/val_loss", "validation/loss"), "chosen_reward": ("rewards_chosen_mean",),
        "rejected_reward": ("rewards_rejected_mean",), "preference_accuracy": ("accuracy",),
        "step_s": ("timing/train/total_step_time",), "generation_s": ("timing/train/generation",),
        "tokens_per_s": ("performance/tokens_per_sec", "timing/train/valid_tokens_per_sec_per_gpu"),
    },
    notes={
        "approx_entropy": "entropy: NeMo RL's approx_entropy is an estimate off the sampled tokens",
        "gen_kl_error": "mismatch_kl: KL(mu || pi_old) by the estimator of the reference's KL (k3 unless set otherwise); "
        "policy_kl_error is the same the other way round, and says nothing of updates",
        "grad_norm": "grad_norm: NeMo RL adds the norms of all updates of a step",
        "kl_penalty": "kl: without its coefficient; 0 where the coefficient is 0",
        "avg_trajectory_age": "staleness_lag: asynchronous training only",
    },
)  # fmt: skip

TINKER = Framework(
    "tinker", "tinker-cookbook 0.6.1",
    # of a loop's own `reward/<name>`, means and differences of others are no parts
    parts=r"reward/(?!mean$|total$|std$|min$|max$|avg_|\w*_minus_)([A-Za-z]\w*)",
    keys={
        "reward": ("env/all/reward/total", "reward/total", "reward/mean"), "solved_all_frac": ("env/all/by_group/frac_all_good",),
        "solved_none_frac": ("env/all/by_group/frac_all_bad",), "kl": ("kl_policy_base",),
        "policy_kl": ("kl_pre_post_v2", "kl_pre_post_v1"),
        "mismatch_kl": ("optim/kl_sample_train_v2", "optim/kl_sample_train_v1"),
        "entropy": ("optim/entropy", "policy/entropy"),
        "learning_rate": ("optim/lr", "learning_rate", "skyrl.ai/learning_rate"), "loss": ("train_mean_nll", "dpo_loss"),
        "grad_norm": ("skyrl.ai/grad_norm",),  # of a SkyRL 0.3 server: backends/jax.py, OptimStepMetrics
        "num_turns": ("env/all/turns_per_episode",), "held_out_reward": ("test/env/all/reward/total",),
        "held_out_loss": ("test/nll",), "margin": ("margin",), "preference_accuracy": ("accuracy",),
        "chosen_reward": ("chosen_reward",), "rejected_reward": ("rejected_reward",), "step_s": ("time/total",),
        "generation_s": ("time/sampling_time_mean",), "staleness_lag": ("async/staleness_mean",),
        "length": ("env/all/ac_tokens_per_turn",),
    },
    notes={
        "optim/kl_sample_train_v2": "mismatch_kl: half the mean squared difference (k2), not k3",
        "optim/kl_sample_train_v1": "mismatch_kl: the k1 estimate, which may be negative",
        "optim/entropy": "entropy: minus the mean log-probability of the sampled tokens, an estimate",
        "kl_policy_base": "kl: the mean log-ratio to the base model (k1), which may be negative",
        "env/all/ac_tokens_per_turn": "length: tokens of one turn, not of a whole episode",
    },
)  # fmt: skip

RLDOCTOR = Framework(
    "rldoctor", "0.2.0, its canonical names",
    keys={
        "reward": ("reward_mean",), "reward_std": ("reward_std",), "reward_max": ("reward_max",),
        "reward_min": ("reward_min",), "held_out_reward": ("eval_score",), "zero_std_frac": ("zero_var_group_frac",),
        "advantage_mean": ("advantage_mean",), "advantage_std": ("advantage_std",), "entropy": ("entropy",), "kl": ("kl",),
        "clip_frac": ("pg_clipfrac",), "clip_low_frac": ("pg_clipfrac_low",), "clip_high_frac": ("pg_clipfrac_high",),
        "grad_norm": ("grad_norm",), "learning_rate": ("lr",), "loss": ("policy_loss",), "length": ("response_len_mean",),
        "length_max": ("response_len_max",), "truncated_frac": ("response_len_clip_ratio",),
        "value_explained_variance": ("value_explained_var",), "tokens_per_s": ("throughput",), "step_s": ("time_per_step",),
    },
)  # fmt: skip

RLPROBE = Framework(
    "rlprobe", "0.1.0, the columns of steps.parquet", parts=r"reward_component\.(.+)",
    keys={
        "reward": ("reward_mean",), "reward_std": ("group_reward_std_mean", "reward_std"), "reward_max": ("reward_max",),
        "reward_min": ("reward_min",), "zero_std_frac": ("zero_variance_group_frac",), "kl": ("kl_mean",), "kl_max": ("kl_max",),
        "ratio_p95": ("ratio_p95",), "weight_mean": ("ratio_mean",), "entropy": ("entropy_mean",),
        "clip_frac": ("clip_fraction",), "grad_norm": ("grad_norm",), "loss": ("loss",), "learning_rate": ("lr",),
        "advantage_mean": ("adv_mean",), "advantage_std": ("adv_std",), "value_loss": ("value_loss",),
        "value_explained_variance": ("value_explained_variance",), "update_ratio": ("weight_update_ratio",),
        "length": ("completion_len_mean",), "length_max": ("completion_len_max",),
        "truncated_frac": ("truncation_rate", "max_len_hit_frac"), "repetition_frac": ("repetition_rate",),
        "step_s": ("step_time_s",), "generation_s": ("generation_time_s",),
    },
    notes={"ratio_mean": "weight_mean: rlprobe's ratio_mean is of pi_theta / pi_old"},
)  # fmt: skip

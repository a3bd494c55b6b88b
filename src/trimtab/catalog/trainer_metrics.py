"""Readings of a trainer's own log, one number a step: `aggregate/<name>` of the slice `all`.

The names are the vocabulary into which every trainer's keys are translated (`trimtab.metric_logs`).
"""

from __future__ import annotations

from trimtab.catalog.definitions import Definition, Direction

_ROWS: dict[str, tuple[str, str, Direction, str]] = {
    # reward
    "reward": ("mean reward of the sequences", "1", "down is bad", "every dashboard"),
    "reward_std": ("standard deviation of the reward within a group, mean over groups", "1", "down is bad", "RAGEN, arXiv 2504.20073"),
    "reward_max": ("largest reward of the step", "1", "neither", "every dashboard"),
    "reward_min": ("smallest reward of the step", "1", "neither", "every dashboard"),
    "zero_std_frac": ("share of groups whose rewards are all equal: they give no gradient", "share", "up is bad", "DAPO, arXiv 2503.14476"),
    "solved_all_frac": ("share of groups in which every rollout is solved", "share", "neither", "prime-rl solved_all"),
    "solved_none_frac": ("share of groups in which no rollout is solved", "share", "up is bad", "prime-rl solved_none"),
    "extreme_reward_frac": ("share of rewards at the smallest or largest value seen", "share", "neither", "default, not calibrated"),
    "held_out_reward": ("score on held-out tasks, a verifier or an evaluation", "1", "down is bad", "every dashboard"),
    "reward_length_corr": ("correlation of reward and length over the sequences of a step", "1", "up is bad", "default, not calibrated"),
    "correct_logp": ("mean log-probability a token of correct responses", "nats", "down is bad", "LLD, arXiv 2512.04220"),
    # policy
    "kl": ("mean KL(pi_theta || pi_ref), k3 over all gradient tokens, or the trainer's own", "nats", "up is bad", "every dashboard"),
    "kl_max": ("largest KL to the reference of a token of the step", "nats", "up is bad", "rlprobe kl_max"),
    "policy_kl": ("KL(pi_old || pi_theta): how far the policy moved since sampling, as the trainer logs it", "nats", "up is bad", "verl actor/ppo_kl"),
    "mismatch_kl": ("KL(mu || pi_old) by k3: the engines' disagreement, as the trainer logs it", "nats", "up is bad", "verl rollout_corr/k3_kl"),
    "mismatch_abs": ("mean |log pi_old - log mu|, or of probabilities, as the trainer logs it", "nats or 1", "up is bad", "TRL sampling/sampling_logp_difference/mean"),
    "mismatch_max": ("largest |log pi_old - log mu| of the step", "nats or 1", "up is bad", "TRL sampling/sampling_logp_difference/max"),
    "clamped_ess_frac": ("ESS over n of weights that were clamped first: blind to the tail", "share", "neither", "verl rollout_corr/rollout_is_eff_sample_size"),
    "weight_mean": ("mean importance weight", "1", "neither", "verl rollout_corr/rollout_is_mean"),
    "ratio_p95": ("95th percentile of pi_theta / pi_old, as the trainer logs it", "1", "up is bad", "rlprobe ratio_p95"),
    "entropy": ("mean entropy over all gradient tokens, or the trainer's own", "nats", "neither", "every dashboard"),
    "template_mi": ("cross-input distinguishability: retrieval accuracy of the input from the output", "share", "down is bad", "RAGEN-2, arXiv 2604.06268"),
    "clip_frac": ("share of tokens whose gradient the clip removes, both sides", "share", "up is bad", "PPO, arXiv 1707.06347"),
    "clip_high_frac": ("share clipped at the upper side", "share", "up is bad", "PPO, arXiv 1707.06347"),
    "clip_low_frac": ("share clipped at the lower side", "share", "up is bad", "PPO, arXiv 1707.06347"),
    "dual_clip_frac": ("share of dual clipping (negative advantage, large ratio)", "share", "up is bad", "verl actor/pg_clipfrac_lower"),
    "staleness_lag": ("mean age of the sampled tokens in policy versions", "versions", "up is bad", "AReaL sample_staleness"),
    # optimisation
    "grad_norm": ("gradient norm before clipping, as the trainer logs it", "1", "up is bad", "every dashboard"),
    "loss": ("loss as the trainer logs it", "1", "neither", "every dashboard"),
    "held_out_loss": ("loss on held-out data", "nats", "up is bad", "every dashboard"),
    "learning_rate": ("learning rate", "1", "neither", "every dashboard"),
    "advantage_mean": ("mean advantage", "1", "neither", "every dashboard"),
    "advantage_std": ("standard deviation of the advantages", "1", "down is bad", "every dashboard"),
    "value_loss": ("loss of the value model", "1", "up is bad", "every dashboard"),
    "value_explained_variance": ("explained variance of the value model, 1 at most; negative where its mean alone would do better", "1", "down is bad", "every dashboard"),
    "update_ratio": ("size of the weights' update over the size of the weights", "1", "up is bad", "rlprobe weight_update_ratio"),
    # text
    "length": ("mean gradient tokens a sequence", "count", "neither", "every dashboard"),
    "length_max": ("longest sequence of the step", "count", "neither", "every dashboard"),
    "truncated_frac": ("share of sequences cut at the length limit", "share", "up is bad", "TRL completions/clipped_ratio"),
    "repetition_frac": ("share of repeated n-grams", "share", "up is bad", "rlprobe repetition_rate"),
    "empty_frac": ("share of sequences without content", "share", "up is bad", "default, not calibrated"),
    # tools
    "tool_calls": ("tool calls a sequence", "count", "neither", "TRL tools/call_frequency"),
    "no_call_frac": ("share of sequences that call no tool", "share", "up is bad", "NeMo Gym PR#1304"),
    "tool_failure_frac": ("share of tool calls that fail", "share", "up is bad", "TRL tools/failure_frequency"),
    "tool_latency_s": ("mean wall seconds of a tool call", "seconds", "up is bad", "verl#2188"),
    "void_turn_frac": ("share of turns with neither a complete call nor an answer", "share", "up is bad", "SimpleTIR, arXiv 2509.02479"),
    "num_turns": ("mean turns a sequence", "count", "neither", "verl num_turns/mean"),
    # preference and supervised training
    "chosen_logp": ("mean log-probability of chosen responses", "nats", "down is bad", "DPO, arXiv 2305.18290"),
    "rejected_logp": ("mean log-probability of rejected responses", "nats", "neither", "DPO, arXiv 2305.18290"),
    "chosen_reward": ("implicit reward of chosen responses", "1", "down is bad", "DPO, arXiv 2305.18290"),
    "rejected_reward": ("implicit reward of rejected responses", "1", "neither", "DPO, arXiv 2305.18290"),
    "margin": ("chosen minus rejected implicit reward", "1", "down is bad", "DPO, arXiv 2305.18290"),
    "preference_accuracy": ("share of pairs ranked right", "share", "down is bad", "DPO, arXiv 2305.18290"),
    "desirable_frac": ("share of desirable examples in a KTO step", "share", "neither", "KTO, arXiv 2402.01306"),
    "token_accuracy": ("share of tokens the model would have written", "share", "down is bad", "TRL mean_token_accuracy"),
    # machine
    "step_s": ("wall seconds a step", "seconds", "up is bad", "every dashboard"),
    "generation_s": ("wall seconds of generation a step", "seconds", "up is bad", "every dashboard"),
    "tokens_per_s": ("tokens a second", "1/s", "down is bad", "every dashboard"),
    "slowest_rank_ratio": ("slowest rank's step time over the median rank's", "ratio", "up is bad", "default, not calibrated"),
    "memory_ratio": ("largest rank's memory over the median rank's", "ratio", "up is bad", "default, not calibrated"),
}  # fmt: skip

METRIC_NAMES = tuple(_ROWS)
"""Our names for a trainer's per-step numbers."""

METRICS: dict[str, Definition] = {f"aggregate/{name}": Definition(*row) for name, row in _ROWS.items()}

"""TRL's keys: GRPO, RLOO, DPO, KTO, SFT and reward trainers. A test looks each up in the installed TRL's
source."""

from __future__ import annotations

from trimtab.metric_logs.frameworks.base import Framework

TRL = Framework(
    name="trl",
    versions="1.2 to 1.16; completion_length and rewards/<name> until 0.16",
    parts=r"rewards/(?!(?:chosen|rejected|margins|accuracies)$)(.+(?=/mean$)|[^/]+)(?:/mean)?",
    patterns={"length": ("completion_length",)},
    prefixes=("train/",),
    keys={
        "reward": ("reward", "mean_reward"), "reward_std": ("reward_std",), "reward_max": ("max_reward",),
        "reward_min": ("min_reward",), "zero_std_frac": ("frac_reward_zero_std",),
        "held_out_reward": ("eval_reward", "eval_accuracy", "eval_rewards/accuracies"), "kl": ("kl",), "entropy": ("entropy",),
        "clip_frac": ("clip_ratio/region_mean",), "clip_high_frac": ("clip_ratio/high_mean",),
        "clip_low_frac": ("clip_ratio/low_mean",), "mismatch_abs": ("sampling/sampling_logp_difference/mean",),
        "mismatch_max": ("sampling/sampling_logp_difference/max",), "weight_mean": ("sampling/importance_sampling_ratio/mean",),
        "grad_norm": ("grad_norm",), "loss": ("loss",), "held_out_loss": ("eval_loss",), "learning_rate": ("learning_rate",),
        "length": ("completions/mean_length",), "length_max": ("completions/max_length",),
        "truncated_frac": ("completions/clipped_ratio",), "tool_calls": ("tools/call_frequency",),
        "tool_failure_frac": ("tools/failure_frequency",), "chosen_logp": ("logps/chosen",), "rejected_logp": ("logps/rejected",),
        "chosen_reward": ("rewards/chosen",), "rejected_reward": ("rewards/rejected",), "margin": ("rewards/margins", "margin"),
        "preference_accuracy": ("rewards/accuracies", "accuracy"), "token_accuracy": ("mean_token_accuracy",),
        "step_s": ("step_time",),
    },
    notes={
        "kl": "kl: TRL logs it with beta > 0 only; in KTO it is the batch's reference point, not a mean over tokens",
        "reward_std": "reward_std: TRL 1.2 to 1.16 log the spread over the whole batch, not within groups",
        "entropy": "entropy: TRL averages of several trainers include padding (trl#6809)",
        "tools/failure_frequency": "tool_failure_frac: TRL logs 0 when no tool was called at all; read it beside tool_calls",
        "sampling/importance_sampling_ratio/mean": "weight_mean: TRL logs it after clamping or masking",
    },
)  # fmt: skip

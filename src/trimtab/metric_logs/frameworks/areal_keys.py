"""AReaL's keys, as its statistics tracker exports them: scopes joined by `/`, and `avg`, `min` or `max` last.

Read at areal 1.0.4 (PyPI): `areal/trainer/ppo/actor.py` and `critic.py` (what is recorded),
`areal/utils/stats_tracker.py` (how keys are made), `areal/utils/functional/functional.py` (signs),
`areal/utils/stats_logger.py` (W&B, TensorBoard, trackio and SwanLab, with the same keys).
"""

from __future__ import annotations

from trimtab.metric_logs.frameworks.base import Framework

_ACTOR = "ppo_actor/"
_UPDATE = "ppo_actor/update/"
_VERSIONS = f"{_UPDATE}version_stats/sample_staleness"
_K1 = "AReaL logs the mean log-ratio the other way round (k1, turned here); it may be negative"

AREAL = Framework(
    name="areal",
    versions="1.0.4",
    keys={
        "reward": (f"{_ACTOR}task_reward/avg", "rollout/reward"),
        "reward_max": (f"{_ACTOR}task_reward/max",),
        "reward_min": (f"{_ACTOR}task_reward/min",),
        "held_out_reward": ("eval-rollout/reward",),
        "policy_kl": (f"{_UPDATE}approx_kl/avg",),
        "mismatch_kl": (f"{_UPDATE}behave_approx_kl/avg",),
        "weight_mean": (f"{_UPDATE}behave_imp_weight/avg",),
        "entropy": (f"{_UPDATE}entropy/avg",),
        "clip_frac": (f"{_UPDATE}clip_ratio/avg",),
        "dual_clip_frac": (f"{_UPDATE}dual_clip_ratio/avg",),
        "staleness_lag": (f"{_VERSIONS}_theta_avg",),
        "grad_norm": (f"{_UPDATE}grad_norm",),
        "loss": (f"{_UPDATE}actor_loss/avg",),
        "learning_rate": (f"{_UPDATE}lr",),
        "advantage_mean": (f"{_ACTOR}advantages/avg",),
        "length": (f"{_ACTOR}seq_len/avg",),
        "length_max": (f"{_ACTOR}seq_len/max",),
        "num_turns": ("rollout/num_turns",),
        "generation_s": ("timeperf/rollout",),
    },
    negated=frozenset({f"{_UPDATE}approx_kl/avg", f"{_UPDATE}behave_approx_kl/avg"}),
    notes={
        f"{_UPDATE}approx_kl/avg": f"policy_kl: from the proximal policy; {_K1}",
        f"{_UPDATE}behave_approx_kl/avg": f"mismatch_kl: over tokens that rejection kept; {_K1}",
        f"{_UPDATE}behave_imp_weight/avg": "weight_mean: of the proximal policy over the sampler, after the cap",
        f"{_ACTOR}seq_len/avg": "length: AReaL's seq_len counts the prompt too",
        "timeperf/rollout": "generation_s: the time the trainer waits for a batch, generation runs beside it",
    },
)

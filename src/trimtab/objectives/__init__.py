"""RL losses and corrections of off-policy data as pure torch functions.

Tensors (B, T), explicit denominators, counts of everything clipped or dropped. docs/reference/objectives.md
has the table of formulas.
"""

from trimtab.objectives.advantages import group_advantages
from trimtab.objectives.batch_size_invariance import BatchRules, batch_size_rules
from trimtab.objectives.combined_corrections import combine, self_normalise, weight_sums
from trimtab.objectives.corrections import Correction, icepop, mis, ratio_at, tis
from trimtab.objectives.decoupled import decoupled_kl, decoupled_ppo
from trimtab.objectives.entropy_control import (
    EntropyTarget,
    entropy_bonus,
    select_by_covariance,
    select_high_entropy,
)
from trimtab.objectives.kl_penalties import kl_penalty, kl_terms
from trimtab.objectives.policy_gradient import cispo, minirl, reinforce
from trimtab.objectives.ppo import dapo, dr_grpo, grpo, gspo, ppo_clip
from trimtab.objectives.reduction import Loss, aggregate, local_denominator, sequence_lengths
from trimtab.objectives.routing_replay import RoutingReplay
from trimtab.objectives.token_filters import k3_rejection, off_policy_rejection, reject_nonfinite, veto
from trimtab.objectives.token_slices import Cells, count_marks, merge_counts, per_token
from trimtab.objectives.vcpo import WeightSums, learning_rate_scale, off_policy_baseline, sequence_log_weights
from trimtab.objectives.weights.weight_average import WeightAverage, trainable

__all__ = [
    "BatchRules", "Cells", "Correction", "EntropyTarget", "Loss", "RoutingReplay", "WeightAverage",
    "WeightSums", "aggregate", "batch_size_rules", "cispo", "combine", "count_marks", "dapo", "decoupled_kl",
    "decoupled_ppo", "dr_grpo", "entropy_bonus", "group_advantages", "grpo", "gspo", "icepop", "k3_rejection",
    "kl_penalty", "kl_terms", "learning_rate_scale", "local_denominator", "merge_counts", "minirl", "mis",
    "off_policy_baseline", "off_policy_rejection", "per_token", "ppo_clip", "ratio_at", "reinforce",
    "reject_nonfinite", "select_by_covariance", "select_high_entropy", "self_normalise", "sequence_lengths",
    "sequence_log_weights", "tis", "trainable", "veto", "weight_sums",
]  # fmt: skip

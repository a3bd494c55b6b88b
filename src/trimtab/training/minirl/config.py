"""MiniRLConfig: GRPOConfig with the objectives of trimtab. Every field says its unit, formula and off switch.

Left alone it is MiniRL with the paper's settings. TRL's own fields keep their meaning where they are honoured
(beta, delta, epsilon, epsilon_high, num_iterations, off_policy_mask_threshold, scale_rewards); the others are
refused.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from transformers.utils import logging
from trl import GRPOConfig

from trimtab.training.minirl.config_validation import is_read, refuse_config
from trimtab.training.minirl.objective_defaults import DEFAULTS
from trimtab.training.minirl.refused_settings import refuse_settled

logger = logging.get_logger(__name__)


def _field(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass
class MiniRLConfig(GRPOConfig):
    """Settings of a MiniRLTrainer.

    Raises:
        UnsupportedError: A setting that the trainer cannot honour, by name.
        ObjectiveError: A value that is out of range.
    """

    _VALID_DICT_FIELDS: ClassVar[list[str]] = [*GRPOConfig._VALID_DICT_FIELDS, "slices"]

    objective: str = _field(
        "minirl", f"Loss: {', '.join(DEFAULTS)}. Denominators are those of the whole optimizer step."
    )
    importance: bool = _field(
        True, "minirl: weight sg[min(pi_theta/mu, weight_cap)]; False is the ablation without."
    )
    clip: bool = _field(True, "minirl: mask on staleness beyond epsilon; False is the ablation without.")
    length_norm: bool = _field(
        False, "minirl, reinforce: divide each response by its tokens (the paper's ablation)."
    )
    weight_cap: float | None = _field(
        None,
        "Bound on pi_theta/mu (a ratio): minirl truncates (5), decoupled lifts mu (100). None: those; inf: "
        "off.",
    )
    loss_type: str | None = _field(None, "TRL's name of a loss; refused, set objective instead.")
    epsilon: float | None = _field(None, "Staleness below 1 - epsilon is clipped. None: the paper's value.")
    epsilon_high: float | None = _field(
        None,
        "Staleness above 1 + epsilon_high is clipped; cispo: the ratio itself. None: the paper's, or epsilon "
        "if that is set.",
    )
    scale_rewards: str | None = _field(
        None,
        "Divide centred advantages by the std of the group, batch or none. None: as the objective's paper.",
    )
    vllm_importance_sampling_correction: bool = _field(
        False, "TRL's own correction; refused, set correction instead."
    )
    use_bias_correction_kl: bool = _field(False, "TRL's name of kl_estimator='k3_weighted'.")
    kl_estimator: str | None = _field(
        None,
        "Of beta's KL, by its gradient: k3+, k2: KL(pi_theta || pi_ref); k3: KL(pi_ref || pi_theta); "
        "k3_weighted: "
        "pi_theta/pi_old x k3, as TRL's correction. None: k3+ for minirl, k3 as the papers of the others.",
    )
    kl_weight_cap: float | None = _field(
        None,
        "k3+, k2: weight the KL by sg[min(pi_theta/mu, this)] (a ratio; pi_old where mu is not known). "
        "None: 5 for minirl, else no weight; inf: no cap.",
    )
    correction: list[str] | str = _field(  # noqa: RUF009
        "none",
        "Weight pi_old/mu (a ratio): tis min(rho, high); mis and icepop rho inside [low, high], else "
        "dropped; none. Two, ('geometric_rejection', 'token_tis'): drop outside [low, high], weight min(rho, "
        "correction_cap); each by token, sequence or, the rejection, geometric.",
    )
    correction_level: str = _field(
        "token", "Whose ratio: token, sequence exp(sum), geometric exp(mean of logs)."
    )
    correction_low: float | None = _field(None, "Lower bound, a ratio. None: mis 0.5, icepop 0.5.")
    correction_high: float | None = _field(None, "Upper bound or cap, a ratio. None: tis 2, mis 2, icepop 5.")
    correction_cap: float | None = _field(None, "Cap of the tis of two corrections, a ratio. None: 2.")
    correction_weighs: bool = _field(True, "mis: False only drops, weight 1.")
    self_normalise: bool = _field(
        False, "Divide the correction's weights by their mean over the step's loss tokens."
    )
    drop_nonfinite: bool = _field(
        True,
        "Drop and count tokens with NaN or infinite log mu (vLLM gives some) where mu is used; False: the "
        "loss becomes NaN.",
    )
    nonfinite_limit: float = _field(
        0.05,
        "Stop the run where a larger fraction of a step's loss tokens is dropped so (default, not "
        "calibrated).",
    )
    k3_bound: float | None = _field(
        None, "Drop where rho - 1 - log rho exceeds this, nats; 0.001 to 0.01 for row means. None: off."
    )
    k3_level: str = _field("sequence", "k3_bound applies to the mean of the sequence, or to each token.")
    veto_floor: float | None = _field(
        None, "Drop rows with one token of rho below this, e.g. 1e-4. None: off."
    )
    slices: dict[str, Any] | str | None = _field(  # noqa: RUF009
        None,
        "Numbers for text and post_tool tokens alone, {'post_tool': {'epsilon_high': 0.1, 'beta': 0.04}}: "
        "weight_cap, epsilon, "
        "epsilon_high, beta, correction_low, correction_high, k3_bound. None: one number for all.",
    )
    ewma_centre_of_mass: float | None = _field(
        None,
        "PPO-EWMA: the clip is anchored at a weight average this many optimizer steps old (the paper's 8). "
        "None: at pi_old.",
    )
    prox_beta: float | None = _field(
        None, "decoupled_kl: coefficient of KL(pi_prox || pi_theta), nats to loss; has no default."
    )
    prox_estimator: str = _field("k2", "decoupled_kl: k2 as the authors' code, k3 or k1.")
    routing_replay: str = _field(
        "off",
        "Experts of mixtures: R2 those of pi_old, R3 those of the sampler, in every training forward; off.",
    )
    routing_allow_missing: bool = _field(
        False, "Route tokens live, and count them, where no route was recorded; False: an error."
    )
    routing_compare: bool = _field(
        False, "Log the fraction of replayed tokens whose live choice was another."
    )
    lr_by_ess: bool = _field(
        False,
        "VCPO: this step's learning rate x (min(1, ess/ess_base))^(1/2), ess of raw row weights pi_theta/mu.",
    )
    ess_base: float = _field(1.0, "VCPO: ESS over rows of a healthy step, in (0, 1].")
    ess_rule: str = _field("sqrt", "VCPO: sqrt (Adam) or linear (SGD).")
    ess_floor: float = _field(0.0, "VCPO: smallest factor on the learning rate, in [0, 1].")
    off_policy_baseline: bool = _field(
        False,
        "VCPO: subtract sum w^2 |g|^2 R / sum w^2 |g|^2 of the group, not its mean; w = pi_theta/mu of a "
        "whole row, g its gradient "
        "of log pi_theta, both before the generation's first update. One more forward and backward a row.",
    )
    entropy_keep: float | None = _field(
        None,
        "Keep this fraction of the tokens of a generation, those of highest pi_old entropy (0.2). None: off.",
    )
    covariance_drop: float | None = _field(
        None, "Drop this fraction of tokens, those that lower the entropy most (2e-4 to 2e-3). None: off."
    )
    bonus_target: float | None = _field(
        None, "Entropy bonus while the mean entropy of a step, nats a token, is under this. None: off."
    )
    bonus_rate: float = _field(0.005, "Change of the bonus coefficient a step (default, not calibrated).")
    bonus_highest: float = _field(0.05, "Largest bonus coefficient, loss per nat (default, not calibrated).")

    def __post_init__(self) -> None:
        if isinstance(self.slices, str):  # the command line
            with suppress(json.JSONDecodeError):  # then it is not a table, and refused as such
                self.slices = json.loads(self.slices)
        # transformers' parser gives a list, and None for the default
        if not isinstance(self.correction, str):
            self.correction = ",".join(self.correction or ("none",))
        refuse_config(self)
        self._settle()
        super().__post_init__()
        refuse_settled(self)

    def _settle(self) -> None:
        """Fill what was left open from the objective's paper; None for bounds that the objective does not
        read.
        """
        default = DEFAULTS[self.objective]
        both = is_read(self, "epsilon") and self.epsilon is not None
        if (
            both
            and self.epsilon_high is None
            and default.low != default.high
            and self.epsilon != default.high
        ):
            logger.warning(
                f"epsilon={self.epsilon:g} sets epsilon_high too, as in TRL; the paper of {self.objective} "
                f"has {default.low:g} and {default.high:g}: set epsilon_high to keep them apart"
            )
        if self.epsilon_high is None and is_read(self, "epsilon_high"):
            self.epsilon_high = self.epsilon if both else default.high
        if self.epsilon is None and is_read(self, "epsilon"):
            self.epsilon = default.low
        if self.weight_cap is None and is_read(self, "weight_cap"):
            self.weight_cap = default.cap
        if self.kl_estimator is None:
            self.kl_estimator = "k3_weighted" if self.use_bias_correction_kl else default.kl
        if self.kl_weight_cap is None and self.objective == "minirl" and self.kl_estimator in ("k2", "k3+"):
            self.kl_weight_cap = default.cap
        self.scale_rewards = default.scale if self.scale_rewards is None else self.scale_rewards

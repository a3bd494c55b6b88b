"""Hooks around each optimizer step: check and log the step, scale its learning rate, renew the average."""

from __future__ import annotations

import math
from typing import Any

from transformers import TrainerCallback
from transformers.utils import logging

from trimtab.errors import ObjectiveError
from trimtab.objectives import learning_rate_scale
from trimtab.training.minirl.losses import needs_mu

logger = logging.get_logger(__name__)


class StepHooks(TrainerCallback):
    """Callbacks of one MiniRLTrainer around its optimizer steps; transformers gives a callback no trainer."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self._rates: list[float] = []
        self._warned = False

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The model is prepared: its parameters are those that will be trained."""
        self.trainer.renew_average()
        coefficient = self.trainer.aux_coefficient
        if coefficient and self.trainer.args.router_aux_loss_coef is None:
            logger.warning(
                f"the loss has the router's load-balancing loss in it, {coefficient:g} x aux_loss, as the "
                "model's config says; set router_aux_loss_coef=0.0 to train without it, or another number"
            )

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """The first micro-batch of an optimizer step comes next."""
        self.trainer.open_step()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Gradients are whole: reduce the step's sums, log them, scale the learning rate by the ESS."""
        trainer = self.trainer
        totals = trainer.accumulator.reduce(trainer.accelerator)
        step = trainer.state.global_step + 1
        if trainer.args.drop_nonfinite and needs_mu(trainer.args):
            self._judge_dropped(totals, step)
        _refuse_nan(totals, step)
        for name, value in trainer.accumulator.logs(totals).items():
            trainer.log_train(name, value)
        if trainer.aux_coefficient:
            trainer.log_train("trimtab/aux_coefficient", trainer.aux_coefficient)
        if trainer.bonus is not None:
            trainer.log_train("trimtab/bonus_coefficient", trainer.bonus.coefficient)
            tokens = totals["tokens/all"]
            trainer.bonus.update(totals["sum/entropy"] / tokens if tokens else math.nan)
        self._rates = []
        if trainer.args.lr_by_ess:
            self._scale(trainer)

    def _judge_dropped(self, totals: dict[str, float], step: int) -> None:
        """Say once that tokens without a log mu were dropped; raise ObjectiveError beyond the limit."""
        dropped, tokens = int(totals.get("correction/nonfinite/all", 0.0)), int(totals["tokens/all"])
        limit = self.trainer.args.nonfinite_limit
        if not dropped:
            return
        text = (
            f"step {step}: the sampler's log-probability is not finite at {dropped} of {tokens} loss tokens"
        )
        if dropped > limit * tokens:
            raise ObjectiveError(
                f"{text}, beyond nonfinite_limit={limit:g}, and the optimizer has not moved; fix the "
                "rollout's logprobs, or raise the limit"
            )
        if not self._warned:
            self._warned = True
            logger.warning(
                f"{text}; they are dropped and counted, trimtab/correction/nonfinite_frac. A run stops "
                f"beyond nonfinite_limit={limit:g}"
            )

    def _scale(self, trainer: Any) -> None:
        own, weights = trainer.args, trainer.accumulator.all_weights(trainer.accelerator)
        if not weights.rows:  # no token of the loss: nothing is learnt, and nothing known
            return
        fraction = weights.ess_share
        # an infinite weight, or NaN on a token outside the loss: as if one row were all of the batch
        taken = 1 / weights.rows if math.isnan(fraction) else fraction
        scale = learning_rate_scale(taken, base=own.ess_base, rule=own.ess_rule, floor=own.ess_floor)
        trainer.log_train("vcpo/ess_share", fraction)
        trainer.log_train("vcpo/lr_scale", scale)
        for group in trainer.optimizer.param_groups:
            self._rates.append(group["lr"])
            group["lr"] = group["lr"] * scale

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        """The weights have moved: give the learning rate back, take them into the average."""
        trainer = self.trainer
        if self._rates:
            for group, rate in zip(trainer.optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate
        if trainer.average is not None and not trainer.accelerator.optimizer_step_was_skipped:
            trainer.average.update()


def _refuse_nan(totals: dict[str, float], step: int) -> None:
    """Raise ObjectiveError before the optimizer moves: one NaN in the loss makes every weight NaN."""
    bad = totals.get("nonfinite/all", 0.0)
    if not bad and not totals.get("bad/loss", 0.0):
        return
    where = {name: int(totals.get(f"bad/{name}", 0.0)) for name in ("mu", "pi_theta")}
    if where["pi_theta"]:
        advice = "the policy itself gives them: go back to a checkpoint"
    elif where["mu"]:
        advice = "set drop_nonfinite=True to drop and count such tokens, or fix the rollout's logprobs"
    else:
        advice = "check the rewards and overflowing ratios (epsilon_high, weight_cap, correction)"
    raise ObjectiveError(
        f"step {step}: the loss is not finite at {int(bad)} of {int(totals['tokens/all'])} loss tokens, and "
        "the optimizer has not "
        f"moved; log-probabilities not finite: {where['mu']} of mu, {where['pi_theta']} of pi_theta; {advice}"
    )

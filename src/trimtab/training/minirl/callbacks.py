"""Around each optimizer step: refuse a loss that is no number, log the step's sums, scale its learning rate, renew the average."""

from __future__ import annotations

import math
from typing import Any

from transformers import TrainerCallback

from trimtab.errors import ObjectiveError
from trimtab.objectives import learning_rate_scale


class StepHooks(TrainerCallback):
    """Calls back into one MiniRLTrainer around its optimizer steps; transformers gives a callback no trainer."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self._rates: list[float] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The first micro-batch of an optimizer step comes next."""
        del args, state, control
        self.trainer.open_step()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Gradients are whole: reduce the step's sums, log them, scale the learning rate by the ESS."""
        del args, state, control
        trainer = self.trainer
        totals = trainer.tally.reduce(trainer.accelerator)
        _refuse_nan(totals, trainer.state.global_step + 1)
        for name, value in trainer.tally.logs(totals).items():
            trainer.log_train(name, value)
        if trainer.bonus is not None:
            trainer.log_train("trimtab/bonus_coefficient", trainer.bonus.coefficient)
            tokens = totals["tokens/all"]
            trainer.bonus.update(totals["sum/entropy"] / tokens if tokens else math.nan)
        self._rates = []
        if trainer.args.lr_by_ess:
            self._scale(trainer)

    def _scale(self, trainer: Any) -> None:
        own, weights = trainer.args, trainer.tally.all_weights(trainer.accelerator)
        if not weights.rows:  # no token of the loss: nothing is learnt, and nothing known
            return
        share = weights.ess_share
        # an infinite weight, or one that is no number on a token the loss left out: as if one row were all of the batch
        taken = 1 / weights.rows if math.isnan(share) else share
        scale = learning_rate_scale(taken, base=own.ess_base, rule=own.ess_rule, floor=own.ess_floor)
        trainer.log_train("vcpo/ess_share", share)
        trainer.log_train("vcpo/lr_scale", scale)
        for group in trainer.optimizer.param_groups:
            self._rates.append(group["lr"])
            group["lr"] = group["lr"] * scale

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The weights have moved: give the learning rate back, take them into the average."""
        del args, state, control
        trainer = self.trainer
        if self._rates:
            for group, rate in zip(trainer.optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate
        if trainer.average is not None and not trainer.accelerator.optimizer_step_was_skipped:
            trainer.average.update()


def _refuse_nan(totals: dict[str, float], step: int) -> None:
    """ObjectiveError before the optimizer moves, on every rank alike: one NaN in the loss makes every weight NaN."""
    bad = totals.get("nonfinite/all", 0.0)
    if not bad and not totals.get("bad/loss", 0.0):
        return
    where = {name: int(totals.get(f"bad/{name}", 0.0)) for name in ("mu", "pi_theta")}
    if where["pi_theta"]:
        advice = "the policy itself gives them: go back to a checkpoint"
    elif where["mu"]:
        advice = "set drop_nonfinite=True to drop and count tokens the sampler could not score, or mend the rollout's logprobs"
    else:
        advice = "look at the rewards and at overflowing ratios (epsilon_high, weight_cap, correction)"
    raise ObjectiveError(
        f"step {step}: the loss is no number at {int(bad)} of {int(totals['tokens/all'])} loss tokens, and the optimizer has not "
        f"moved; log-probabilities not finite: {where['mu']} of mu, {where['pi_theta']} of pi_theta; {advice}"
    )

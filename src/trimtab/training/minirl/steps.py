"""Between two optimizer steps: sums of the step over micro-batches and ranks, its learning rate, the weight average.

One reduce a step, of one vector whose length depends on the settings alone, so every rank makes the same call.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from transformers import TrainerCallback

from trimtab.objectives import WeightSums, learning_rate_scale, sequence_log_weights
from trimtab.objectives.routing_replay.tapes import Replayed
from trimtab.objectives.slices import Counts
from trimtab.training.minirl.knobs import SLICE_NAMES

__all__ = ["StepHooks", "StepTally"]


class StepTally:
    """Counts, entropy and row weights of one optimizer step on this rank, on the device until `reduce`."""

    def __init__(self) -> None:
        self.sums: dict[str, torch.Tensor] = {}
        self.weights = WeightSums(-math.inf, -math.inf, 0)

    def add(self, name: str, value: torch.Tensor) -> None:
        value = value.detach().double()
        self.sums[name] = self.sums[name] + value.to(self.sums[name]) if name in self.sums else value

    def add_counts(self, counts: Counts) -> None:
        for mark, by_slice in counts.items():
            for label, number in by_slice.items():
                self.add(f"{mark}/{label}", number)

    def add_replay(self, replayed: Replayed) -> None:
        """Token-layers replayed; those without a recorded route, by layer; those whose live choice was another."""
        self.add("replayed/all", replayed.tokens.sum())
        if replayed.compare:  # else nobody looked, which is not zero
            self.add("routing/changed", replayed.changed.sum())
        for layer, number in enumerate(replayed.counts["missing"]):
            self.add(f"routing/missing_layer_{layer}", number)

    def add_weights(self, logprobs: torch.Tensor, rollout: torch.Tensor, mask: torch.Tensor) -> None:
        self.weights = self.weights + WeightSums.of(sequence_log_weights(logprobs, rollout, mask))

    def reduce(self, accelerator: Any) -> dict[str, float]:
        """Sums over the ranks by name."""
        names = sorted(self.sums)
        if not names:
            return {}
        own = torch.stack([self.sums[name].to(accelerator.device) for name in names])
        total = accelerator.reduce(own, reduction="sum")
        return dict(zip(names, total.tolist(), strict=True))

    @staticmethod
    def logs(totals: dict[str, float]) -> dict[str, float]:
        """What is logged of the sums: shares of the step's loss tokens, all and by slice, and means a token."""
        found: dict[str, float] = {}
        tokens = {label: totals.get(f"tokens/{label}", 0.0) for label in ("all", *SLICE_NAMES)}
        for key, value in totals.items():
            mark, _, label = key.rpartition("/")
            if mark == "sum" and tokens["all"] and label in ("entropy", "kl"):
                found[label] = value / tokens["all"]
            elif mark == "routing" and totals["replayed/all"]:
                found[f"routing/{label}_frac"] = value / totals["replayed/all"]
            elif mark not in ("sum", "tokens", "routing", "replayed") and tokens[label]:
                found[f"trimtab/{mark}_frac" + ("" if label == "all" else f"/{label}")] = (
                    value / tokens[label]
                )
        if "trimtab/clipped_low_frac" in found:
            low, high = found["trimtab/clipped_low_frac"], found.get("trimtab/clipped_high_frac", 0.0)
            found |= {
                "clip_ratio/low_mean": low,
                "clip_ratio/high_mean": high,
                "clip_ratio/region_mean": low + high,
            }
        return found

    def all_weights(self, accelerator: Any) -> WeightSums:
        """Row weights of all ranks."""
        own = self.weights
        packed = torch.tensor(
            [[own.log_sum, own.log_square_sum, own.rows]], dtype=torch.float64, device=accelerator.device
        )
        total = WeightSums(-math.inf, -math.inf, 0)
        for one, two, rows in accelerator.gather(packed).tolist():
            total = total + WeightSums(one, two, int(rows))
        return total


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
        for name, value in trainer.tally.logs(totals).items():
            trainer.log_train(name, value)
        if trainer.bonus is not None:
            trainer.log_train("trimtab/bonus_coefficient", trainer.bonus.coefficient)
            tokens = totals["tokens/all"]
            trainer.bonus.update(totals["sum/entropy"] / tokens if tokens else math.nan)
        self._rates = []
        if not trainer.args.lr_by_ess:
            return
        share = trainer.tally.all_weights(trainer.accelerator).ess_share
        own = trainer.args
        scale = learning_rate_scale(share, base=own.ess_base, rule=own.ess_rule, floor=own.ess_floor)
        trainer.log_train("vcpo/ess_share", share)
        trainer.log_train("vcpo/lr_scale", scale)
        if math.isnan(scale):  # a weight that is no number: the loss is none either, and says so
            return
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

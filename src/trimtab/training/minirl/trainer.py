"""MiniRLTrainer: TRL's GRPOTrainer with the objectives of trimtab. Change the import and the class of a GRPO
script.

TRL keeps generation, rewards, advantages, tools, logging and checkpoints. `RolloutScoring` records what the
sampler said and scores pi_old; this class scores pi_prox, replaces the loss, and keeps the weight average
beside the optimizer.
"""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging
from trl import GRPOTrainer

from trimtab.errors import ObjectiveError
from trimtab.objectives import EntropyTarget, WeightAverage, trainable
from trimtab.training.minirl.batches import columns_of, evaluation_sums, one_division, step_sums
from trimtab.training.minirl.callbacks import StepHooks
from trimtab.training.minirl.config import MiniRLConfig
from trimtab.training.minirl.guard_ports import minirl_ports
from trimtab.training.minirl.losses import Columns, StepSums, needs_mu, step_loss
from trimtab.training.minirl.refused_settings import refuse_trainer
from trimtab.training.minirl.rollout_scoring import RolloutScoring
from trimtab.training.minirl.routing_replay import REQUIRED, ROUTES, Experts
from trimtab.training.minirl.step_metrics import StepMetrics

STATE_FILE = "trimtab_minirl.pt"
"""In each checkpoint, beside the optimizer's state: the weight average and the entropy controller."""

logger = logging.get_logger(__name__)


class MiniRLTrainer(RolloutScoring):
    """GRPOTrainer(...) with a MiniRLConfig: same arguments, other loss.

    A rollout_func returns `logprobs` of the sampler as TRL asks, and for R3 `routes`: a row (n, L, K) of
    experts of the prompt and completion tokens, the last one may be left out. Without it, or vLLM,
    transformers' own sampling loop is recorded. Raises UnsupportedError for what it cannot honour, by name,
    at construction.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        bound = inspect.signature(GRPOTrainer.__init__).bind(self, *arguments, **named)
        if bound.arguments.get("args") is None:  # as GRPOTrainer does
            model = bound.arguments["model"]
            name = model if isinstance(model, str) else model.config._name_or_path
            bound.arguments["args"] = MiniRLConfig(f"{name.split('/')[-1]}-MiniRL")
        if not isinstance(bound.arguments["args"], MiniRLConfig):
            raise ObjectiveError("MiniRLTrainer needs args=MiniRLConfig(...), a GRPOConfig with objective")
        super().__init__(*bound.args[1:], **bound.kwargs)
        refuse_trainer(self, needs_mu(self.args))
        method = GRPOTrainer._get_per_token_logps_and_entropies
        self.score_arguments = frozenset(inspect.signature(method).parameters) - {"self"}
        self.accumulator = StepMetrics()
        self._step_sums: StepSums | None = None
        self._replaying: ExitStack | None = None
        own = self.args
        self.average: WeightAverage | None = None
        if own.ewma_centre_of_mass is not None:
            self.average = WeightAverage(trainable(self.model), centre_of_mass=own.ewma_centre_of_mass)
        if own.routing_replay != "off":
            self.experts = Experts(
                self.model, own.routing_replay, own.routing_allow_missing, own.routing_compare, self.ref_model
            )
        self.bonus: EntropyTarget | None = None
        if own.bonus_target is not None:
            self.bonus = EntropyTarget(
                target=own.bonus_target, rate=own.bonus_rate, highest=own.bonus_highest
            )
        self.add_callback(StepHooks(self))

    own_clip = True

    @property
    def staleness_clip(self) -> tuple[float, float] | None:
        """(epsilon, epsilon_high) where the objective clips each token's pi_theta/pi_old to one range; the
        watch asks.
        """
        own = self.args
        by_slice = any("epsilon" in name for table in (own.slices or {}).values() for name in table)
        clips = own.objective in ("ppo", "grpo", "dr_grpo", "dapo") or (
            own.objective == "minirl" and own.clip
        )
        alone = self.average is None and not by_slice
        return (float(own.epsilon), float(own.epsilon_high)) if clips and alone else None

    def guard_ports(self) -> dict[Any, Any]:
        """Return the levers that a guard may turn by slice; the watch asks."""
        return minirl_ports(self)

    # ---- the optimizer step

    def open_step(self) -> None:
        """Before the first micro-batch of an optimizer step."""
        self.accumulator, self._step_sums = StepMetrics(), None

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """A recompute of gradient checkpointing needs the routes too, so a replay lasts until after the
        backward.
        """
        try:
            with one_division(self.accelerator), ExitStack() as self._replaying:
                return super().training_step(*args, **kwargs)
        finally:
            self._replaying = None

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        if self._replaying is not None:
            return self._loss(model, inputs, self._replaying)
        with ExitStack() as stack:  # evaluation
            return self._loss(model, inputs, stack)

    def _loss(self, model: Any, inputs: Any, stack: ExitStack) -> torch.Tensor:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        forward = {
            "input_ids": ids,
            "attention_mask": attention,
            "logits_to_keep": inputs["completion_ids"].shape[1],
        }
        picture, replayed = self._picture(inputs), None
        if self.experts is not None:
            replayed = stack.enter_context(self.experts.replaying(inputs[ROUTES], inputs[REQUIRED]))
        prox = None
        if self.average is not None:
            with self.average.swapped(self.model):
                prox = RolloutScoring._get_per_token_logps_and_entropies(
                    self, self.model, **forward, **picture
                )[0]
            inputs["prox_per_token_logps"] = prox  # the watch reads it
        aux_wanted = {"compute_aux_loss": True} if self.aux_coefficient else {}
        before = None if replayed is None else replayed.changed.clone()
        scored = self._get_per_token_logps_and_entropies(
            model, **forward, compute_entropy=True, **aux_wanted, **picture
        )
        columns = columns_of(inputs, scored[0], scored[1] if self.bonus is not None else None, prox)
        if not self.model.training:
            sums = evaluation_sums(self, columns)
        else:
            if self._step_sums is None:
                self._step_sums = step_sums(self, len(columns.mask))
            sums = self._step_sums
        bonus = self.bonus.coefficient if self.bonus is not None and self.model.training else 0.0
        value, counts, kl = step_loss(self.args, columns, sums, bonus)
        accumulator = self.accumulator if self.model.training else StepMetrics()
        if self.aux_coefficient:
            steps = self.current_gradient_accumulation_steps if self.model.training else 1
            accumulator.add_aux(value, scored[2], steps)
            value = value + self.aux_coefficient * scored[2] / steps
        accumulator.add_batch(columns, value, scored[1], counts, kl)
        if replayed is not None and before is not None:
            accumulator.add_replay(replayed, inputs[REQUIRED], before)
        self._record(accumulator, columns)
        return value

    def _record(self, accumulator: StepMetrics, c: Columns) -> None:
        """The sampler's side of the micro-batch; an evaluation batch is a step of its own and is logged at
        once.
        """
        drop = self.args.drop_nonfinite
        accumulator.add_mismatch(c, drop)
        if not self.model.training:
            for name, number in accumulator.logs(accumulator.reduce(self.accelerator)).items():
                self._metrics["eval"][name].append(number)
        elif self.args.lr_by_ess and c.rollout is not None:
            known = c.mask & torch.isfinite(c.old - c.rollout) if drop else c.mask
            accumulator.add_weights(c.logprobs, c.rollout, known)

    @property
    def aux_coefficient(self) -> float:
        """Of the router's load-balancing loss, where this TRL adds one; 0.0: the loss has none in it."""
        return float(self.router_aux_loss_coef) if getattr(self, "aux_loss_enabled", False) else 0.0

    # ---- checkpoints

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.average is None and self.bonus is None:
            return
        state = {
            "average": None if self.average is None else self.average.state_dict(),  # gathers what is sharded
            "bonus": None if self.bonus is None else self.bonus.state_dict(),
        }
        if self.args.should_save:
            torch.save(state, Path(output_dir) / STATE_FILE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        self.renew_average()
        if checkpoint is None or (self.average is None and self.bonus is None):
            return
        path = Path(checkpoint) / STATE_FILE
        state: dict[str, Any] = {}
        if path.exists():
            state = torch.load(path, map_location="cpu", weights_only=True)
        if self.average is not None:
            self._resume_average(self.average, state.get("average"), checkpoint)
        if self.bonus is not None:
            if state.get("bonus") is None:
                logger.warning(f"{checkpoint} holds no entropy controller: the bonus starts anew at 0")
            else:
                self.bonus.load_state_dict(state["bonus"])

    def renew_average(self) -> None:
        """Average what is trained: FSDP2 puts other parameters, of the same values, in place of the first."""
        average, now = self.average, trainable(self.model)
        if average is not None and any(one is not average.parameters.get(name) for name, one in now):
            self.average = WeightAverage(now, centre_of_mass=average.centre_of_mass)

    def _resume_average(self, average: WeightAverage, saved: dict[str, Any] | None, checkpoint: str) -> None:
        """Restore the saved average with this centre of mass; without one, the checkpoint's weights."""
        if saved is None:
            logger.warning(
                f"{checkpoint} holds no weight average: it starts anew at the checkpoint's weights"
            )
            average.reset()
            return
        average.load_state_dict(saved)
        own = float(self.args.ewma_centre_of_mass)
        if own != average.centre_of_mass:
            logger.warning(
                f"ewma_centre_of_mass={own:g}, but {checkpoint} averaged with {average.centre_of_mass:g}: "
                f"{own:g} counts from here on"
            )
            average.centre_of_mass = own

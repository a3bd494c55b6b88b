"""The half of the trainer that makes batches: what the sampler said, its routes, pi_old where needed,
selected tokens.

`RolloutScoring` changes no value of TRL's batch; it adds `sampling_per_token_logps`, `old_per_token_logps`
and columns of its own.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import trl
from transformers.utils import logging
from trl import GRPOTrainer

from trimtab.errors import ObjectiveError, UnsupportedError
from trimtab.objectives import select_by_covariance, select_high_entropy
from trimtab.training.minirl.losses import needs_mu
from trimtab.training.minirl.routing_replay import Experts
from trimtab.training.minirl.sampling_recorder import OwnRollout
from trimtab.training.minirl.vcpo_baseline import rebased_advantages

logger = logging.get_logger(__name__)

SELECTED = "trimtab_selected"
"""(B, T) boolean: tokens that entropy_keep and covariance_drop leave."""


class RolloutScoring(GRPOTrainer):
    """GRPOTrainer whose batches carry mu, and pi_old, routes and selection when the settings ask for them."""

    experts: Experts | None = None
    _own: OwnRollout | None = None
    _scoring = False
    _warned = False
    _old_comes = False
    _old_entropies: torch.Tensor | None = None
    _scored: torch.Tensor | None = None

    def log_train(self, name: str, value: float) -> None:
        """Into TRL's metric lists, averaged and logged by TRL."""
        self._metrics["train"][name].append(value)

    def _generate(self, prompts: list) -> Any:
        replay = self.experts.replay if self.experts is not None and self.experts.mode == "R3" else None
        self._own = OwnRollout(replay)
        result = super()._generate(prompts)
        prompt_ids, completion_ids, logprobs, extra = result[0], result[1], result[-4], result[-3]
        if not isinstance(extra, dict):  # counted from the end: 1.2 returns one more value before
            raise UnsupportedError(f"TRL {trl.__version__} generates in a way MiniRLTrainer does not know")
        self._check_logprobs(logprobs, completion_ids)
        if self.experts is not None:
            routes = extra.pop("routes", None)
            if self.rollout_func is None:  # TRL may have cut a last turn to the length that was left
                rows = zip(self._own.routes, prompt_ids, completion_ids, strict=False)
                routes = [own[: len(prompt) + len(completion)] for own, prompt, completion in rows]
            self.experts.take(routes, prompt_ids, completion_ids, own=self.rollout_func is None)
        self._own = None
        return result

    def _check_logprobs(self, logprobs: Any, completions: Any) -> None:
        if logprobs is None:
            if needs_mu(self.args):
                raise ObjectiveError(
                    f"{self.args.objective} needs the sampler's log-probabilities, but the rollout returned "
                    "none: let the rollout_func return `logprobs`, a list for each completion"
                )
            return
        for row, (logs, ids) in enumerate(zip(logprobs, completions, strict=True)):
            if len(logs) != len(ids):
                raise ObjectiveError(
                    f"row {row} has {len(logs)} log-probabilities for {len(ids)} tokens: text changed after "
                    "sampling has none"
                )

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        paged = getattr(self.args, "use_transformers_continuous_batching", False) or getattr(
            self.args, "use_transformers_paged", False
        )
        if self.use_vllm or paged or self._own is None:
            return super()._generate_single_turn(prompt_ids, *args, **kwargs)
        model: Any = self.accelerator.unwrap_model(self.model_wrapped)
        base = model.get_base_model() if hasattr(model, "peft_config") else model
        with self._own.turn(base) as turn:
            completion_ids, _ = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        return completion_ids, turn.finish([list(ids) for ids in prompt_ids], completion_ids)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        lasting = self.args.steps_per_generation * self.num_iterations
        self._old_comes = self.args.gradient_accumulation_steps % lasting != 0  # TRL's rule
        self._old_entropies = None
        self._scoring = True
        try:
            batch = super()._generate_and_score_completions(inputs)
        finally:
            self._scoring = False
        self._warn_slices_without_tools(batch)
        if self._needs_old() and "old_per_token_logps" not in batch:
            batch["old_per_token_logps"] = self._score_whole(batch)
        if self.experts is not None:
            batch.update(self.experts.columns(batch))
        if self.args.off_policy_baseline and self.model.training:
            assert self._scored is not None
            batch["advantages"] = rebased_advantages(self, batch, self._scored)
        if self.args.entropy_keep is not None or self.args.covariance_drop is not None:
            batch[SELECTED] = self._select(batch)
        return batch

    def _warn_slices_without_tools(self, batch: Any) -> None:
        if self.args.slices and "tool_mask" not in batch and not self._warned:
            self._warned = True
            logger.warning(
                f"slices={self.args.slices}, but no token is post_tool: the batch has no tool mask, so every "
                "token is text; "
                "use tools, or let the rollout_func return env_mask (0 at tokens a tool wrote)"
            )

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
        rewards = super()._calculate_rewards(*args, **kwargs)
        self._scored = ~torch.isnan(rewards).all(dim=1)
        return rewards

    def _needs_old(self) -> bool:
        args = self.args
        chosen = args.entropy_keep is not None or args.covariance_drop is not None
        return bool(chosen or args.self_normalise or args.routing_replay == "R2")

    def _score_whole(self, batch: Any) -> torch.Tensor:
        """pi_old where TRL skips it: with one update a batch it takes pi_theta for it."""
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        size = (
            self.args.per_device_train_batch_size
            if self.model.training
            else self.args.per_device_eval_batch_size
        )
        with torch.no_grad():
            return self._score_old(
                ids, attention, batch["completion_ids"].shape[1], size, self._picture(batch)
            )[0]

    def _picture(self, batch: Any) -> dict[str, Any]:
        """What else a forward takes, under TRL's names (images)."""
        known = self.score_arguments - {
            "model",
            "input_ids",
            "attention_mask",
            "logits_to_keep",
            "batch_size",
        }
        return {name: batch[name] for name in known if batch.get(name) is not None}

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Any,
        attention_mask: Any,
        logits_to_keep: Any,
        batch_size: Any = None,
        **kwargs: Any,
    ) -> Any:
        if not self._old_comes or model is not self.model or torch.is_grad_enabled():
            with self._reference(model, attention_mask, logits_to_keep):
                return super()._get_per_token_logps_and_entropies(
                    model, input_ids, attention_mask, logits_to_keep, batch_size=batch_size, **kwargs
                )
        self._old_comes = False
        return self._score_old(input_ids, attention_mask, logits_to_keep, batch_size, kwargs)

    def _reference(self, model: Any, attention: Any, completion: int) -> Any:
        """While TRL scores a generation, what is not pi_old is the reference: another model, or this one
        without its adapter.
        """
        if self.experts is None or not self._scoring:
            return nullcontext()
        return self.experts.scoring_reference(model, self.model, attention, completion)

    def _score_old(self, ids: Any, attention: Any, completion: int, size: int, kwargs: dict[str, Any]) -> Any:
        """pi_old of a generation, its routes recorded (R2) or replayed (R3), its entropies selected when
        tokens are selected.
        """
        if self.args.entropy_keep is not None:
            kwargs = {**kwargs, "compute_entropy": True}
        score = super()._get_per_token_logps_and_entropies
        if self.experts is None:
            result = score(self.model, ids, attention, completion, batch_size=size, **kwargs)
        elif self.experts.mode == "R3":
            with self.experts.scoring_old(attention, completion):
                result = score(self.model, ids, attention, completion, batch_size=size, **kwargs)
        else:
            recorded: list[torch.Tensor] = []
            parts: list[Any] = []
            for start in range(0, len(ids), size):
                rows = slice(start, start + size)
                with self.experts.replay.recording() as tape:
                    parts.append(score(self.model, ids[rows], attention[rows], completion, **kwargs))
                recorded.append(tape.routes(len(ids[rows])))
            self.experts.keep(recorded, attention)
            result = tuple(None if one[0] is None else torch.cat(one) for one in zip(*parts, strict=True))
        self._old_entropies = result[1]
        return result

    def _select(self, batch: Any) -> torch.Tensor:
        """Tokens selected by entropy and by covariance, with thresholds over the whole generation on all
        ranks.
        """
        mask = batch["completion_mask"] > 0
        if "tool_mask" in batch:
            mask = mask & (batch["tool_mask"] > 0)
        rows, width = mask.shape
        rank = self.accelerator.process_index

        def everywhere(values: torch.Tensor) -> torch.Tensor:
            return self.accelerator.gather(self.accelerator.pad_across_processes(values, dim=1))

        every = everywhere(mask.long()) > 0  # padding turns booleans to integers on the shorter rank alone
        selected = every
        if self.args.entropy_keep is not None:
            assert self._old_entropies is not None
            entropies = everywhere(self._old_entropies)
            selected = selected & select_high_entropy(entropies, every, fraction=self.args.entropy_keep).keep
        if self.args.covariance_drop is not None:
            advantages = self.accelerator.gather(batch["advantages"])
            old = everywhere(batch["old_per_token_logps"])
            fraction = self.args.covariance_drop
            selected = selected & select_by_covariance(old, advantages, every, fraction=fraction).keep
        if self.model.training:
            self.log_train("trimtab/selected_frac", float(selected.sum() / every.sum().clamp(min=1)))
        return selected[rank * rows : (rank + 1) * rows, :width] | ~mask

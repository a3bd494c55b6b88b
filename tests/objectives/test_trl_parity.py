"""The same numbers as TRL's own loss where the formulas coincide: its `_compute_loss` is run on our tensors, not a copy of it."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.objectives.batches import Batch, make
from trimtab.objectives.corrections import tis
from trimtab.objectives.kl_penalties import kl_penalty
from trimtab.objectives.policy_gradient import cispo
from trimtab.objectives.ppo import dapo, dr_grpo, grpo, gspo, ppo_clip
from trimtab.objectives.token_filters import off_policy_rejection

trl = pytest.importorskip("trl")
MAX_LENGTH = 16


class Accelerator:
    num_processes = 1

    @staticmethod
    def gather(x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def reduce(x: torch.Tensor, reduction: str = "sum") -> torch.Tensor:
        return x


class Trainer(trl.GRPOTrainer):
    """GRPOTrainer with its own loss and no model: the log-probabilities come from the batch."""

    def __init__(self, logprobs: torch.Tensor, args: dict[str, Any], **changes: Any) -> None:
        defaults = {
            "top_entropy_quantile": 1.0, "off_policy_mask_threshold": None, "importance_sampling_level": "token",
            "beta": 0.0, "loss_type": "grpo", "epsilon_low": 0.2, "epsilon_high": 0.28, "use_vllm": False,
            "vllm_importance_sampling_correction": False, "aux_loss_enabled": False, "_entropy_bonus_enabled": False,
            "current_gradient_accumulation_steps": 1, "max_completion_length": MAX_LENGTH, "aux_loss_coef": 0.0,
            "accelerator": Accelerator(), "model": SimpleNamespace(training=True), "_logprobs": logprobs,
            "_metrics": {"train": defaultdict(list), "eval": defaultdict(list)},
            "args": SimpleNamespace(
                **{"delta": None, "use_bias_correction_kl": False, "steps_per_generation": 1, **args}
            ),
        }  # fmt: skip
        for name, value in {**defaults, **changes}.items():
            object.__setattr__(self, name, value)

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        return self._logprobs, torch.ones_like(self._logprobs), None


def theirs(
    b: Batch, *, args: dict[str, Any] | None = None, extra: dict[str, Any] | None = None, **changes: Any
):
    logp = b.logprobs.clone().requires_grad_()
    ids = torch.ones_like(b.mask, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1], "prompt_mask": ids[:, :1], "completion_ids": ids, "completion_mask": torch.ones_like(ids),
        "tool_mask": b.mask.long(), "advantages": b.advantages, "old_per_token_logps": b.old,
        "num_items_in_batch": b.mask.sum(), **(extra or {}),
    }  # fmt: skip
    value = Trainer(logp, args or {}, **changes)._compute_loss(None, inputs)
    value.backward()
    return value.item(), logp.grad


def ours(function: Any, b: Batch, *arguments: Any, **knobs: Any):
    logp = b.logprobs.clone().requires_grad_()
    value = function(logp, *arguments, **knobs).value
    value.backward()
    return value.item(), logp.grad


def same(one: Any, two: Any) -> None:
    assert one[0] == pytest.approx(two[0], rel=1e-12, abs=1e-14)
    torch.testing.assert_close(one[1], two[1], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_grpo_dapo_dr_grpo_and_gspo(seed: int) -> None:
    b = make(seed, scale=0.6)
    bounds = {"eps_low": 0.2, "eps_high": 0.28}
    same(ours(grpo, b, b.old, b.advantages, b.mask, num_responses=5, **bounds), theirs(b))
    same(
        ours(dr_grpo, b, b.old, b.advantages, b.mask, num_responses=5, max_length=MAX_LENGTH, **bounds),
        theirs(b, loss_type="dr_grpo"),
    )
    same(ours(dapo, b, b.old, b.advantages, b.mask, num_tokens=b.mask.sum()), theirs(b, loss_type="dapo"))
    small = {"eps_low": 3e-4, "eps_high": 4e-4}
    changes = {"importance_sampling_level": "sequence", "epsilon_low": 3e-4, "epsilon_high": 4e-4}
    same(ours(gspo, b, b.old, b.advantages, b.mask, num_responses=5, **small), theirs(b, **changes))


@pytest.mark.parametrize("seed", range(3))
def test_dual_clip_is_its_delta_and_cispo_its_absolute_bound(seed: int) -> None:
    b = make(seed, scale=0.8)
    lengths = b.mask.sum(dim=1)
    knobs = {"denominator": 5, "lengths": lengths, "eps_low": 0.2, "eps_high": 0.28, "dual": 1.5}
    same(ours(ppo_clip, b, b.old, b.advantages, b.mask, **knobs), theirs(b, args={"delta": 1.5}))
    same(
        ours(cispo, b, b.old, b.advantages, b.mask, denominator=b.mask.sum(), high=1.3),
        theirs(b, loss_type="cispo", epsilon_high=1.3),
    )


def test_the_reference_penalty_the_weights_and_the_off_policy_mask() -> None:
    b = make(4, scale=0.6)
    knobs = {"num_responses": 5, "eps_high": 0.28}

    def with_kl(logp: torch.Tensor, *arguments: Any) -> Any:
        one = grpo(logp, *arguments, **knobs)
        two = kl_penalty(logp, b.prox, b.mask, coefficient=0.04, denominator=5, lengths=b.mask.sum(dim=1))
        return SimpleNamespace(value=one.value + two.value)

    same(
        ours(with_kl, b, b.old, b.advantages, b.mask),
        theirs(b, beta=0.04, extra={"ref_per_token_logps": b.prox}),
    )
    fixed = tis(b.old - b.rollout, b.mask, cap=1.5)
    vllm = {"use_vllm": True, "vllm_importance_sampling_correction": True}
    # TRL's own mask does the zeroing outside the loss; inside, its token_truncate weight is ours
    weight = torch.clamp(torch.exp((b.old - b.rollout) * b.mask), max=1.5)
    same(
        ours(grpo, b, b.old, b.advantages, b.mask, weights=fixed.weights, **knobs),
        theirs(b, extra={"importance_sampling_ratio": weight}, **vllm),
    )
    b.advantages = -b.advantages.abs()
    drop = off_policy_rejection(b.logprobs, b.rollout, b.advantages, b.mask, bound=0.02)
    assert 0 < int(drop.counts["off_policy"]["all"]) < int(b.mask.sum())
    same(
        ours(grpo, b, b.old, b.advantages, b.mask, keep=drop.keep, **knobs),
        theirs(b, off_policy_mask_threshold=0.02, extra={"sampling_per_token_logps": b.rollout}),
    )

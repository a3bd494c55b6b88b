"""A TRL micro-batch as columns, and the sums of the optimizer step it belongs to: the denominators.

TRL does not divide the loss by the accumulation steps (1.16: `loss_is_scaled_for_ga`; 1.2: a `compute_loss_func` that is set), DDP
averages gradients over the ranks; `local_denominator` undoes the second and nothing else.
"""

from __future__ import annotations

from typing import Any

import torch

from trimtab.errors import UnsupportedError
from trimtab.objectives import local_denominator, weight_sums
from trimtab.training.minirl.generation import SELECTED
from trimtab.training.minirl.losses import Columns, StepSums, cells_of, correction_of
from trimtab.training.minirl.papers import WINDOW_DENOMINATORS

__all__ = ["columns_of", "evaluation_sums", "step_sums"]


def columns_of(inputs: Any, logprobs: Any, entropy: Any, prox: Any) -> Columns:
    """TRL's keys under our names. The loss mask is completion and not tool: TRL pads the tool mask with 1."""
    exists, tool = inputs["completion_mask"], inputs.get("tool_mask")
    mask = (exists > 0) if tool is None else (exists > 0) & (tool > 0)
    old = inputs.get("old_per_token_logps")
    return Columns(
        logprobs=logprobs,
        old=logprobs.detach()
        if old is None
        else old,  # one update a batch: the weights are those that sampled
        rollout=inputs.get("sampling_per_token_logps"),
        prox=prox,
        ref=inputs.get("ref_per_token_logps"),
        advantages=inputs["advantages"],
        mask=mask,
        cells=cells_of(mask, exists, tool),
        entropy=entropy,
        selected=inputs.get(SELECTED),
    )


def evaluation_sums(trainer: Any, columns: Columns) -> StepSums:
    """An evaluation batch is a step of its own; transformers averages its loss over the ranks."""
    world = trainer.accelerator.num_processes
    tokens = trainer.accelerator.gather(columns.mask.sum()).sum().clamp(min=1)
    return StepSums(len(columns.mask), local_denominator(float(tokens), ranks_averaged=world))


def step_sums(trainer: Any, rows: int) -> StepSums:
    """Denominators of every micro-batch of `rows` rows of the optimizer step that begins, the same for all of them."""
    args, world = trainer.args, trainer.accelerator.num_processes
    responses = rows * trainer.current_gradient_accumulation_steps * world
    local = local_denominator(responses, ranks_averaged=world, steps_averaged=1)
    if args.objective not in WINDOW_DENOMINATORS and not args.self_normalise:
        return StepSums(local, tokens=1.0)
    weights, count = _over_tokens(trainer)
    tokens = local_denominator(max(float(count), 1.0), ranks_averaged=world, steps_averaged=1)
    if not args.self_normalise:
        return StepSums(local, tokens)
    return StepSums(local, tokens, weights=weights, count=count)


def _over_tokens(trainer: Any) -> torch.Tensor:
    """(sum of correction weights, loss tokens) of the optimizer step, over its micro-batches and all ranks."""
    lasting = trainer.args.steps_per_generation * trainer.num_iterations
    at, steps = trainer._step % lasting, trainer.current_gradient_accumulation_steps
    if at + steps > lasting:
        raise UnsupportedError(
            f"an optimizer step of {steps} micro-batches starts at {at} of the {lasting} of a generation: the tokens of its others "
            "are not known; make the epoch a multiple of gradient_accumulation_steps"
        )
    total = torch.zeros(2, dtype=torch.float64, device=trainer.accelerator.device)
    for number in range(at, at + steps):
        inputs = trainer._buffered_inputs[number % trainer.args.steps_per_generation]
        old = inputs.get("old_per_token_logps")
        unknown = torch.zeros_like(inputs["completion_ids"], dtype=torch.float32)  # only its mask is used
        columns = columns_of(inputs, unknown if old is None else old, None, None)
        if trainer.args.self_normalise:
            fixed = correction_of(trainer.args, columns)
            assert fixed is not None
            total += torch.stack([part.double() for part in weight_sums(fixed, columns.mask)])
        else:
            total[1] += columns.mask.sum()
    return trainer.accelerator.reduce(total, reduction="sum")

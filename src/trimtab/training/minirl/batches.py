"""A TRL micro-batch as columns, and the sums of the optimizer step it belongs to: the denominators.

DDP averages gradients over the ranks. TRL switches transformers' division by the accumulation steps off
(1.16: `loss_is_scaled_for_ga`; 1.2: a `compute_loss_func` that is set). Under transformers 5.2 accelerate
still divides, so there TRL's own gradients are too small by the accumulation steps; `one_division` ends that.
`local_denominator` undoes what is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from trimtab.errors import UnsupportedError
from trimtab.objectives import local_denominator, weight_sums
from trimtab.training.minirl.losses import Columns, StepSums, cells_of, correction_of
from trimtab.training.minirl.objective_defaults import WINDOW_DENOMINATORS
from trimtab.training.minirl.rollout_scoring import SELECTED


def columns_of(inputs: Any, logprobs: Any, entropy: Any, prox: Any) -> Columns:
    """TRL's keys under our names. The loss mask is completion and not tool: TRL pads the tool mask with 1."""
    exists, tool = inputs["completion_mask"], inputs.get("tool_mask")
    mask = (exists > 0) if tool is None else (exists > 0) & (tool > 0)
    old = inputs.get("old_per_token_logps")
    # one update a batch: the weights are those that sampled
    return Columns(
        logprobs=logprobs,
        old=logprobs.detach() if old is None else old,
        rollout=inputs.get("sampling_per_token_logps"),
        prox=prox,
        ref=inputs.get("ref_per_token_logps"),
        advantages=inputs["advantages"],
        mask=mask,
        cells=cells_of(mask, exists, tool),
        entropy=entropy,
        selected=inputs.get(SELECTED),
    )


@contextmanager
def one_division(accelerator: Any) -> Iterator[None]:
    """Around a micro-batch: accelerate divides its loss by nothing, as the denominators count the
    accumulation steps.

    Put back afterwards: every trainer of a process shares this number.
    """
    before = accelerator.gradient_accumulation_steps
    # DeepSpeed never divides here
    if str(accelerator.distributed_type).rsplit(".", 1)[-1] == "DEEPSPEED" or before == 1:
        yield
        return
    accelerator.gradient_accumulation_steps = 1
    try:
        yield
    finally:
        accelerator.gradient_accumulation_steps = before


def _steps_averaged(trainer: Any) -> int:
    off = getattr(trainer, "loss_is_scaled_for_ga", None) or trainer.compute_loss_func is not None
    return 1 if off else int(trainer.current_gradient_accumulation_steps)


def evaluation_sums(trainer: Any, columns: Columns) -> StepSums:
    """An evaluation batch is a step of its own; transformers averages its loss over the ranks."""
    world = trainer.accelerator.num_processes
    tokens = trainer.accelerator.gather(columns.mask.sum()).sum().clamp(min=1)
    return StepSums(len(columns.mask), local_denominator(float(tokens), ranks_averaged=world))


def step_sums(trainer: Any, rows: int) -> StepSums:
    """Denominators of every micro-batch of `rows` rows of the optimizer step that begins, the same for all of
    them.
    """
    args, world, micro = trainer.args, trainer.accelerator.num_processes, _steps_averaged(trainer)
    responses = rows * trainer.current_gradient_accumulation_steps * world
    local = local_denominator(responses, ranks_averaged=world, steps_averaged=micro)
    if args.objective not in WINDOW_DENOMINATORS and not args.self_normalise:
        return StepSums(local, tokens=1.0)
    weights, count = _over_tokens(trainer)
    tokens = local_denominator(max(float(count), 1.0), ranks_averaged=world, steps_averaged=micro)
    if not args.self_normalise:
        return StepSums(local, tokens)
    return StepSums(local, tokens, weights=weights, count=count)


def _over_tokens(trainer: Any) -> torch.Tensor:
    """Return (sum of correction weights, loss tokens) of the optimizer step, over all ranks."""
    lasting = trainer.args.steps_per_generation * trainer.num_iterations
    at, steps = trainer._step % lasting, trainer.current_gradient_accumulation_steps
    if at + steps > lasting:
        raise UnsupportedError(
            f"an optimizer step of {steps} micro-batches starts at {at} of the {lasting} of a generation: "
            "the tokens of its others "
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

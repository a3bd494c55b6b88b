"""VCPO's baseline inside a TRL trainer: each row's weight and gradient norm, one backward a row, once a
generation.

B rows of this rank, N of all ranks. The advantage is affine in the reward with one slope a group, so
subtracting the baseline of the advantages is subtracting the baseline of the rewards and scaling: (R - m) / s
- b((R - m) / s) = (R - b(R)) / s. No reward is needed.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from trimtab.objectives import off_policy_baseline, sequence_log_weights
from trimtab.training.minirl.routing_replay import REQUIRED, ROUTES


def row_scores(trainer: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """(log weights, squared gradient norms) of the rows, (B,) float64: log pi_theta/mu and |grad log
    pi_theta|^2 over loss tokens.

    pi_theta are the trainer's weights now, before the generation's first update; the gradient is that of what
    the optimizer trains (an adapter's alone under PEFT). Tokens of which `drop_nonfinite` knows no mu count
    in neither.
    """
    mask = batch["completion_mask"] > 0
    if "tool_mask" in batch:
        mask = mask & (batch["tool_mask"] > 0)
    mu = batch["sampling_per_token_logps"]
    if trainer.args.drop_nonfinite:
        mask = mask & torch.isfinite(mu)
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    trained = [p for p in trainer.model.parameters() if p.requires_grad]
    weights, norms = [], []
    for row in range(len(ids)):
        own = slice(row, row + 1)
        experts = trainer.experts
        routed = (
            nullcontext() if experts is None else experts.replaying(batch[ROUTES][own], batch[REQUIRED][own])
        )
        with torch.enable_grad(), routed:  # the recompute of gradient checkpointing replays too
            logps = trainer._get_per_token_logps_and_entropies(
                trainer.model, ids[own], attention[own], mask.shape[1], batch_size=1
            )[0]
            gradients = torch.autograd.grad((logps * mask[own]).sum(), trained, allow_unused=True)
        weights.append(sequence_log_weights(logps, mu[own], mask[own]))
        squares = [g.detach().double().square().sum() for g in gradients if g is not None]
        norms.append(torch.stack(squares).sum())
    return torch.cat(weights), torch.stack(norms)


def rebased_advantages(trainer: Any, batch: Any, scored: torch.Tensor) -> torch.Tensor:
    """The batch's advantages (B,) less the minimum-variance off-policy baseline of their group (arXiv
    2602.17616, OPOB).

    `scored` (N,) boolean: rows some reward function scored; the others stay as they are and out of the sum. A
    group without any gradient (every token masked) keeps TRL's mean. Logged: `vcpo/baseline_shift`, the mean
    of |b| (0 where b is the group mean), and `vcpo/no_baseline_frac`, the fraction of rows whose advantage
    was left alone.
    """
    logs, norms = row_scores(trainer, batch)
    own = batch["advantages"]
    table = trainer.accelerator.gather(torch.stack([own.double(), logs, norms], dim=1))
    advantages, logs, norms = table.unbind(dim=1)
    group = torch.arange(len(table), device=table.device) // trainer.num_generations
    norms = torch.where(scored, norms, 0.0)
    total = torch.zeros(int(group.max()) + 1, dtype=norms.dtype, device=norms.device).index_add(
        0, group, norms
    )
    moves = scored & (total[group] != 0)
    shift = off_policy_baseline(advantages, logs, norms, group)
    shift = torch.where(moves, shift, 0.0)
    trainer.log_train("vcpo/baseline_shift", float(shift.abs().mean()))
    trainer.log_train("vcpo/no_baseline_frac", float(1 - moves.double().mean()))
    table_of_completions = trainer._logs["advantages"]  # TRL has just put its own there
    for _ in range(min(len(advantages), len(table_of_completions))):
        table_of_completions.pop()
    table_of_completions.extend((advantages - shift).tolist())
    start = trainer.accelerator.process_index * len(own)
    return (own - shift[start : start + len(own)]).to(own.dtype)

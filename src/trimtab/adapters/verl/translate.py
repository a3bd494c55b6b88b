"""verl's seven arguments as columns of one micro-batch, its loss_agg_mode as our denominator, a loss's counts as its metrics.

B rows, T response places. verl is not imported here: everything is a plain function of tensors and of the actor's settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from trimtab.errors import ObjectiveError
from trimtab.objectives import Loss, local_denominator, sequence_lengths
from trimtab.objectives.validation import log_ratio

MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
"""verl 0.9's values of actor.loss_agg_mode."""


@dataclass(frozen=True)
class Columns:
    """One micro-batch (B, T) of one rank; `low`, `high` are actor.clip_ratio_low and clip_ratio_high, epsilons of a ratio."""

    logprobs: torch.Tensor
    old: torch.Tensor
    mu: torch.Tensor | None
    advantages: torch.Tensor
    mask: torch.Tensor
    weights: torch.Tensor | None
    denominator: float
    lengths: torch.Tensor | None
    low: float
    high: float
    dual: float

    @property
    def divided(self) -> dict[str, Any]:
        return {"denominator": self.denominator, "lengths": self.lengths}


def divisor(mode: str, mask: torch.Tensor, info: dict[str, Any]) -> tuple[float, torch.Tensor | None]:
    """verl's loss_agg_mode as (denominator, lengths) of `aggregate`: `info` is actor.global_batch_info, whose absent sizes are this batch's.

    verl multiplies by dp_size because its backend averages gradients over the ranks. The 1e-8 it adds to a row's tokens is lost
    in float32.
    Raises ObjectiveError for another mode, and where several ranks share a loss without the size of the whole batch.

    >>> divisor("seq-mean-token-sum", torch.ones(2, 3).bool(), {"dp_size": 4, "global_batch_size": 64})
    (16.0, None)
    """
    ranks = int(info.get("dp_size") or 1)
    tokens, rows = info.get("batch_num_tokens"), info.get("global_batch_size")
    if mode not in MODES:
        raise ObjectiveError(f"loss_agg_mode must be one of {', '.join(MODES)}; got {mode!r}")
    if mode == "token-sum":
        total: Any = 1.0
    elif mode == "token-mean":
        total = mask.sum().clamp(min=1) if tokens is None else tokens
    else:
        total = mask.any(dim=1).sum().clamp(min=1) if rows is None else rows
    if ranks > 1 and mode != "token-sum" and (tokens if mode == "token-mean" else rows) is None:
        raise ObjectiveError(
            f"{mode} over {ranks} ranks needs the whole batch's size in actor.global_batch_info"
        )
    if mode == "seq-mean-token-sum-norm":
        total = total * (info.get("loss_scale_factor") or mask.shape[1])
    lengths = sequence_lengths(mask) if mode == "seq-mean-token-mean" else None
    return local_denominator(float(total), ranks_averaged=ranks), lengths


def columns_of(
    config: Any, mode: str, now: torch.Tensor, old: torch.Tensor, mu: torch.Tensor | None, advantages: torch.Tensor,
    mask: torch.Tensor, weights: torch.Tensor | None,
) -> Columns:  # fmt: skip
    """The micro-batch under `config`, verl's ActorConfig; an unset side of the clip is actor.clip_ratio, as in verl's losses."""
    denominator, lengths = divisor(mode, mask, config.global_batch_info)
    low, high = (
        float(config.clip_ratio if value is None else value)
        for value in (config.clip_ratio_low, config.clip_ratio_high)
    )
    dual = float(config.clip_ratio_c)
    return Columns(now, old, mu, advantages, mask, weights, denominator, lengths, low, high, dual)


def metrics_of(c: Columns, loss: Loss) -> dict[str, Any]:
    """verl's own two names, and a number of tokens for each mark; a device wait, as in verl's losses."""
    tokens = int(loss.tokens)
    gap = log_ratio(c.logprobs.detach(), c.old.detach(), c.mask).sum()
    clips = [loss.marks[name] for name in ("clipped_high", "clipped_low") if name in loss.marks]
    clipped = int(torch.stack(clips).any(dim=0).sum()) if clips else 0
    marks = {f"actor/trimtab/{name}": int(by["all"]) for name, by in loss.counts.items()}
    shares = {"actor/ppo_kl": -float(gap) / max(tokens, 1), "actor/pg_clipfrac": clipped / max(tokens, 1)}
    return {**shares, "actor/trimtab/tokens": tokens, **marks}

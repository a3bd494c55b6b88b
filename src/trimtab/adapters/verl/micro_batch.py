"""One micro-batch of verl: its columns, its denominator by loss_agg_mode, and the metrics of its loss.

B rows, T response tokens. verl is not imported here: these are plain functions of tensors and of the actor's
settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from trimtab.errors import ObjectiveError
from trimtab.objectives import Loss, local_denominator, sequence_lengths
from trimtab.objectives.tensor_checks import log_ratio

MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
"""verl 0.9's values of actor.loss_agg_mode."""


@dataclass(frozen=True)
class Columns:
    """One micro-batch (B, T) of one rank; `low`, `high` are actor.clip_ratio_low and clip_ratio_high."""

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
        """Denominator and lengths, as the losses take them."""
        return {"denominator": self.denominator, "lengths": self.lengths}

    @property
    def clip(self) -> dict[str, Any]:
        """The clip range, as the losses take it."""
        return {"eps_low": self.low, "eps_high": self.high}


def divisor(mode: str, mask: torch.Tensor, info: dict[str, Any]) -> tuple[float, torch.Tensor | None]:
    """Return verl's loss_agg_mode as (denominator, lengths) of `aggregate`.

    `info` is actor.global_batch_info; sizes that it lacks are those of this batch. verl multiplies by dp_size
    because its backend averages gradients over the ranks. The 1e-8 it adds to a row's tokens is lost in
    float32. Raises ObjectiveError for another mode, and where several ranks share a loss without the size of
    the whole batch.

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


def clip_settings(config: Any) -> tuple[float, float, float]:
    """Return (low, high, dual) of verl's ActorConfig; an unset side is actor.clip_ratio."""
    low, high = (
        float(config.clip_ratio if value is None else value)
        for value in (config.clip_ratio_low, config.clip_ratio_high)
    )
    return low, high, float(config.clip_ratio_c)


def metrics_of(c: Columns, loss: Loss) -> dict[str, Any]:
    """Return verl's own two metrics, and a number of tokens for each mark; waits for the device."""
    tokens = int(loss.tokens)
    gap = log_ratio(c.logprobs.detach(), c.old.detach(), c.mask).sum()
    clips = [loss.marks[name] for name in ("clipped_high", "clipped_low") if name in loss.marks]
    clipped = int(torch.stack(clips).any(dim=0).sum()) if clips else 0
    marks = {f"actor/trimtab/{name}": int(by["all"]) for name, by in loss.counts.items()}
    fractions = {"actor/ppo_kl": -float(gap) / max(tokens, 1), "actor/pg_clipfrac": clipped / max(tokens, 1)}
    return {**fractions, "actor/trimtab/tokens": tokens, **marks}

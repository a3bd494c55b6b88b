"""From one micro-batch's columns and the settings to the loss: thin compositions of `trimtab.objectives`,
nothing of its own.

B rows, T completion tokens; logs in nats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from trimtab.objectives import (
    Cells,
    Correction,
    Loss,
    cispo,
    combine,
    decoupled_kl,
    decoupled_ppo,
    entropy_bonus,
    icepop,
    k3_rejection,
    kl_penalty,
    merge_counts,
    minirl,
    mis,
    off_policy_rejection,
    per_token,
    ppo_clip,
    reinforce,
    reject_nonfinite,
    self_normalise,
    sequence_lengths,
    tis,
    veto,
)
from trimtab.objectives.tensor_checks import Number
from trimtab.objectives.token_slices import Counts
from trimtab.training.minirl.objective_defaults import (
    CORRECTION_BOUNDS,
    CORRECTION_PAIRS,
    DEFAULTS,
    SLICE_NAMES,
)


@dataclass(frozen=True)
class Columns:
    """What each token of a micro-batch looks like to each policy; `mask` is the loss mask, `cells` text and
    post_tool.
    """

    logprobs: torch.Tensor
    old: torch.Tensor
    rollout: torch.Tensor | None
    prox: torch.Tensor | None
    ref: torch.Tensor | None
    advantages: torch.Tensor
    mask: torch.Tensor
    cells: Cells
    entropy: torch.Tensor | None = None
    selected: torch.Tensor | None = None


@dataclass(frozen=True)
class StepSums:
    """Of the whole optimizer step as this rank must divide by (`local_denominator`); `weights` and `count` of
    self_normalise.
    """

    responses: float
    tokens: float
    weights: torch.Tensor | None = None
    count: torch.Tensor | None = None


def needs_mu(args: Any) -> bool:
    """Return whether these settings use the sampler's log-probabilities."""
    own = (args.objective == "minirl" and args.importance) or args.objective.startswith("decoupled")
    filters = (args.k3_bound, args.veto_floor, args.off_policy_mask_threshold)
    return bool(
        own
        or args.correction != "none"
        or args.lr_by_ess
        or args.off_policy_baseline
        or any(value is not None for value in filters)
    )


def cells_of(mask: torch.Tensor, completion_mask: torch.Tensor, tool_mask: torch.Tensor | None) -> Cells:
    """post_tool: model tokens after the first tool token of their row; all others are text."""
    if tool_mask is None:
        return Cells(torch.zeros_like(mask, dtype=torch.int64), SLICE_NAMES)
    tool = (tool_mask == 0) & (completion_mask > 0)
    return Cells(((tool.cumsum(dim=1) > 0) & mask).long(), SLICE_NAMES)


def by_slice(args: Any, cells: Cells, name: str, default: float | None) -> Number:
    """Return the number, or one a token where `slices` sets it. None is infinity."""
    default = math.inf if default is None else default
    table = {label: own[name] for label, own in (args.slices or {}).items() if name in own}
    return per_token(cells, table, float(default)) if table else float(default)


def correction_of(args: Any, c: Columns) -> Correction | None:
    """All corrections and filters together; None when every one is off. Decided on the raw log(pi_old/mu)."""
    if c.rollout is None:
        return None
    raw, mask, fixes = (c.old - c.rollout).detach(), c.mask, []
    if args.drop_nonfinite and needs_mu(args):  # of mu alone: a NaN of the policy itself must stop the run
        fixes.append(reject_nonfinite(torch.where(torch.isfinite(c.rollout), 0.0, math.nan), mask))
        mask = fixes[0].keep
    low, high = _bounds(args, c.cells)
    if args.correction == "tis":
        fixes.append(tis(raw, mask, cap=high, level=args.correction_level))
    elif args.correction == "mis":
        level, weigh = args.correction_level, args.correction_weighs
        fixes.append(mis(raw, mask, low=low, high=high, level=level, weigh=weigh))
    elif args.correction == "icepop":
        fixes.append(icepop(raw, mask, low=low, high=high))
    elif args.correction in CORRECTION_PAIRS:
        drops, weighs = (name.partition("_")[0] for name in args.correction.split(","))
        cap = CORRECTION_BOUNDS["tis"][1] if args.correction_cap is None else args.correction_cap
        fixes.append(mis(raw, mask, low=low, high=high, level=drops, weigh=False))
        fixes.append(tis(raw, mask, cap=cap, level=weighs))
    if args.k3_bound is not None:
        bound = by_slice(args, c.cells, "k3_bound", args.k3_bound)
        fixes.append(k3_rejection(raw, mask, bound=bound, level=args.k3_level))
    if args.veto_floor is not None:
        fixes.append(veto(raw, mask, floor=args.veto_floor))
    if args.off_policy_mask_threshold is not None:
        bound = args.off_policy_mask_threshold
        fixes.append(off_policy_rejection(c.logprobs, c.rollout, c.advantages, mask, bound=bound))
    return combine(*fixes, slices=c.cells) if fixes else None


def _bounds(args: Any, cells: Cells) -> tuple[Number, Number]:
    smallest, largest = CORRECTION_BOUNDS[args.correction]
    low = smallest if args.correction_low is None else args.correction_low
    high = largest if args.correction_high is None else args.correction_high
    return by_slice(args, cells, "correction_low", low), by_slice(args, cells, "correction_high", high)


def step_loss(
    args: Any, c: Columns, sums: StepSums, bonus: float = 0.0
) -> tuple[torch.Tensor, Counts, torch.Tensor | None]:
    """The loss (0-d, with gradient), counts of everything clipped or dropped, and the KL terms (B, T) of
    beta, detached.
    """
    fixed = correction_of(args, c)
    if fixed is not None and sums.weights is not None and sums.count is not None:
        fixed = self_normalise(fixed, sums.weights, sums.count)
    keep = c.mask if fixed is None else fixed.keep
    if c.selected is not None:
        keep = keep & c.selected
    loss = policy_loss(args, c, sums, fixed, keep if (fixed is not None or c.selected is not None) else None)
    value, counts, shared = loss.value, loss.counts, _shared(args, c, sums)
    if fixed is not None:
        counts = merge_counts(counts, {f"correction/{name}": own for name, own in fixed.counts.items()})
    kl = None
    if c.ref is not None:
        beta = by_slice(args, c.cells, "beta", args.beta)
        value = (
            value + kl_penalty(c.logprobs, c.ref, c.mask, coefficient=beta, **_kl(args, c), **shared).value
        )
        kl = kl_penalty(c.logprobs.detach(), c.ref, c.mask, coefficient=1.0, denominator=1.0).per_token
    if c.entropy is not None and bonus:
        value = value + entropy_bonus(c.entropy, c.mask, coefficient=bonus, **shared).value
    return value, counts, kl


def _kl(args: Any, c: Columns) -> dict[str, Any]:
    """Estimator of the KL to the reference, and the weight of tokens that pi_theta did not sample."""
    if args.kl_estimator == "k3_weighted":
        return {"estimator": args.kl_estimator, "sampler_logprobs": c.old}
    if args.kl_weight_cap is None:
        return {"estimator": args.kl_estimator}
    sampler = c.old if c.rollout is None else c.rollout
    if args.drop_nonfinite:  # an unknown sampler: unweighted
        sampler = torch.where(torch.isfinite(sampler), sampler, c.old)
    fixed = tis((c.logprobs - sampler).detach(), c.mask, cap=args.kl_weight_cap)
    return {"estimator": args.kl_estimator, "weights": fixed.weights}


def _shared(args: Any, c: Columns, sums: StepSums) -> dict[str, Any]:
    """Denominator and lengths of the objective, shared by its penalties."""
    divide = "row_means" if args.length_norm else DEFAULTS[args.objective].divide
    by = {"tokens": sums.tokens, "constant": sums.responses * args.max_completion_length}.get(
        divide, sums.responses
    )
    return {"denominator": by, "lengths": sequence_lengths(c.mask) if divide == "row_means" else None}


def policy_loss(
    args: Any, c: Columns, sums: StepSums, fixed: Correction | None, keep: torch.Tensor | None
) -> Loss:
    """The objective alone. Its clip is anchored at the proximal policy where there is one, else at pi_old."""
    anchor = c.old if c.prox is None else c.prox
    shared = _shared(args, c, sums)
    low, high = (by_slice(args, c.cells, name, getattr(args, name)) for name in ("epsilon", "epsilon_high"))
    rest: dict[str, Any] = {"keep": keep, "slices": c.cells}
    if args.objective == "minirl":
        cap = by_slice(args, c.cells, "weight_cap", args.weight_cap)
        rest |= {"denominator": shared["denominator"], "eps_low": low, "eps_high": high, "cap": cap}
        rest |= {name: getattr(args, name) for name in ("importance", "clip", "length_norm")}
        return minirl(c.logprobs, anchor, c.rollout, c.advantages, c.mask, **rest)
    if args.objective.startswith("decoupled"):
        assert c.rollout is not None
        cap, rest = args.weight_cap, {**shared, **rest}
        policies: Any = (c.logprobs, anchor, c.rollout, c.advantages, c.mask)
        if args.objective == "decoupled_kl":
            return decoupled_kl(
                *policies, cap=cap, beta=args.prox_beta, estimator=args.prox_estimator, **rest
            )
        return decoupled_ppo(*policies, cap=cap, eps_low=low, eps_high=high, **rest)
    weights = fixed.weights if fixed is not None else None
    if args.objective == "reinforce":
        return reinforce(c.logprobs, c.advantages, c.mask, weights=weights, **shared, **rest)
    if args.objective == "cispo":
        rest |= {"denominator": shared["denominator"], "high": high, "weights": weights}
        return cispo(c.logprobs, anchor, c.advantages, c.mask, **rest)
    level: Any = "sequence" if args.objective == "gspo" else "token"
    return ppo_clip(
        c.logprobs, anchor, c.advantages, c.mask, eps_low=low, eps_high=high, dual=args.delta, level=level,
        weights=weights, **shared, **rest,
    )  # fmt: skip

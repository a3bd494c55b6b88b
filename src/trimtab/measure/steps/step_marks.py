"""What one step's masks, versions and reference say: trained results, masked answers, age, support.

N tokens of a batch, B sequences; a batch keeps its own tokens and those of tools.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trimtab.catalog import bound
from trimtab.measure.steps.step_tokens import StepTokens
from trimtab.measure.steps.tail_quantiles import Estimates
from trimtab.measure.steps.trajectory_means import token_mean
from trimtab.types import TokenBatch
from trimtab.typing import Float64

Columns = dict[str, tuple[tuple[str, ...], Estimates]]


def mark_columns(
    batches: Sequence[TokenBatch], tokens: StepTokens, columns: Columns, reasons: dict[str, str]
) -> None:
    """Add the series on masks, age and support.

    `mask/result_frac`: of the results of tools, those whose first token receives gradient.
    `mask/silent_frac`: of the sequences with a result, those without a token with gradient after the last
    one. `lag/mean`: age of the tokens with gradient in policy versions. `support/below_5_frac`: tokens that
    the reference gives less than exp(-5).
    """
    results, silent = (np.sum(rows, axis=0) for rows in zip(*map(_mask_counts, batches), strict=True))
    for name, (hits, num) in (("mask/result_frac", results), ("mask/silent_frac", silent)):
        if num:
            columns[name] = ("all",), _share(float(hits), int(num))
        else:
            reasons[name] = "no tool result in this step"
    _add_lag(batches, columns, reasons)
    ref = tokens.column(_below_5)
    if isinstance(ref, str):
        reasons["support"] = ref
    else:
        columns["support/below_5_frac"] = tokens.slices, token_mean(tokens, ref)


def _mask_counts(batch: TokenBatch) -> tuple[tuple[int, int], tuple[int, int]]:
    """(Trained results, results), (sequences silent after their last result, sequences with one)."""
    lengths = batch.lengths[batch.lengths > 0]
    if not lengths.size:
        return (0, 0), (0, 0)
    first = np.cumsum(lengths) - lengths
    opens = np.diff(batch.turn, prepend=1) > 0
    opens[first] = batch.turn[first] > 1
    last_turn = batch.turn[first + lengths - 1]
    speaks = batch.loss_mask & (batch.turn == np.repeat(last_turn, lengths)) & ~opens
    with_result = last_turn > 1
    silent = with_result & ~np.logical_or.reduceat(speaks, first)
    trained = int(np.count_nonzero(batch.loss_mask & opens))
    return (trained, int(np.count_nonzero(opens))), (
        int(np.count_nonzero(silent)), int(np.count_nonzero(with_result)),
    )  # fmt: skip


def _add_lag(batches: Sequence[TokenBatch], columns: Columns, reasons: dict[str, str]) -> None:
    ages = [
        (batch.current_version - batch.policy_version[batch.loss_mask]).astype(np.float64)
        for batch in batches
        if batch.policy_version is not None and batch.current_version is not None
    ]
    lag = np.concatenate(ages) if ages else np.zeros(0)
    lag = lag[lag >= 0]
    if not lag.size:
        reasons["lag"] = "no policy versions in this step"
        return
    error = float(lag.std() / math.sqrt(lag.size))
    num = sum(batch.num_sequences for batch in batches)
    columns["lag/mean"] = ("all",), _one(float(lag.mean()), error, lag.size, num)


def _below_5(batch: TokenBatch) -> Float64 | str:
    if batch.ref_logprobs is None:
        return f"no ref_logprobs: {batch.absent.get('ref_logprobs', 'not given')}"
    values = batch.ref_logprobs[batch.loss_mask].astype(np.float64)
    below = np.where(np.isnan(values), math.nan, (values < bound("near_support_5")).astype(np.float64))
    if batch.ref_scored is not None:
        below[~np.repeat(batch.ref_scored, batch.lengths)[batch.loss_mask]] = math.nan
    return below


def _share(hits: float, num: int) -> Estimates:
    frac = hits / num
    return _one(frac, math.sqrt(frac * (1 - frac) / num), 0, num)


def _one(value: float, error: float, num_tokens: int, num: int) -> Estimates:
    return Estimates(np.array([value]), np.array([error]), np.array([num_tokens]), np.array([num]))

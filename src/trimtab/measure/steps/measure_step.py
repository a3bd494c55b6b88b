"""All series of one step, from its batches and the trainer's own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.measure.state.log_ratios import RATIOS, Ratio, log_ratio, why_not
from trimtab.measure.steps.mismatch_shape import far_tokens, one_estimate, shifted_frac, temperature_corr
from trimtab.measure.steps.step_ess import sequence_ess, token_ess
from trimtab.measure.steps.step_marks import mark_columns
from trimtab.measure.steps.step_outcomes import part_columns
from trimtab.measure.steps.step_rewards import reward_columns
from trimtab.measure.steps.step_series import StepSeries
from trimtab.measure.steps.step_tokens import StepTokens, step_tokens
from trimtab.measure.steps.tail_quantiles import Estimates, abs_quantiles
from trimtab.measure.steps.trajectory_means import token_mean
from trimtab.types import TokenBatch
from trimtab.typing import Float64

LEVELS = {"p95": 0.95, "p99": 0.99}
"""Name of a quantile in a series -> its level."""

Columns = dict[str, tuple[tuple[str, ...], Estimates]]


def measure_step(
    step: int,
    batches: Sequence[TokenBatch],
    *,
    updates: Mapping[str, Sequence[TokenBatch]] | None = None,
    solved_at: float | None = None,
    gradient_norm: float | None = None,
    reward_bar: float | None = None,
) -> StepSeries:
    """Compute every series of one step in every slice.

    Args:
        step: number of the step.
        batches: micro-batches of the step.
        updates: series -> batches whose `prox_logprobs` were scored before an update and whose `logprobs`
            after it; `update` for tokens of the step, `probe_update` for fixed transcripts.
        solved_at: a trajectory with at least this reward is correct. Default: one with the top reward of its
            group, where the group's rewards differ.
        gradient_norm: of the step, as the trainer gives it.
        reward_bar: without `solved_at`, rewards from which on a group of one reward counts as solved; the
            middle of the step's by default.

    Returns:
        Values, standard errors and counts. `reasons` says why series are missing.

    Raises:
        BatchError: columns that are compared follow different conventions.

    Example:
        >>> from trimtab.capture import token_batch
        >>> columns = {"logprobs": np.log([[0.5, 0.0, 0.2]]), "rollout_logprobs": np.log([[0.5, 0.0, 0.1]])}
        >>> with np.errstate(all="ignore"):
        ...     series = measure_step(3, [token_batch(np.array([[True, False, True]]), **columns)])
        >>> round(series.get("total/p95").value, 4), series.reasons["mismatch"]
        (0.6931, 'no old_logprobs: not given')

    Reference:
        Woodruff (1952); Kish (1965); Cochran (1977).
    """
    columns: Columns = {}
    reasons: dict[str, str] = {}
    tokens = step_tokens(batches)
    if tokens is None:
        reasons["all"] = "no token with gradient in this step"
    else:
        _add_ratios(tokens, columns, reasons)
        _add_entropy(tokens, columns, reasons)
        reward_columns(tokens, columns, reasons, solved_at, gradient_norm, reward_bar)
        mark_columns(batches, tokens, columns, reasons)
    part_columns(batches, columns)
    for name in ("update", "probe_update"):
        _add_update(name, (updates or {}).get(name, ()), columns, reasons)
    return StepSeries.of(step, columns, reasons)


def _add_ratios(tokens: StepTokens, columns: Columns, reasons: dict[str, str]) -> None:
    for name in ("total", "mismatch", "staleness"):
        values = tokens.column(lambda batch, ratio=RATIOS[name]: _log_ratio(batch, ratio))  # type: ignore[misc]
        if isinstance(values, str):
            reasons[name] = values
            continue
        levels = {"p75": 0.75, "p90": 0.9} | LEVELS if name == "mismatch" else LEVELS
        for label, estimates in zip(levels, abs_quantiles(tokens, values, [*levels.values()]), strict=True):
            columns[f"{name}/{label}"] = tokens.slices, estimates
        if name == "mismatch":
            _add_shape(tokens, values, columns)
        if "sequence_ess" not in RATIOS[name].valid:
            continue
        for unit, ess in (("sequence", sequence_ess(tokens, values)), ("token", token_ess(tokens, values))):
            columns[f"{name}/{unit}_ess_frac"] = tokens.slices, ess.frac
            columns[f"{name}/{unit}_log_mean_weight"] = tokens.slices, ess.log_mean_weight
        with np.errstate(over="ignore", invalid="ignore"):
            k3 = np.expm1(values) - values
        k3 = np.where(np.isinf(values), np.inf, k3)
        columns[f"{name}/kl_k3"] = tokens.slices, token_mean(tokens, k3)


def _add_shape(tokens: StepTokens, mismatch: Float64, columns: Columns) -> None:
    """Series that tell causes of mismatch apart."""
    columns["mismatch/above_3_frac"] = tokens.slices, token_mean(tokens, far_tokens(mismatch))
    old = tokens.column(lambda batch: _of_tokens(batch, "old_logprobs"))
    entropy = tokens.column(lambda batch: _of_tokens(batch, "entropy"))
    if isinstance(old, str):
        return
    shifted = shifted_frac(tokens.sequence, mismatch, old)
    columns["mismatch/shifted_frac"] = ("all",), one_estimate(shifted, tokens)
    if not isinstance(entropy, str):
        value = temperature_corr(mismatch, old, entropy)
        columns["mismatch/temperature_corr"] = ("all",), one_estimate(value, tokens)


def _of_tokens(batch: TokenBatch, name: str) -> Float64 | str:
    values = getattr(batch, name)
    if values is None:
        return f"no {name}: {batch.absent.get(name, 'not given')}"
    return np.asarray(values[batch.loss_mask], np.float64)


def _log_ratio(batch: TokenBatch, ratio: Ratio) -> Float64 | str:
    return why_not(batch, ratio) or log_ratio(batch, ratio).astype(np.float64)


def _add_entropy(tokens: StepTokens, columns: Columns, reasons: dict[str, str]) -> None:
    values = tokens.column(lambda batch: _of_tokens(batch, "entropy"))
    if isinstance(values, str):
        reasons["entropy"] = values
    else:
        columns["entropy/mean"] = tokens.slices, token_mean(tokens, values)


def _add_update(name: str, batches: Sequence[TokenBatch], columns: Columns, reasons: dict[str, str]) -> None:
    tokens = step_tokens(batches) if batches else None
    values: Any = "no tokens were scored before and after the update"
    if tokens is not None:
        values = tokens.column(lambda batch: _log_ratio(batch, RATIOS["lagged_drift"]))
    if tokens is None or isinstance(values, str):
        reasons[name] = values
        return
    for label, estimates in zip(LEVELS, abs_quantiles(tokens, values, [*LEVELS.values()]), strict=True):
        columns[f"{name}/{label}"] = tokens.slices, estimates

"""One step's series of several ranks as those of one sample.

| series | merged | exact |
|---|---|---|
| means of tokens (`kl_k3`, `entropy/mean`) | weighted by tokens | yes |
| means of trajectories (`reward/mean`, `correct/logprob`, `mixed_groups_frac`) | weighted by trajectories | yes, where no group is on two ranks |
| `*_log_mean_weight`, `*_ess_frac` | from the sums of w and of w^2 | yes, where a trajectory is one sequence |
| quantiles (`p95`, `p99`) | mean weighted by tokens | no: near the pooled quantile where ranks are alike |
| `mismatch/temperature_corr`, `mismatch/shifted_frac` | mean weighted by trajectories | no |
| `reward/equal_mix` | from the merged means of the sources | yes |
| `gradient/norm` | of the first rank that has it | it is one number |

Errors are combined as of independent strata; that of an ESS bounds the influence of a rank by its larger part of
the two sums.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trimtab.capture.segments import OTHER
from trimtab.measure.steps.step_rewards import equal_mix
from trimtab.measure.steps.step_series import StepSeries
from trimtab.measure.steps.tail_quantiles import Estimates
from trimtab.typing import Bool, Float64

_BY_TOKENS = (
    "/p75",
    "/p90",
    "/p95",
    "/p99",
    "/kl_k3",
    "entropy/mean",
    "/above_3_frac",
    "/below_5_frac",
    "lag/mean",
)
BY_RANK = ("mismatch/p95", "staleness/p95", "entropy/mean", "reward/mean")
"""Series that keep what each rank says of all its tokens, so that one rank that differs has a name."""
MAX_RANKS = 64
_ESS, _LOG_MEAN = "_ess_frac", "_log_mean_weight"


def merge_ranks(parts: Sequence[StepSeries], ranks: Sequence[int] = ()) -> StepSeries:
    """Return the series of one step from those of its ranks.

    Args:
        parts: one a rank, lowest rank first, of the same step.
        ranks: their numbers; series of `BY_RANK` then have slices `rank/<number>`, of `MAX_RANKS` at most.

    Returns:
        Series and slices that any rank has; reasons only for series that none has.
    """
    if len(parts) == 1:
        return parts[0]
    names = tuple(dict.fromkeys(name for part in parts for name in part.names))
    slices = tuple(sorted({name for part in parts for name in part.slices}))
    table = _Table.of(parts, names, slices)
    merged = _merged(table, names)
    columns = {name: (slices, Estimates(*(array[row] for array in merged))) for row, name in enumerate(names)}
    if len(ranks) <= MAX_RANKS:
        of_rank = tuple(f"rank/{rank}" for rank in ranks)
        for name in (one for one in BY_RANK if ranks and one in columns and "all" in slices):
            pairs = zip(columns[name][1], table.of_all(names.index(name), slices.index("all")), strict=True)
            columns[name] = (slices + of_rank, Estimates(*(np.concatenate(pair) for pair in pairs)))
    mix = _mix(columns)
    if mix is not None:
        columns["reward/equal_mix"] = mix
    families = {name.split("/")[0] for name in names}
    reasons = {k: why for part in parts for k, why in part.reasons.items() if k not in names}
    return StepSeries.of(
        parts[0].step, columns, {k: why for k, why in reasons.items() if k not in families | {"all"}}
    )


class _Table(NamedTuple):
    """Values of R ranks by series and slice (R, K, S); NaN and no trajectories where a rank has none."""

    values: Float64
    errors: Float64
    tokens: Float64
    trajectories: Float64

    @classmethod
    def of(cls, parts: Sequence[StepSeries], names: Sequence[str], slices: Sequence[str]) -> _Table:
        rows = {name: i for i, name in enumerate(names)}
        columns = {name: i for i, name in enumerate(slices)}
        shape = len(parts), len(names), len(slices)
        numbers, counts = np.full((2, *shape), np.nan), np.zeros((2, *shape))
        for rank, part in enumerate(parts):
            at = np.ix_([rows[name] for name in part.names], [columns[name] for name in part.slices])
            numbers[0, rank][at], numbers[1, rank][at] = part.values, part.errors
            counts[0, rank][at], counts[1, rank][at] = part.num_tokens, part.num_trajectories
        return cls(numbers[0], numbers[1], counts[0], counts[1])

    def of_all(self, row: int, column: int) -> Estimates:
        """What each rank (R,) says of one series in one slice."""
        values, errors, tokens, trajectories = (array[:, row, column] for array in self)
        return Estimates(values, errors, tokens.astype(np.int64), trajectories.astype(np.int64))


def _merged(table: _Table, names: Sequence[str]) -> Estimates:
    """Values, errors, tokens and trajectories (K, S) of all ranks."""
    present = table.trajectories > 0
    counted = np.where(present, table.tokens, 0.0), np.where(present, table.trajectories, 0.0)
    by_tokens = np.array([name.endswith(_BY_TOKENS) or "/token_" in name for name in names])
    units = np.where(by_tokens[:, None], *counted)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        weights = units / units.sum(axis=0)
        values = np.where(present, weights * table.values, 0.0).sum(axis=0)
        errors = _combined_errors(weights, np.where(present, table.errors, np.nan))
        for row, name in enumerate(names):
            if name.endswith((_ESS, _LOG_MEAN)):
                values[row], errors[row] = _of_weights(table, names, row, units[:, row], present[:, row])
    first = np.argmax(present, axis=0)
    norm = np.array([name == "gradient/norm" for name in names])[:, None]
    alone = (present.sum(axis=0) == 1) | norm
    values = np.where(alone, np.take_along_axis(table.values, first[None], axis=0)[0], values)
    errors = np.where(alone, np.take_along_axis(table.errors, first[None], axis=0)[0], errors)
    num_tokens, num_trajectories = (array.sum(axis=0).astype(np.int64) for array in counted)
    none = num_trajectories == 0
    return Estimates(
        np.where(none, np.nan, values), np.where(none, np.nan, errors), num_tokens, num_trajectories
    )


def _of_weights(
    table: _Table, names: Sequence[str], row: int, units: Float64, present: Bool
) -> tuple[Float64, Float64]:
    """The log of the mean weight, or the ESS fraction (S,), from the sums of w and of w^2 of each rank."""
    name = names[row]
    log_means = table.values[:, row]
    if name.endswith(_ESS):
        other = name.removesuffix(_ESS) + _LOG_MEAN
        log_means = table.values[:, names.index(other)] if other in names else log_means * np.nan
    first = np.where(present, np.log(units) + log_means, -np.inf)  # log of the sum of w
    total = np.logaddexp.reduce(first)
    if name.endswith(_LOG_MEAN):
        return total - np.log(units.sum(axis=0)), _combined_errors(
            np.exp(first - total), np.where(present, table.errors[:, row], np.nan)
        )
    second = np.where(present, 2 * first - np.log(units * table.values[:, row]), -np.inf)  # of w^2
    squares = np.logaddexp.reduce(second)
    value = np.exp(2 * total - squares) / units.sum(axis=0)
    influence = np.maximum(np.exp(first - total), np.exp(second - squares))
    relative = np.where(present, table.errors[:, row] / table.values[:, row], np.nan)
    return value, value * _combined_errors(influence, relative)


def _combined_errors(weights: Float64, errors: Float64) -> Float64:
    """`combined_error` over the first axis of many sums at once."""
    squares = np.where(np.isnan(weights), 0.0, np.square(weights))
    known = np.where(~np.isnan(errors) & (squares > 0), squares, 0.0)
    variance = np.where(known > 0, known * np.square(errors), 0.0).sum(axis=0)
    result: Float64 = np.sqrt(variance * squares.sum(axis=0) / known.sum(axis=0))
    return result


def _mix(columns: dict[str, tuple[tuple[str, ...], Estimates]]) -> tuple[tuple[str, ...], Estimates] | None:
    """The mean over sources again, of the merged means."""
    if "reward/equal_mix" not in columns or "reward/mean" not in columns:
        return None
    slices, means = columns["reward/mean"]
    rows = dict(zip(slices, zip(*means, strict=True), strict=True))
    mix = equal_mix(rows, [s for s in slices if s.startswith("source/") and s != f"source/{OTHER}"])
    return None if isinstance(mix, str) else (("all",), mix)

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

import numpy as np

from trimtab.capture.segments import OTHER
from trimtab.measure.steps.ewma import combined_error
from trimtab.measure.steps.step_rewards import equal_mix
from trimtab.measure.steps.step_series import SeriesValue, StepSeries
from trimtab.measure.steps.tail_quantiles import Estimates

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
    names = dict.fromkeys(name for part in parts for name in part.names)
    slices = sorted({name for part in parts for name in part.slices})
    columns = {}
    for name in names:
        rows = {s: _merged(name, s, parts) for s in slices}
        present = {s: row for s, row in rows.items() if row is not None}
        if name in BY_RANK and len(ranks) <= MAX_RANKS:
            of_rank = {f"rank/{rank}": part.get(name) for rank, part in zip(ranks, parts, strict=False)}
            present |= {s: point for s, point in of_rank.items() if point is not None}
        columns[name] = tuple(present), _estimates(list(present.values()))
    mix = _mix(columns)
    if mix is not None:
        columns["reward/equal_mix"] = mix
    families = {name.split("/")[0] for name in names}
    reasons = {k: why for part in parts for k, why in part.reasons.items() if k not in names}
    return StepSeries.of(
        parts[0].step, columns, {k: why for k, why in reasons.items() if k not in families | {"all"}}
    )


def _merged(name: str, slice_name: str, parts: Sequence[StepSeries]) -> SeriesValue | None:
    points = [(part, point) for part in parts if (point := part.get(name, slice_name)) is not None]
    if not points:
        return None
    values, errors, tokens, trajectories = (
        np.array(field, float) for field in zip(*(p for _, p in points), strict=True)
    )
    counts = int(tokens.sum()), int(trajectories.sum())
    if name == "gradient/norm" or len(points) == 1:
        return SeriesValue(float(values[0]), float(errors[0]), *counts)
    by_tokens = name.endswith(_BY_TOKENS) or "/token_" in name
    units = tokens if by_tokens else trajectories
    if not name.endswith((_ESS, _LOG_MEAN)):
        weights = units / units.sum()
        with np.errstate(invalid="ignore"):
            return SeriesValue(float((weights * values).sum()), combined_error(weights, errors), *counts)
    log_means = values
    if name.endswith(_ESS):
        other = name.removesuffix(_ESS) + _LOG_MEAN
        log_means = np.array([part.get(other, slice_name).value for part, _ in points])  # type: ignore[union-attr]
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.log(units) + log_means  # log of the sum of w
        total = np.logaddexp.reduce(first)
        if name.endswith(_LOG_MEAN):
            value = float(total - np.log(units.sum()))
            return SeriesValue(value, combined_error(np.exp(first - total), errors), *counts)
        second = 2 * first - np.log(units * values)  # log of the sum of w^2
        squares = np.logaddexp.reduce(second)
        value = float(np.exp(2 * total - squares) / units.sum())
        influence = np.maximum(np.exp(first - total), np.exp(second - squares))
        return SeriesValue(value, value * combined_error(influence, errors / values), *counts)


def _mix(columns: dict[str, tuple[tuple[str, ...], Estimates]]) -> tuple[tuple[str, ...], Estimates] | None:
    """The mean over sources again, of the merged means."""
    if "reward/equal_mix" not in columns:
        return None
    slices, means = columns["reward/mean"]
    rows = dict(zip(slices, zip(*means, strict=True), strict=True))
    mix = equal_mix(rows, [s for s in slices if s.startswith("source/") and s != f"source/{OTHER}"])
    return None if isinstance(mix, str) else (("all",), mix)


def _estimates(rows: Sequence[SeriesValue]) -> Estimates:
    values, errors, tokens, trajectories = zip(*rows, strict=True)
    return Estimates(
        np.array(values, np.float64), np.array(errors, np.float64), np.array(tokens, np.int64),
        np.array(trajectories, np.int64),
    )  # fmt: skip

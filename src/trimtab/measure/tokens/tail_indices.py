"""Tail indices of w and of 1/w, Pareto k-hat and Hill: is the mean of these weights an estimate at all?

Both directions, because the toxic one in tool-use runs is w near 0, which the usual k-hat cannot see.

Tail index of |log-ratio|: does the most surprising token come from a tail that has a variance, a mean?

Two fits of the same tail, because neither is right for every tail: Hill's needs a power law, the generalised
Pareto also fits light ones (shape 0 is exponential, below 0 bounded). Valid for every ratio: nothing is
reweighted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from trimtab.catalog import bound
from trimtab.measure.state.log_ratios import RATIOS
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.values import Value
from trimtab.stats import ParetoFit, hill, khat_bound, pareto_khat, pareto_tail_size, tail_replicates
from trimtab.typing import Float64

_SIDES = (("upper", "khat", "hill_w"), ("lower", "khat_inverse", "hill_inverse"))


def khat(state: SliceState) -> Iterator[Value]:
    """`<ratio>/khat`, `khat_inverse`, `khat_bound` of mismatch and total; from exact top-k values where they
    reach (up to about 29,000 tokens, and not after a reload from disk), else from the histogram's tail, whose
    bias is smaller than that of a tail cut at 512 (tests/stats/test_pareto.py: worst 0.02 against 0.24 at
    100,000 values)."""
    for name in _observed(state):
        n = state.summaries[f"{name}/sketch"].count
        for side, key, _ in _SIDES:
            fit = _fit(_tail(state, name, side), n)
            yield Value(f"{name}/{key}", fit.khat, n, reason=fit.reason)
        yield Value(f"{name}/khat_bound", khat_bound(n), n)


def tail_indices(state: SliceState) -> Iterator[Value]:
    """`khat` of the slices `MAIN_SLICES`: the same with intervals, and `<ratio>/hill_w`, `hill_inverse`.

    Intervals by trajectory, from the histogram at a fixed cutoff; nan for states written before they held
    `rises`.
    """
    for name in _observed(state):
        sketch = state.summaries[f"{name}/sketch"]
        n, rises, drawn = sketch.count, state.summaries.get(f"{name}/rises"), None
        if rises is not None and n:
            drawn = tail_replicates(sketch, state.summaries[f"{name}/clusters"], rises)
        for side, key, hill_key in _SIDES:
            values = _tail(state, name, side)
            fit, index, margin, factor = _fit(values, n), hill(values, n), math.nan, math.nan
            if drawn is not None:
                drawn = drawn if side == "upper" else drawn.mirrored()
                margin = drawn.gpd_margin(np.exp(drawn.values - drawn.values[0]))
                factor = drawn.hill_factor(drawn.values)
            yield Value(f"{name}/{key}", fit.khat, n, fit.khat - margin, fit.khat + margin, fit.reason)
            reason = index.reason.replace("equal values", "equal weights")
            yield Value(f"{name}/{hill_key}", index.hill, n, index.hill / factor, index.hill * factor, reason)
        yield Value(f"{name}/khat_bound", khat_bound(n), n)


def _observed(state: SliceState) -> list[str]:
    return [name for name, of in RATIOS.items() if "khat" in of.valid and f"{name}/sketch" in state.summaries]


def _fit(values: Float64, n: int) -> ParetoFit:
    """Fit the tail of log w; k-hat is nan where all its weights are 1 within rounding."""
    floor, fit = bound("khat_floor"), pareto_khat(values, n)
    if math.isnan(fit.khat) or np.abs(values).max() >= floor:
        return fit
    return fit._replace(
        khat=math.nan, reason=f"the weights are 1 within {floor:g}: nothing that a tail could change"
    )


def _tail(state: SliceState, name: str, side: str) -> Float64:
    """log w ("upper") or -log w ("lower") of the tail, descending."""
    sketch, top = state.summaries[f"{name}/sketch"], state.summaries.get(f"{name}/{side}")
    size = pareto_tail_size(sketch.count)
    if top is not None and size < top.k:
        return np.asarray(top.values(), dtype=np.float64)
    values: Float64 = sketch.tail_values(side, size + 1)
    return values if side == "upper" else -values


def log_ratio_tail_indices(state: SliceState) -> Iterator[Value]:
    """`<ratio>/hill` and `<ratio>/gpd_shape` of |log-ratio| for every ratio of a batch, from the histogram's
    tail; for the slices `MAIN_SLICES` alone.

    Hill: median over m from M/4 to M, M = min(0.2 n, 3 sqrt n); GPD: the M largest over the next one, Zhang &
    Stephens with ten pseudo-draws at 0.5. Intervals by trajectory. nan with a reason under 25 tokens, for
    equal values, for zeros.
    """
    for name, ratio in RATIOS.items():
        sketch = state.summaries.get(f"{name}/sketch")
        if sketch is None or ratio.sampler == "fixed":  # probes are few
            continue
        n = sketch.count
        with np.errstate(divide="ignore"):
            logs = np.log(sketch.tail_values("size", pareto_tail_size(n) + 1))
        index, shape = hill(logs, n), pareto_khat(logs, n)
        factor = margin = math.nan
        if n and not (math.isnan(index.hill) and math.isnan(shape.khat)):
            drawn = tail_replicates(sketch, state.summaries[f"{name}/clusters"])
            with np.errstate(divide="ignore"):
                factor = drawn.hill_factor(np.log(drawn.values))
            margin = drawn.gpd_margin(drawn.values)
        yield Value(f"{name}/hill", index.hill, n, index.hill / factor, index.hill * factor, index.reason)
        reason = shape.reason.replace("equal weights", "equal values").replace("draws", "values")
        yield Value(f"{name}/gpd_shape", shape.khat, n, shape.khat - margin, shape.khat + margin, reason)

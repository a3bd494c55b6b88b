"""Tail index of |log-ratio|: does the most surprising token come from a tail that has a variance, a mean?

Two fits of the same tail, because neither is right for every tail: Hill's needs a power law, the generalised Pareto
also fits light ones (shape 0 is exponential, below 0 bounded). Valid for every ratio: nothing is reweighted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from trimtab.measure.state.log_ratios import RATIOS
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.types import Value
from trimtab.stats import hill as hill_estimate
from trimtab.stats import pareto_khat, pareto_tail_size, tail_replicates


def hill(state: SliceState) -> Iterator[Value]:
    """`<ratio>/hill` and `<ratio>/gpd_shape` of |log-ratio| for every ratio of a batch, from the histogram's tail; for the
    slices `MAIN_SLICES` alone.

    Hill: median over m from M/4 to M, M = min(0.2 n, 3 sqrt n); GPD: the M largest over the next one, Zhang & Stephens
    with ten pseudo-draws at 0.5. Intervals by trajectory. nan with a reason under 25 tokens, for equal values, for zeros.
    """
    for name, ratio in RATIOS.items():
        sketch = state.parts.get(f"{name}/sketch")
        if sketch is None or ratio.sampler == "fixed":  # probes are few
            continue
        n = sketch.count
        with np.errstate(divide="ignore"):
            logs = np.log(sketch.tail_values("size", pareto_tail_size(n) + 1))
        index, shape = hill_estimate(logs, n), pareto_khat(logs, n)
        factor = margin = math.nan
        if n and not (math.isnan(index.hill) and math.isnan(shape.khat)):
            drawn = tail_replicates(sketch, state.parts[f"{name}/clusters"])
            with np.errstate(divide="ignore"):
                factor = drawn.hill_factor(np.log(drawn.values))
            margin = drawn.gpd_margin(drawn.values)
        yield Value(f"{name}/hill", index.hill, n, index.hill / factor, index.hill * factor, index.reason)
        reason = shape.reason.replace("equal weights", "equal values").replace("draws", "values")
        yield Value(f"{name}/gpd_shape", shape.khat, n, shape.khat - margin, shape.khat + margin, reason)

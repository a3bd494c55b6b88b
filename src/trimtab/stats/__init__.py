"""Mergeable summaries of streams of numbers: constant memory, exact where it can be, the rest with a stated error.

    LogSketch    log-histogram, sums (to 1e-7) and exact extremes of log-ratios, by slice cell
    LogMoments   ESS and E[w], E[w^2] of log-weights of any magnitude
    Moments      mean, variance, extremes of plain values
    EdgeCounts   share of values at the extremes
    TopK         the k largest values, exact
    pareto_khat  tail shape of importance weights, from those
    ClusterTail  bootstrap intervals of quantiles, by trajectory

All obey the merge laws (`summary.py`). Only numpy below.
"""

from trimtab.stats.clusters import ClusterTail, ratio_interval
from trimtab.stats.edges import EdgeCounts
from trimtab.stats.log_moments import LogMoments
from trimtab.stats.log_sketch import LogSketch
from trimtab.stats.moments import Moments
from trimtab.stats.pareto import ParetoFit, khat_bound, pareto_khat, pareto_tail_size
from trimtab.stats.summary import Summary
from trimtab.stats.top_k import TopK

__all__ = [
    "ClusterTail",
    "EdgeCounts",
    "LogMoments",
    "LogSketch",
    "Moments",
    "ParetoFit",
    "Summary",
    "TopK",
    "khat_bound",
    "pareto_khat",
    "pareto_tail_size",
    "ratio_interval",
]

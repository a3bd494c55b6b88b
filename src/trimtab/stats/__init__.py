"""Mergeable summaries of numbers in constant memory, with their estimators.

    LogSketch    log-histogram, sums (to 1e-7) and exact extremes of log-ratios, by slice cell
    LogMoments   ESS and E[w], E[w^2] of log-weights of any magnitude
    Moments      mean, variance, extremes of plain values
    CategoryCounts        counts of exclusive kinds, exact
    ExtremeCounts   share of values at the extremes
    TopK         the k largest values, exact
    FrequentItems  the most frequent texts, with bounds of their counts
    Counts       a small table of whole numbers
    generalized_pareto  tail shape of importance weights, from those
    ClusterTail  bootstrap intervals of quantiles, by trajectory
    two_sample   KS, Wasserstein-1 and the design effect, of two histograms
    bundle       many of them as one run of bytes
    merge_bundles  many bundles merged at once
    hill, tail_replicates  tail index, and intervals of tail statistics, by trajectory

All obey the merge laws (`summary.py`). Only numpy below.
"""

from trimtab.stats.frequent_items import FrequentItems
from trimtab.stats.generalized_pareto import ParetoFit, khat_bound, pareto_khat, pareto_tail_size
from trimtab.stats.summaries.base import Summary
from trimtab.stats.summaries.bulk_merge import merge_bundles
from trimtab.stats.summaries.bulk_serialization import bundle, unbundle
from trimtab.stats.summaries.cluster_tail import ClusterTail, ratio_interval
from trimtab.stats.summaries.counts import CategoryCounts, Counts, ExtremeCounts
from trimtab.stats.summaries.log_sketch import LogSketch
from trimtab.stats.summaries.moments import LogMoments, Moments
from trimtab.stats.summaries.top_k import TopK
from trimtab.stats.tail_bootstrap import TailReplicates, mean_exp_factor, tail_replicates
from trimtab.stats.tail_index import HillFit, hill
from trimtab.stats.two_sample import design_effect, ks_critical, ks_distance, wasserstein1

__all__ = [
    "CategoryCounts",
    "ClusterTail",
    "Counts",
    "ExtremeCounts",
    "FrequentItems",
    "HillFit",
    "LogMoments",
    "LogSketch",
    "Moments",
    "ParetoFit",
    "Summary",
    "TailReplicates",
    "TopK",
    "bundle",
    "design_effect",
    "hill",
    "khat_bound",
    "ks_critical",
    "ks_distance",
    "mean_exp_factor",
    "merge_bundles",
    "pareto_khat",
    "pareto_tail_size",
    "ratio_interval",
    "tail_replicates",
    "unbundle",
    "wasserstein1",
]

"""Stress test of tools: ramps of load, latency quantiles, the knee, and whether an objective holds."""

from __future__ import annotations

from trimtab.tools.stress.call_mix import CallMix, generated_mix, trace_mix
from trimtab.tools.stress.load_loops import LoadPoint, closed_loop, open_loop
from trimtab.tools.stress.load_ramp import Objective, StressOptions, StressResult, run_stress

__all__ = [
    "CallMix",
    "LoadPoint",
    "Objective",
    "StressOptions",
    "StressResult",
    "closed_loop",
    "generated_mix",
    "open_loop",
    "run_stress",
    "trace_mix",
]

"""Tool calls of a run as one row a tool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from trimtab.capture.segments import MAX_NAMES

_RARE = 0.01


def tools_table(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls, share of errors, latency p50 and p99 in seconds, median result size, most used tool first.

    A model makes names up: names beyond the 16 most called, and those with under 1 % of the calls, are gathered under
    `other`, with their number.
    """
    by_tool: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_tool.setdefault(str(row["name"]) or "(no name)", []).append(row)
    total = sum(map(len, by_tool.values()))
    ranked = sorted(by_tool, key=lambda name: -len(by_tool[name]))
    rare = [name for i, name in enumerate(ranked) if i >= MAX_NAMES or len(by_tool[name]) < _RARE * total]
    if len(rare) > 1:
        by_tool[f"other ({len(rare)} names)"] = [row for name in rare for row in by_tool.pop(name)]
    table = []
    for tool, calls in by_tool.items():
        latency = np.array([row["latency_s"] for row in calls], dtype=np.float64)
        known = latency[np.isfinite(latency)]
        table.append({
            "tool": tool,
            "calls": len(calls),
            "error_frac": sum(bool(row["error"]) for row in calls) / len(calls),
            "latency_p50_s": float(np.quantile(known, 0.5)) if known.size else float("nan"),
            "latency_p99_s": float(np.quantile(known, 0.99)) if known.size else float("nan"),
            "result_size_p50": float(np.median([row["result_size"] for row in calls])),
        })  # fmt: skip
    return sorted(table, key=lambda row: -row["calls"])

"""Tool calls of a run as one row a tool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["tools_table"]


def tools_table(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls, share of errors, latency p50 and p99 in seconds, median result size, most used tool first."""
    by_tool: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_tool.setdefault(str(row["name"]), []).append(row)
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

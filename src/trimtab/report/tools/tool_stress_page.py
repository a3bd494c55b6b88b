"""Offline page of a stress test of tools, in the style of the run report; texts of tools are escaped."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab.errors import ToolError
from trimtab.report.html.offline_page import offline_page, write_offline
from trimtab.report.tools.tool_stress_verdict import (
    chaos_lines,
    delay_lines,
    error_rows,
    failed_tools,
    forecast_lines,
    left_out_lines,
    number_text,
    seconds_text,
)

WIDTH, HEIGHT, LEFT, BOTTOM = 420.0, 200.0, 52.0, 26.0
"""Size of a chart and of its margins, in pixels."""


def render_tool_stress(result: Mapping[str, Any]) -> str:
    """Return the page of `tool_stress_verdict`'s result; it refers to nothing outside itself."""
    title = str(result["target"])
    view = tool_stress_view(result)
    return offline_page("tool_stress.html", "tools under load", title, {"view": view})


def tool_stress_view(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the template of tools under load reads, for a page of its own or a part of one."""
    points = [row for row in result["points"] if row["answered"]]
    callers = [row["concurrency"] for row in points]
    charts = [
        _chart("Good calls a second", callers, [("", [row["throughput"] for row in points])], _plain),
        _chart("Latency", callers, [(key[:3], [row[key] for row in points]) for key in ("p50_s", "p99_s")],
               seconds_text),
    ]  # fmt: skip
    return {
        "result": dict(result), "charts": charts, "errors": error_rows(result),
        "failed": failed_tools(result),
        "notes": [*left_out_lines(result["mix"]), *delay_lines(result["open_loop"])],
        "load": [_load_row(row, str(row["concurrency"])) for row in result["points"]]
        + [_load_row(result["open_loop"], f"open, {number_text(result['open_loop']['rate'])}/s")],
        "knee": number_text(result["knee_concurrency"]), "p99": seconds_text(result["open_loop"]["p99_s"]),
        "forecast": forecast_lines(result["forecast"]), "chaos": chaos_lines(result.get("chaos"), result),
    }  # fmt: skip


_TIMES = ("mean_s", "p50_s", "p95_s", "p99_s", "p999_s", "max_s")


def _load_row(row: Mapping[str, Any], label: str) -> dict[str, Any]:
    """A level's row as texts, with the digits that the screen shows."""
    rates = [number_text(row["throughput"]), number_text(row["failed_rate"])]
    errors = f"{100 * row['error_frac']:.2f}%" if row["calls"] + row["not_sent"] else "-"
    return {
        "label": label,
        "cells": [*rates, *(seconds_text(row[key]) for key in _TIMES), errors, f"{row['calls']:,}"],
    }


def write_tool_stress(result: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write the page and return its path; ToolError where that fails."""
    return write_offline(render_tool_stress(result), path, ToolError)


def _chart(
    title: str, callers: Sequence[int], lines: Sequence[tuple[str, list[float]]], text: Any
) -> dict[str, Any]:
    """Polylines over the logarithm of the callers, with ticks at the measured levels and three heights."""
    top = max((value for _, values in lines for value in values if math.isfinite(value)), default=1.0) or 1.0
    widest = math.log2(max(callers, default=1)) or 1.0

    def x(count: int) -> float:
        return round(LEFT + (WIDTH - LEFT - 30) * math.log2(count) / widest, 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 14) * value / top, 1)

    apart = 7.0 if len(lines) > 1 else 0.0  # labels of two lines that end together stay legible
    ticks = [count for count in callers if count & (count - 1) == 0]
    return {
        "title": title, "width": WIDTH, "height": HEIGHT, "left": LEFT,
        "right": WIDTH - 26, "bottom": HEIGHT - BOTTOM,
        "lines": [
            {"name": name, "points": " ".join(f"{x(c)},{y(v)}" for c, v in zip(callers, values, strict=True)),
             "end": (y(values[-1]) if values else 0.0) + apart * (1 - 2 * index), "dashed": index > 0}
            for index, (name, values) in enumerate(lines)
        ],
        "x_ticks": [{"x": x(count), "text": str(count)} for count in ticks],
        "y_ticks": [{"y": y(top * part), "text": text(top * part)} for part in (0.0, 0.5, 1.0)],
    }  # fmt: skip


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or not value else f"{value:.2g}"

"""Offline page of a stress test of tools, in the style of the run report; texts of tools are escaped."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab._version import __version__
from trimtab.errors import ToolError
from trimtab.report.control_characters import escape_controls_json
from trimtab.report.html.templating import render, write_page
from trimtab.report.tools.tool_stress_verdict import (
    chaos_lines,
    error_rows,
    failed_tools,
    forecast_lines,
    seconds_text,
)

WIDTH, HEIGHT, LEFT, BOTTOM = 420.0, 200.0, 52.0, 26.0
"""Size of a chart and of its margins, in pixels."""


def render_tool_stress(result: Mapping[str, Any]) -> str:
    """Return the page of `tool_stress_verdict`'s result; it refers to nothing outside itself."""
    points = [row for row in result["points"] if row["answered"]]
    callers = [row["concurrency"] for row in points]
    charts = [
        _chart("Calls a second", callers, [("", [row["throughput"] for row in points])], _plain),
        _chart("Latency", callers, [(key[:3], [row[key] for row in points]) for key in ("p50_s", "p99_s")],
               seconds_text),
    ]  # fmt: skip
    context = {
        "kind": "tools under load", "title": str(result["target"]), "num_runs": 1,
        "trimtab_version": __version__,
        "generated": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "result": _finite(dict(result)), "charts": charts, "errors": error_rows(result),
        "failed": failed_tools(result),
        "forecast": forecast_lines(result["forecast"]), "chaos": chaos_lines(result.get("chaos"), result),
        "icon_kind": {"held": "healthy", "missed": "unhealthy"}.get(result["verdict"], "not judged yet"),
    }  # fmt: skip
    safe: Any = escape_controls_json(context)
    return render("tool_stress.html", {}, (), ("report.css", "traces.css"), safe)


def write_tool_stress(result: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write the page and return its path; ToolError where that fails."""
    if Path(path).is_dir():
        raise ToolError(f"{path} is a folder; name the page, as in --html stress.html")
    try:
        return write_page(render_tool_stress(result), path)
    except OSError as error:
        raise ToolError(f"{path} cannot be written: {error.strerror or error}") from error


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


def _finite(value: Any) -> Any:
    """The value with None in place of NaN and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value

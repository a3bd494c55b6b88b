"""A line chart of an audit as an inline picture: the reward and what should confirm it, on one axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.report.screen import figure

WIDTH, HEIGHT = 880, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 170, 12, 26
_DASHES = ("", "6 4", "2 3", "8 3 2 3")
_MAX_LINES = 4


def audit_chart(series: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the template draws: lines with their points and labels, and two ticks an axis.

    Args:
        series: `name`, `steps` and `values` each; values that are not finite are left out.

    Example:
        >>> chart = audit_chart([{"name": "reward", "steps": [0, 10], "values": [0.0, 1.0]}])
        >>> chart["lines"][0]["points"]
        '48.0,194.0 710.0,12.0'
    """
    rows = []
    for one in series[:_MAX_LINES]:
        pairs = [(s, v) for s, v in zip(one["steps"], one["values"], strict=True) if math.isfinite(v)]
        if len(pairs) > 1:
            rows.append((str(one["name"]), pairs))
    if not rows:
        return {"lines": [], "ticks": [], "width": WIDTH, "height": HEIGHT}
    steps = [s for _, pairs in rows for s, _ in pairs]
    values = [v for _, pairs in rows for _, v in pairs]
    first, last = int(min(steps)), int(max(steps))
    low, high = float(min(0.0, *values)), float(max(values))

    def x(step: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (step - first) / max(last - first, 1)

    def y(value: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * (value - low) / ((high - low) or 1.0)

    lines = []
    for (name, pairs), dash in zip(rows, _DASHES, strict=False):
        points = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in pairs)
        label = name if len(name) <= 24 else f"{name[:21]}..."
        lines.append({"points": points, "dash": dash, "label": label, "y": y(pairs[-1][1]), "wide": not dash})
    ticks = [
        {"x": _LEFT - 6, "y": y(low) + 4, "text": figure(low), "anchor": "end"},
        {"x": _LEFT - 6, "y": y(high) + 4, "text": figure(high), "anchor": "end"},
        {"x": x(first), "y": HEIGHT - 6, "text": f"step {first}", "anchor": "start"},
        {"x": x(last), "y": HEIGHT - 6, "text": f"step {last}", "anchor": "end"},
    ]
    axis = {"base": y(low), "left": _LEFT, "right": WIDTH - _RIGHT}
    return {"lines": _apart(lines), "ticks": ticks, "width": WIDTH, "height": HEIGHT, **axis}


def _apart(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines with labels that do not lie on each other."""
    taken: list[float] = []
    for line in sorted(lines, key=lambda one: one["y"]):
        line["y"] = max([line["y"], *(height + 15.0 for height in taken[-1:])])
        taken.append(line["y"])
    return lines

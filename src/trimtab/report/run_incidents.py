"""The incidents of a run, with the evidence of its series; as JSON types and as one line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.incidents import Incident, Movement, incidents, onsets
from trimtab.report.run_view import RunView

_SERIES = {"mismatch": "mismatch/p95", "staleness": "staleness/p95", "update": "update/p95"}


def incidents_of(view: RunView) -> list[dict[str, Any]]:
    """Return the incidents of a run as JSON types, in the order they began."""
    spans = onsets(view.alarms)
    moved = {first: _movement(view, first, last) for first, last in spans}
    return [_payload(one) for one in incidents(view.alarms, moved)]


def cause_line(payload: list[dict[str, Any]]) -> str:
    """Return the likeliest cause of the last incident, with its evidence; empty where there is none."""
    causes = [cause for incident in payload[-1:] for cause in incident["causes"] if cause["score"] > 0]
    if not causes:
        return ""
    first = [cause for cause in causes if cause["score"] == causes[0]["score"]]
    names, evidence = (" or ".join(c["name"] for c in first), "; ".join(first[0]["evidence_for"]))
    return f"likely cause: {names} ({evidence})"


def incident_lines(payload: list[dict[str, Any]]) -> list[str]:
    """Return every incident with the order of its alarms and its hypotheses, in full."""
    lines = []
    for incident in payload:
        order = ", ".join(f"{a['rule']} {a['step']}" for a in incident["alarms"])
        lines.append(f"  incident since step {incident['since']} (slice {incident['slice']}): {order}")
        for cause in incident["causes"]:
            against = (
                f"; against: {'; '.join(cause['evidence_against'])}" if cause["evidence_against"] else ""
            )
            lines.append(f"    {cause['name']}: for: {'; '.join(cause['evidence_for'])}{against}")
            lines.append(f"      to tell: {cause['test']}")
    return lines


def _movement(view: RunView, first: int, last: int) -> Mapping[str, Movement]:
    """How the quantities moved in the slice where they moved most."""
    moved: dict[str, Movement] = {}
    for name, key in _SERIES.items():
        for slice_name in ("post_tool", "text", "all"):
            if (arrays := view.step_series.get((key, slice_name))) is None:
                continue
            one = Movement(*_levels(arrays.steps, arrays.values, first, last))
            known = moved.get(name)
            if known is None or not one.during <= known.during:
                moved[name] = one
    lag = [reading for reading in view.series("policy_lag/mean", "all") if reading.status == "ok"]
    if lag:
        steps, values = (np.array(column) for column in zip(*((r.step, r.value) for r in lag), strict=True))
        moved["lag"] = Movement(*_levels(steps, values, first, last))
    return moved


def _levels(steps: Any, values: Any, first: int, last: int) -> tuple[float, float]:
    """Median of the steps before an incident, and the 90th percentile of those in it."""
    before = values[(steps < first) & (steps >= first - bound("incident_gap"))]
    during = values[(steps >= first) & (steps <= last)]
    return (
        float(np.median(before)) if before.size else math.nan,
        float(np.quantile(during, 0.9, method="higher")) if during.size else math.nan,
    )


def _payload(incident: Incident) -> dict[str, Any]:
    return {
        "since": incident.since,
        "slice": incident.slice,
        "severity": incident.severity,
        "alarms": [
            {"rule": a.rule, "step": a.step, "slice": a.slice, "severity": a.severity}
            for a in incident.alarms
        ],
        "causes": [{**asdict(cause), "score": cause.score} for cause in incident.causes],
    }

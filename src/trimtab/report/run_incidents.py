"""The incidents of a run, with the evidence of its series; as JSON types and as one line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from trimtab.detect.incidents import incidents, onsets
from trimtab.detect.movement import Levels, Movement, movements
from trimtab.report.run_view import RunView
from trimtab.types import Alarm, Incident


def incidents_of(view: RunView) -> list[dict[str, Any]]:
    """Return the incidents of a run as JSON types, in the order they began."""
    return [_payload(one) for one in incidents_at(view, view.alarms)]


def incidents_at(view: RunView, alarms: Sequence[Alarm], now: float = math.inf) -> list[Incident]:
    """Return what is known of the incidents of `alarms`, by the evidence of the steps up to `now`."""
    moved = {first: _movement(view, first, last, now) for first, last in onsets(alarms)}
    return incidents(alarms, moved)


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


def _movement(view: RunView, first: int, last: int, now: float) -> Mapping[str, Movement]:
    def series(key: str, slice_name: str) -> Levels | None:
        arrays = view.step_series.get((key, slice_name))
        if arrays is None:
            return None
        known = arrays.steps <= now
        return Levels(arrays.steps[known], arrays.values[known])

    lag = [r for r in view.series("policy_lag/mean", "all") if r.status == "ok" and r.step <= now]
    ages = Levels(np.array([r.step for r in lag], np.int64), np.array([r.value for r in lag], np.float64))
    names = sorted({name for _, name in view.step_series})
    return movements(series, ages, first, last, slices=names)


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

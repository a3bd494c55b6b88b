"""What the live terminal view shows of a run, as plain values."""

from __future__ import annotations

import math
import time
from typing import Any

from trimtab.report.averages import averages_of
from trimtab.report.ranks.machine_view import machine_line
from trimtab.report.run_ending import ending_of
from trimtab.report.run_tables import guard_line
from trimtab.report.run_view import RunView
from trimtab.traces.core.plural import counted

_HISTORY = 60


def live_state(view: RunView) -> dict[str, Any]:
    """Name, verdict, last step and its age, the latest aggregates and tails, their short history, alarms."""
    steps = view.steps
    last = steps[-1] if steps else {}
    age = max(0.0, time.time() - last["time"]) if steps else math.nan
    averages = averages_of(view)
    latest = {n: averages[n].value[-1] if n in averages else math.nan for n in ("reward", "kl", "entropy")}
    return {
        "name": view.name,
        "verdict": view.verdict.word,
        "reason": view.verdict.reason,
        "step": last.get("step", -1),
        "updated_s": age,
        "ending": ending_of(view.reader, steps),
        **latest,
        "text_p99": _last(view, "drift/p99", "text"),
        "post_tool_p99": _last(view, "drift/p99", "post_tool"),
        "history": {
            "post_tool_p99": _history(view, "drift/p99", "post_tool"),
            "text_p99": _history(view, "drift/p99", "text"),
            "reward": averages["reward"].value[-_HISTORY:] if "reward" in averages else [],
        },
        "alarms": [
            {"rule": a.rule, "step": a.step, "severity": a.severity, "slice": a.slice, "hidden": a.hidden}
            for a in view.alarms
        ],
        "machine": machine_line(view.machine.summary()),
        "guard": guard_line(view.actions, view.reader.header["config"]),
        "not_observed": [f"{what}: {why}" for what, why in sorted(view.not_observed.items())],
        "notes": [
            f"the monitor failed {counted(len(view.errors), 'time')}: {e['error']}" for e in view.errors[-1:]
        ],
    }


def _last(view: RunView, key: str, name: str) -> float:
    readings = view.series(key, name)
    return readings[-1].value if readings else math.nan


def _history(view: RunView, key: str, name: str) -> list[float]:
    return [reading.value for reading in view.series(key, name)[-_HISTORY:]]

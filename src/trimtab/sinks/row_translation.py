"""Rows of the run store to records of sinks; a live run and an export use the same translation.

Rows are rounded as the store rounds them, so a sink gets the numbers that a reader of the folder gets. A
reading that was not observed gives no point. NaN and infinity that were measured give one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from trimtab.errors import SummaryError
from trimtab.measure.steps.series_row import series_from_row
from trimtab.runs.action_rows import action_text
from trimtab.runs.schema import compact
from trimtab.sinks.incident_log import IncidentLog
from trimtab.sinks.sink import Event, IncidentChange, Point, StepRecord
from trimtab.sinks.slice_histograms import row_histograms
from trimtab.types import Incident, Severity

Row = dict[str, Any]
METRICS, NONFINITE, SERIES = "metrics", "nonfinite", "step"
"""Slice of the trainer's numbers and of counts of NaN and infinity; first part of a series' key."""


@dataclass(frozen=True, eq=False)
class StoredStep:
    """Rows that were written since the last step, that step's row among them, and the incidents so far."""

    step: int
    rows: Sequence[tuple[str, Row]]  # kind and row
    incidents: Sequence[Incident] = ()

    @cached_property
    def record(self) -> StepRecord:
        """The record without incidents, translated once for all sinks, in the thread of the first."""
        rows = [(kind, row if kind == "states" else compact(row)) for kind, row in self.rows]
        time_s = next((float(row["time"]) for kind, row in rows if kind in ("steps", "end")), 0.0)
        histograms = [one for kind, row in rows if kind == "states" for one in row_histograms(row)]
        points, events = points_of(rows), events_of(rows)
        return StepRecord(self.step, time_s, tuple(points), tuple(histograms), tuple(events))


@dataclass
class Translation:
    """Turns `StoredStep`s of one run into records. One a sink: it remembers which incidents it has seen."""

    run_id: str
    _log: IncidentLog = field(init=False)

    def __post_init__(self) -> None:
        """Begin with no incident seen."""
        self._log = IncidentLog(self.run_id)

    def record(self, stored: StoredStep) -> StepRecord:
        """Return what a sink is handed of a step.

        Example:
            record = Translation(run_id).record(StoredStep(3, [("steps", row)]))
        """
        changes = tuple(self._log.changes(stored.step, stored.incidents))
        events = (*stored.record.events, *(incident_event(change) for change in changes))
        return replace(stored.record, events=events, changes=changes)


def points_of(rows: Iterable[tuple[str, Row]]) -> list[Point]:
    """Return the numbers of rows of one step.

    Args:
        rows: pairs of a kind and a row, as the store has them.

    Returns:
        One point for each reading, series and slice, metric, and count of NaN or infinity.

    Example:
        >>> points_of([("steps", {"metrics": {"reward": 0.5}, "nonfinite": {"logprobs": 2}})])
        [Point(slice='metrics', key='reward', value=0.5), Point(slice='nonfinite', key='logprobs', value=2.0)]
    """
    points: list[Point] = []
    for kind, row in rows:
        if kind == "readings":
            points += _readings(row)
        elif kind == "series":
            points += _series(row)
        elif kind == "steps":
            points += [Point(METRICS, key, _number(value)) for key, value in row["metrics"].items()]
            points += [Point(NONFINITE, key, float(value)) for key, value in row["nonfinite"].items()]
    return points


def _readings(row: Row) -> list[Point]:
    numbers = ((key, _number(value)) for key, value in row["values"].items())
    return [
        Point(row["slice"], key, value)
        for key, value in numbers
        if not (row["reasons"].get(key) and math.isnan(value))  # not observed
    ]


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _series(row: Row) -> list[Point]:
    try:
        series = series_from_row(row)
    except SummaryError:
        return []
    return [
        Point(slice_name, f"{SERIES}/{name}", float(series.values[i, j]))
        for i, name in enumerate(series.names)
        for j, slice_name in enumerate(series.slices)
        if series.num_trajectories[i, j]
    ]


def events_of(rows: Iterable[tuple[str, Row]]) -> list[Event]:
    """Return what a person reads of rows: alarms, actions of the guard, failures of the monitor, the end.

    Args:
        rows: pairs of a kind and a row.

    Returns:
        Events in the order of the rows.

    Example:
        >>> events_of([("end", {"reason": "finished", "detail": {}, "step": 3})])
        [Event(kind='end', severity='info', title='the run ended: finished', text='')]
    """
    return [event for kind, row in rows if (event := _event(kind, row)) is not None]


def _event(kind: str, row: Row) -> Event | None:
    if kind == "alarms":
        severity: Severity = row["severity"] if row["event"] != "cleared" else "info"
        title = f"alarm {row['rule']} {row['event']} (slice {row['slice']}, since step {row['since']})"
        return Event("alarm", severity, title, f"{row['why']} {row['advice']}")
    if kind == "actions":
        dry = " (not done: the guard observes)" if row["dry_run"] else ""
        return Event("action", "warning", f"guard: {action_text(row)}{dry}", row["note"])
    if kind == "errors":
        return Event("failure", "warning", f"the monitor failed: {row['where']}", row["error"])
    if kind == "end":
        detail = row["detail"].get("error", "")
        calm: Severity = "info" if row["reason"] in ("finished", "closed") else "warning"
        return Event("end", calm, f"the run ended: {row['reason']}", str(detail))
    return None


def incident_event(change: IncidentChange) -> Event:
    """Return a change of an incident as an event.

    Args:
        change: what changed.

    Returns:
        Title: change, onset and slice. Text: likely cause and the rules that spoke.

    Example:
        incident_event(record.changes[0]).title  # 'incident opened (slice post_tool, since step 73)'
    """
    row = change.row
    cause = f"likely cause: {row['cause']} ({'; '.join(row['evidence'])}). " if row["cause"] else ""
    severity: Severity = "info" if change.change == "resolved" else row["severity"]
    title = f"incident {change.change} (slice {row['slice']}, since step {row['since']})"
    return Event("incident", severity, title, f"{cause}rules: {', '.join(row['rules'])}")

"""The incidents of a live run, with the same causes as a report on its folder gives."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.incidents import evidence_of, incidents, onsets
from trimtab.detect.movement import Levels, has_risen, movements
from trimtab.measure.steps.series_history import SeriesHistory
from trimtab.measure.steps.step_series import StepSeries
from trimtab.types import Alarm, Incident, Reading

MAX_STEPS = 512
"""Steps of evidence that are kept (default, not calibrated)."""

_LAG = "policy_lag/mean"


class LiveIncidents:
    """Collects the evidence of the last steps; `of` gathers alarms into incidents.

    Example:
        live.add_series(series)
        for incident in live.of(pipeline.alarms): print(incident.causes)
    """

    def __init__(self, max_steps: int = MAX_STEPS) -> None:
        self._series = SeriesHistory(max_steps)
        self._lag: deque[tuple[int, float]] = deque(maxlen=max_steps)
        self._slices: set[str] = set()
        self._alarms: list[Alarm] = []
        self._incidents: list[Incident] = []

    def add_series(self, series: StepSeries) -> None:
        """Take the series of one step."""
        self._series.append(series)
        self._slices.update(series.slices)

    def add_readings(self, readings: Iterable[Reading]) -> None:
        """Take the readings that closed at one step."""
        self._lag.extend(
            (one.step, one.value)
            for one in readings
            if (one.key, one.slice) == (_LAG, "all") and one.status == "ok"
        )

    def of(self, alarms: Sequence[Alarm]) -> list[Incident]:
        """Return the incidents of a run's alarms so far, in the order they began.

        Args:
            alarms: all alarms of the run, notes and cleared ones included.
        """
        if list(alarms) != self._alarms or self._is_fresh():
            self._alarms = list(alarms)
            lag = self._ages()
            moved = {
                first: movements(self._levels, lag, first, last, slices=sorted(self._slices))
                for first, last in onsets(self._alarms)
            }
            self._incidents = incidents(self._alarms, moved)
        return self._incidents

    def lasts(self, incident: Incident) -> bool:
        """Return whether the evidence of an incident's likeliest cause still stands, at the last steps.

        A quantity that rose with it is compared with what it was before the incident, now as then.
        """
        latest, cause = self._series.latest, next((one for one in incident.causes if one.score > 0), None)
        if latest is None or cause is None:
            return False
        names = evidence_of(cause.name)
        lag = self._ages()
        moved = movements(
            self._levels, lag, incident.since, latest.step, slices=sorted(self._slices), only=names
        )
        return any(has_risen(moved.get(name), name) for name in names)

    def _ages(self) -> Levels:
        steps = np.array([step for step, _ in self._lag], np.int64)
        return Levels(steps, np.array([value for _, value in self._lag], np.float64))

    def _is_fresh(self) -> bool:
        """Whether the last steps still add evidence to the last incident."""
        latest = self._series.latest
        last = max((alarm.step for alarm in self._alarms), default=None)
        return latest is not None and last is not None and latest.step <= last + bound("incident_after")

    def _levels(self, key: str, slice_name: str) -> Levels | None:
        arrays = self._series.arrays(key, slice_name)
        return Levels(arrays.steps, arrays.values) if arrays.steps.size else None

"""MLflow: one of its runs for each run folder, found again by a tag."""

from __future__ import annotations

import math
from typing import Any

from trimtab.sinks.point_names import MLFLOW, legal_name
from trimtab.sinks.sink import ROOT, Event, SinkRun, StepRecord
from trimtab.sinks.tracker_libraries import tracker_library

MAX_METRICS, MAX_TAGS, MAX_TEXT = 1_000, 100, 5_000
"""Metrics and tags of one call, and characters of a tag.

Reference: https://mlflow.org/docs/latest/rest-api.html#log-batch
"""
_RUN_TAG = f"{ROOT}.run_id"


class MlflowSink:
    """Logs to an MLflow tracking server or to a file of SQLite.

    MLflow stores float64, and NaN by a flag of its own. Infinity it would turn into the largest float, so an
    infinite number is left out and counted. It has no histograms of counts: none are sent. Events become tags
    `trimtab.event.<step>.<number>`.

    Example:
        trimtab.open_run("runs/exp1", sinks=[MlflowSink("sqlite:///mlflow.db")])
    """

    name = "mlflow"

    def __init__(self, uri: str | None = None, experiment: str = ROOT) -> None:
        self.uri, self.experiment = uri, experiment
        self._run_id = ""

    def open(self, run: SinkRun) -> None:
        """Find the MLflow run of this run folder, or create it."""
        self._entities = tracker_library("mlflow.entities")
        self._client: Any = tracker_library("mlflow.tracking").MlflowClient(tracking_uri=self.uri)
        known = self._client.get_experiment_by_name(self.experiment)
        where = known.experiment_id if known else self._client.create_experiment(self.experiment)
        runs = self._client.search_runs([where], f"tags.`{_RUN_TAG}` = '{run.run_id}'", max_results=1)
        if runs:
            self._run_id = runs[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
            return
        tags = {_RUN_TAG: run.run_id}
        self._run_id = self._client.create_run(where, run_name=run.name, tags=tags).info.run_id

    def write(self, record: StepRecord) -> int:
        """Log the points of a record; return how many are infinite."""
        finite = [point for point in record.points if not math.isinf(point.value)]
        time_ms = int(record.time * 1_000)
        metrics = [
            self._entities.Metric(legal_name(point.name, MLFLOW), point.value, time_ms, record.step)
            for point in finite
        ]
        tags = [
            self._entities.RunTag(f"{ROOT}.event.{record.step}.{i}", _event_text(event))
            for i, event in enumerate(record.events)
        ]
        for start in range(0, len(metrics), MAX_METRICS):
            self._client.log_batch(self._run_id, metrics=metrics[start : start + MAX_METRICS])
        for start in range(0, len(tags), MAX_TAGS):
            self._client.log_batch(self._run_id, tags=tags[start : start + MAX_TAGS])
        return len(record.points) - len(finite)

    def flush(self) -> None:
        """Do nothing: each call is written."""

    def close(self) -> None:
        """Mark the MLflow run as finished."""
        if self._run_id:
            self._client.set_terminated(self._run_id)


def _event_text(event: Event) -> str:
    return f"{event.severity}: {event.title}. {event.text}"[:MAX_TEXT]

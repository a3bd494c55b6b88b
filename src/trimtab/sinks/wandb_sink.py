"""Weights & Biases: a run of its own beside the trainer's, so that neither moves the other's step counter."""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np

from trimtab.sinks.point_names import PLAIN, legal_name
from trimtab.sinks.sink import ROOT, SinkRun, StepRecord
from trimtab.sinks.tracker_libraries import tracker_library

STEP = f"{ROOT}/step"
"""Metric that is the x axis of all others: records of one step may come in two parts."""
_LOGIN_S = 10


class WandbSink:
    """Logs to W&B in a run of its own, named after the run folder.

    W&B stores numbers in JSON with all their digits, NaN and infinity too. Without `mode` the environment
    decides (`WANDB_MODE`); offline files go to W&B later with `wandb sync`.

    Example:
        trimtab.open_run("runs/exp1", sinks=[WandbSink("my-project")])
    """

    name = "wandb"

    def __init__(
        self,
        project: str = ROOT,
        folder: str | os.PathLike[str] | None = None,
        mode: Literal["online", "offline"] | None = None,
    ) -> None:
        self.project, self.folder, self.mode = project, folder, mode
        self._run: Any = None

    def open(self, run: SinkRun) -> None:
        """Begin a run of W&B, or continue the one of an earlier session."""
        self._wandb = tracker_library("wandb")
        if self.folder is not None:
            os.makedirs(self.folder, exist_ok=True)
        offline = (self.mode or os.environ.get("WANDB_MODE")) == "offline"
        settings = self._wandb.Settings(
            console="off", x_disable_stats=True, disable_code=True, disable_git=True, silent=True,
            login_timeout=_LOGIN_S,
        )  # fmt: skip
        self._run = self._wandb.init(
            project=self.project, name=run.name, id=f"{ROOT}-{run.run_id}", config=dict(run.config),
            dir=None if self.folder is None else os.fspath(self.folder), mode=self.mode, job_type=ROOT,
            reinit="create_new", resume=None if offline else "allow", settings=settings,
        )  # fmt: skip
        self._run.define_metric(STEP, hidden=True)
        self._run.define_metric(f"{ROOT}/*", step_metric=STEP)

    def write(self, record: StepRecord) -> int:
        """Log one row; it takes every number."""
        row: dict[str, Any] = {legal_name(point.name, PLAIN): point.value for point in record.points}
        for one in record.histograms:
            bins = (one.counts, np.asarray(one.bins))
            row[legal_name(one.name, PLAIN)] = self._wandb.Histogram(np_histogram=bins)
        if record.events:
            row[f"{ROOT}/events"] = "\n".join(f"{event.title}. {event.text}" for event in record.events)
        if row:
            self._run.log({STEP: record.step, **row})
        return 0

    def flush(self) -> None:
        """Do nothing: W&B's own process writes."""

    def close(self) -> None:
        """Finish the run of W&B."""
        if self._run is not None:
            self._run.finish()
        self._run = None

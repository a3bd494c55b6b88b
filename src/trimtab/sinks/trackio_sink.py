"""trackio: a local SQLite file, or a Space of Hugging Face by its environment variables."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import SinkError
from trimtab.sinks.point_names import PLAIN, legal_name
from trimtab.sinks.sink import ROOT, SinkRun, StepRecord
from trimtab.sinks.tracker_libraries import tracker_library

_LEVELS = {"info": "INFO", "warning": "WARN", "critical": "ERROR"}
_FOLDER = "TRACKIO_DIR"


class TrackioSink:
    """Logs to trackio; show it with `trackio show --project PROJECT`.

    trackio stores float64 in JSON; NaN and infinity as text that it reads back as numbers. Incidents become
    alerts of trackio.

    Example:
        trimtab.open_run("runs/exp1", sinks=[TrackioSink("my-project")])
    """

    name = "trackio"

    def __init__(self, project: str = ROOT, folder: str | os.PathLike[str] | None = None) -> None:
        self.project, self.folder = project, folder
        self._run: Any = None

    def open(self, run: SinkRun) -> None:
        """Begin a run of trackio, or continue the one of an earlier session."""
        if self.folder is not None:
            self._choose_folder(Path(self.folder))
        self._trackio = tracker_library("trackio")
        config = {key: value for key, value in run.config.items() if not key.startswith("_")}
        self._run = self._trackio.init(
            self.project, name=f"{run.name}-{run.run_id[:8]}", config=config, resume="allow", embed=False,
            auto_log_gpu=False, auto_log_cpu=False,
        )  # fmt: skip

    def write(self, record: StepRecord) -> int:
        """Log one row; it takes every number."""
        row: dict[str, Any] = {legal_name(point.name, PLAIN): point.value for point in record.points}
        for one in record.histograms:
            bins = (one.counts, np.asarray(one.bins))
            row[legal_name(one.name, PLAIN)] = self._trackio.Histogram(np_histogram=bins)
        others = [f"{event.title}. {event.text}" for event in record.events if event.kind != "incident"]
        if others:
            row[f"{ROOT}/events"] = "\n".join(others)
        if row:
            self._run.log(row, step=record.step)
        for event in record.events:
            if event.kind == "incident":
                level = self._trackio.AlertLevel[_LEVELS[event.severity]]
                self._run.alert(title=event.title, text=event.text, level=level)
        return 0

    def flush(self) -> None:
        """Do nothing: trackio's own thread writes twice a second."""

    def close(self) -> None:
        """Finish the run of trackio, which waits for its thread."""
        if self._run is not None:
            self._trackio.finish()  # of this thread: it forgets the run too
        self._run = None

    @staticmethod
    def _choose_folder(folder: Path) -> None:
        """Have trackio write to `folder`, which it reads off the environment when it is imported."""
        loaded = sys.modules.get("trackio.utils")
        if loaded is None:
            os.environ[_FOLDER] = os.fspath(folder)
        elif Path(loaded.TRACKIO_DIR).resolve() != folder.resolve():
            raise SinkError(
                f"trackio is loaded and writes to {loaded.TRACKIO_DIR}: set {_FOLDER}={folder} before it is "
                "imported"
            )

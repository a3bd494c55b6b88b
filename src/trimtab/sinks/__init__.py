"""Sinks: the user's own trackers, fed in threads of their own, and a recorded run replayed into one."""

from trimtab.sinks.addresses import SelectedNames, open_sinks
from trimtab.sinks.mlflow_sink import MlflowSink
from trimtab.sinks.sink import Event, IncidentChange, Point, Sink, SinkRun, SliceHistogram, StepRecord
from trimtab.sinks.sink_feed import SinkFeed
from trimtab.sinks.sink_worker import SinkCounts, SinkWorker
from trimtab.sinks.tensorboard_sink import TensorBoardSink
from trimtab.sinks.trackio_sink import TrackioSink
from trimtab.sinks.wandb_sink import WandbSink

__all__ = [
    "Event",
    "IncidentChange",
    "MlflowSink",
    "Point",
    "SelectedNames",
    "Sink",
    "SinkCounts",
    "SinkFeed",
    "SinkRun",
    "SinkWorker",
    "SliceHistogram",
    "StepRecord",
    "TensorBoardSink",
    "TrackioSink",
    "WandbSink",
    "open_sinks",
]

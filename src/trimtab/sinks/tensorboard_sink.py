"""TensorBoard: event files, without TensorFlow or torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from trimtab.sinks.point_names import PLAIN, legal_name
from trimtab.sinks.sink import Event, SinkRun, SliceHistogram, StepRecord
from trimtab.sinks.tracker_libraries import tracker_library


class TensorBoardSink:
    """Writes scalars, histograms and texts to `<folder>/<run>`: `tensorboard --logdir FOLDER` shows them.

    TensorBoard stores scalars as float32, NaN and infinity too. Where a run goes back to an earlier step, a
    session mark has TensorBoard drop what the run superseded.

    Example:
        trimtab.open_run("runs/exp1", sinks=[TensorBoardSink("tb")])
    """

    name = "tensorboard"

    def __init__(self, folder: str | os.PathLike[str] = "tensorboard") -> None:
        self.folder = Path(folder)
        self._writer: Any = None
        self._last_step = -1

    def open(self, run: SinkRun) -> None:
        """Begin an event file."""
        files = tracker_library("tensorboard.summary.writer.event_file_writer")
        self._event = tracker_library("tensorboard.compat.proto.event_pb2")
        self._summary = tracker_library("tensorboard.compat.proto.summary_pb2")
        self._tensor = tracker_library("tensorboard.compat.proto.tensor_pb2")
        self._types = tracker_library("tensorboard.compat.proto.types_pb2")
        self._writer = files.EventFileWriter(str(self.folder / run.name))

    def write(self, record: StepRecord) -> int:
        """Write one event; it takes every number."""
        if record.step < self._last_step:
            mark = self._event.SessionLog(status=self._event.SessionLog.START)
            self._writer.add_event(
                self._event.Event(wall_time=record.time, step=record.step, session_log=mark)
            )
        self._last_step = record.step
        values = [
            self._summary.Summary.Value(tag=legal_name(point.name, PLAIN), simple_value=point.value)
            for point in record.points
        ]
        values += [self._histogram(one) for one in record.histograms]
        values += [self._text(event) for event in record.events]
        if values:
            summary = self._summary.Summary(value=values)
            self._writer.add_event(
                self._event.Event(wall_time=record.time, step=record.step, summary=summary)
            )
        return 0

    def flush(self) -> None:
        """Write to the disk."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def _histogram(self, one: SliceHistogram) -> Any:
        proto = self._summary.HistogramProto(
            min=one.low, max=one.high, num=float(one.counts.sum()), sum=one.total, sum_squares=one.squares,
            bucket_limit=[float(one.bins[0]), *one.bins[1:].tolist()],
            bucket=[0.0, *one.counts.astype(float).tolist()],
        )  # fmt: skip
        return self._summary.Summary.Value(tag=legal_name(one.name, PLAIN), histo=proto)

    def _text(self, event: Event) -> Any:
        plugin = self._summary.SummaryMetadata.PluginData(plugin_name="text")
        text = f"{event.title}\n\n{event.text}".encode()
        tensor = self._tensor.TensorProto(
            dtype=self._types.DT_STRING, string_val=[text],
            tensor_shape={"dim": [{"size": 1}]},
        )  # fmt: skip
        metadata = self._summary.SummaryMetadata(plugin_data=plugin)
        return self._summary.Summary.Value(
            tag=f"trimtab/{event.kind}/text_summary", metadata=metadata, tensor=tensor
        )

"""Sinks by name: `tensorboard:tb`, `wandb:my-project`, `mlflow:sqlite:///mlflow.db`, `trackio:my-project`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from trimtab.errors import SinkError
from trimtab.sinks.mlflow_sink import MlflowSink
from trimtab.sinks.sink import Sink, SinkRun, StepRecord
from trimtab.sinks.tensorboard_sink import TensorBoardSink
from trimtab.sinks.tracker_libraries import TRACKERS, require_tracker
from trimtab.sinks.trackio_sink import TrackioSink
from trimtab.sinks.wandb_sink import WandbSink

_MAKERS: dict[str, Callable[..., Sink]] = {
    "wandb": WandbSink,
    "tensorboard": TensorBoardSink,
    "mlflow": MlflowSink,
    "trackio": TrackioSink,
}


def open_sinks(sinks: Iterable[str | Sink] | None) -> tuple[Sink, ...]:
    """Return sinks of names or of objects, in order.

    Args:
        sinks: names as `tensorboard:FOLDER`, `wandb[:PROJECT]`, `mlflow[:URI]`, `trackio[:PROJECT]`, or
            objects that have the methods of `Sink`; None for none.

    Returns:
        The sinks, not connected yet.

    Raises:
        SinkError: a name is unknown, its library is not installed, two sinks share a name, or an object
            lacks a method.

    Example:
        >>> [sink.name for sink in open_sinks(["tensorboard:tb"])]
        ['tensorboard']
    """
    if sinks is None:
        return ()
    if isinstance(sinks, str):
        raise SinkError(f"sinks is a list, as sinks=[{sinks!r}]")
    opened = tuple(_named(one) if isinstance(one, str) else _checked(one) for one in sinks)
    names = [sink.name for sink in opened]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SinkError(f"two sinks are called {twice[0]!r}: give each its own `name`")
    return opened


def _named(text: str) -> Sink:
    name, colon, target = text.partition(":")
    if name not in _MAKERS:
        raise SinkError(f"unknown sink {name!r}; one of {', '.join(TRACKERS)}, or an object with its methods")
    if colon and not target:
        raise SinkError(f"sink {text!r} names no target after the colon, as tensorboard:tb")
    require_tracker(name)
    return _MAKERS[name](target) if target else _MAKERS[name]()


def _checked(sink: object) -> Sink:
    if not isinstance(sink, Sink) or not isinstance(sink.name, str):
        wanted = "a name, open, write, flush and close"
        raise SinkError(f"{type(sink).__name__} is not a sink: it needs {wanted} (trimtab.sinks.Sink)")
    return sink


class SelectedNames:
    """A sink that hands only some numbers on to another one: fewer curves, fewer rows.

    Example:
        SelectedNames(MlflowSink("sqlite:///mlflow.db"), ["trimtab/metrics/*", "trimtab/post_tool/*"])
    """

    def __init__(self, sink: Sink, patterns: Sequence[str]) -> None:
        self.sink, self.patterns, self.name = sink, tuple(patterns), sink.name

    def open(self, run: SinkRun) -> None:
        """Open the other sink."""
        self.sink.open(run)

    def write(self, record: StepRecord) -> int:
        """Hand on the points and histograms whose names fit a pattern, and all events."""
        return self.sink.write(selected(record, self.patterns))

    def flush(self) -> None:
        """Flush the other sink."""
        self.sink.flush()

    def close(self) -> None:
        """Close the other sink."""
        self.sink.close()

    def abandon(self) -> None:
        """Abandon the other sink, where it has processes to end."""
        abandon = getattr(self.sink, "abandon", None)
        if abandon is not None:
            abandon()


def selected(record: StepRecord, patterns: Sequence[str]) -> StepRecord:
    """Return a record with the points and histograms whose names fit a pattern, and all its events.

    Args:
        record: of one step.
        patterns: as `trimtab/post_tool/*`; `*` fits slashes too.

    Returns:
        The record.

    Example:
        >>> from trimtab.sinks.sink import Point
        >>> record = StepRecord(3, 0.0, (Point("all", "drift/p99", 0.5), Point("metrics", "loss", 1.0)))
        >>> [point.key for point in selected(record, ["*/metrics/*"]).points]
        ['loss']
    """

    def fits(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    points = tuple(point for point in record.points if fits(point.name))
    histograms = tuple(one for one in record.histograms if fits(one.name))
    return replace(record, points=points, histograms=histograms)

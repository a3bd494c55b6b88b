"""The Protocol of a sink, and what it is handed: one record a step.

A sink is a place outside of the run folder where the numbers of a run go: a tracker, or alerts. It translates
a `StepRecord` to its library and does nothing else. It runs in a thread of its own (`sink_worker`), so it may
be slow, fail or hang.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from trimtab.types import Severity
from trimtab.typing import Float64, Int64

ROOT = "trimtab"
"""First part of every name in a tracker, so that its own metrics stay apart."""

Change = Literal["opened", "worse", "resolved", "reopened"]


class Point(NamedTuple):
    """One number of one step. `slice` is `metrics` for the trainer's own numbers."""

    slice: str
    key: str
    value: float

    @property
    def name(self) -> str:
        """Its name before a tracker's own rules.

        >>> Point("post_tool/search", "drift/p99", 0.5).name
        'trimtab/post_tool/search/drift/p99'
        """
        return f"{ROOT}/{self.slice}/{self.key}"


@dataclass(frozen=True, eq=False)
class SliceHistogram:
    """A stored log-ratio of one slice over some steps, as counts between edges; nats."""

    slice: str
    key: str
    bins: Float64  # (n + 1,) ascending, finite
    counts: Int64  # (n,)
    low: float  # smallest value
    high: float  # largest value
    total: float  # sum of the values
    squares: float  # sum of their squares

    @property
    def name(self) -> str:
        """Its name before a tracker's own rules."""
        return f"{ROOT}/{self.slice}/{self.key}/histogram"


class Event(NamedTuple):
    """Something that a person reads: an alarm, an incident, an action of the guard, how the run ended."""

    kind: str
    severity: Severity
    title: str
    text: str


@dataclass(frozen=True)
class IncidentChange:
    """An incident began, became worse, was resolved or came back."""

    change: Change
    identity: str  # the same in every process and after every resume
    step: int
    row: Mapping[str, Any]  # as `runs.action_rows.incident_row`


@dataclass(frozen=True)
class StepRecord:
    """What one flushed step gives to a sink."""

    step: int
    time: float  # seconds since 1970, of the step
    points: tuple[Point, ...] = ()
    histograms: tuple[SliceHistogram, ...] = ()
    events: tuple[Event, ...] = ()
    changes: tuple[IncidentChange, ...] = ()


@dataclass(frozen=True)
class SinkRun:
    """The run that a sink is opened for."""

    run_id: str
    name: str
    folder: Path
    config: Mapping[str, Any]


@runtime_checkable
class Sink(Protocol):
    """A tracker or another receiver. All methods are called in one thread, `open` first and `close` last.

    Example:
        class Printer:
            name = "printer"
            def open(self, run): print("watching", run.name)
            def write(self, record): print(record.step, len(record.points)); return 0
            def flush(self): pass
            def close(self): pass
    """

    name: str

    def open(self, run: SinkRun) -> None:
        """Connect. What it raises is counted, and it is called again before the next record."""
        ...

    def write(self, record: StepRecord) -> int:
        """Take a record; return how many of its numbers the receiver cannot hold (such as inf in MLflow)."""
        ...

    def flush(self) -> None:
        """Hand over what is in memory."""
        ...

    def close(self) -> None:
        """Flush and disconnect."""
        ...

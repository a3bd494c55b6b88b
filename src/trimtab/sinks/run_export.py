"""A recorded run into a sink. Run again, it goes on behind what was exported; nothing comes twice.

`<target>.trimtab.json` beside the target says how far each run was exported. It is written after every
`SAVE_EVERY` steps; after a crash in between at most so many steps come twice.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from trimtab.errors import SinkError
from trimtab.measure.state.blocks import pack_states
from trimtab.measure.steps.series_row import series_row
from trimtab.report.run_incidents import incidents_at
from trimtab.report.run_view import RunView
from trimtab.report.series_arrays import step_series
from trimtab.runs.records import alarm_row
from trimtab.safe_files import replacing
from trimtab.sinks.addresses import selected
from trimtab.sinks.row_translation import StoredStep, Translation
from trimtab.sinks.sink import Event, Sink, SinkRun, StepRecord
from trimtab.sinks.sink_worker import failure_text

Row = dict[str, Any]
SAVE_EVERY = 200
"""Steps between two writes of the mark."""


@dataclass(frozen=True)
class ExportMark:
    """How far a run was exported."""

    step: int = -1
    names: frozenset[str] = frozenset()  # points and events of that step; more may follow when a run settles


@dataclass(frozen=True)
class Exported:
    """What an export did."""

    num_steps: int
    num_points: int
    num_refused: int  # numbers the receiver cannot hold
    first_step: int | None
    last_step: int | None


def export_run(
    view: RunView, sink: Sink, target: str | os.PathLike[str], only: Sequence[str] = ("*",)
) -> Exported:
    """Replay a recorded run into a sink.

    Args:
        view: the run; of several ranks the merged numbers are exported.
        sink: where to.
        target: path beside which the mark is written; a folder or a file.
        only: patterns of names; other patterns need another target.

    Returns:
        What was exported now, without what an earlier call did.

    Raises:
        SinkError: the sink failed, or the mark cannot be read or written.

    Example:
        export_run(load_view("runs/exp1"), TensorBoardSink("tb"), "tb").num_points
    """
    run = sink_run(view)
    path = Path(f"{os.fspath(target).rstrip('/')}.trimtab.json")
    marks = _read_marks(path)
    mark = marks.get(run.run_id, ExportMark())
    num_steps = num_points = num_refused = 0
    first: int | None = None
    try:
        sink.open(run)
        for record in records_of(view, run.run_id):
            fresh = _unseen(selected(record, only), mark)
            if fresh is None:
                continue
            num_refused += sink.write(fresh)
            num_steps, num_points = num_steps + 1, num_points + len(fresh.points)
            first = fresh.step if first is None else first
            mark = _later(mark, fresh)
            if num_steps % SAVE_EVERY == 0:
                sink.flush()
                _write_marks(path, marks | {run.run_id: mark})
        sink.close()
        _write_marks(path, marks | {run.run_id: mark})
    except SinkError:
        raise
    except Exception as error:  # a tracker's library may raise anything
        _write_marks(path, marks | {run.run_id: mark})
        where = f"after step {mark.step}" if mark.step >= 0 else "at its start"
        text = failure_text(error)
        raise SinkError(
            f"the export to {sink.name} failed {where} ({text}); run it again to go on"
        ) from error
    return Exported(num_steps, num_points, num_refused, first, mark.step if num_steps else None)


def require_names(view: RunView, only: Sequence[str]) -> None:
    """Refuse patterns that fit no name of a run, before anything is written.

    Args:
        view: the run.
        only: patterns of names; empty to allow all.

    Returns:
        Nothing.

    Raises:
        SinkError: a pattern fits no number and no histogram; the line has the nearest names.

    Example:
        require_names(load_view("runs/exp1"), ["trimtab/metrics/*"])
    """
    missing, names = list(only), set[str]()
    if not missing:
        return
    for record in records_of(view, ""):
        fresh = {one.name for one in record.points} | {one.name for one in record.histograms}
        fresh -= names
        names |= fresh
        missing = [pattern for pattern in missing if not any(fnmatchcase(name, pattern) for name in fresh)]
        if not missing:
            return
    near = get_close_matches(missing[0], names, 3, 0.4) or sorted(names)[:3]
    text = ", ".join(near) if near else "the run has no numbers"
    raise SinkError(f"--only {missing[0]!r} fits no name of {view.folder}; nearest: {text}")


def sink_run(view: RunView) -> SinkRun:
    """Return what a sink is opened with for a recorded run.

    Args:
        view: the run.

    Returns:
        Its id, name, folder and config.

    Example:
        sink_run(load_view("runs/exp1")).name  # 'exp1'
    """
    header = view.reader.header
    return SinkRun(str(header.get("run_id", "")), view.folder.resolve().name, view.folder, header["config"])


def records_of(view: RunView, run_id: str) -> Iterator[StepRecord]:
    """Yield the records of a run in the order of steps; the last one has the verdict as an event.

    Args:
        view: the run.
        run_id: of its header.

    Returns:
        One record a step.

    Example:
        sum(len(record.points) for record in records_of(view, run_id))
    """
    rows: dict[int, list[tuple[str, Row]]] = defaultdict(list)
    for kind, row in _rows(view):
        rows[_step_of(kind, row)].append((kind, row))
    translation, steps = Translation(run_id), sorted(rows)
    times = {int(row["step"]): float(row["time"]) for row in view.steps}
    starts = {alarm.step for alarm in view.alarms} | {a.cleared for a in view.alarms if a.cleared is not None}
    alarms_seen: list[Any] = []
    for step in steps:
        if step in starts:  # nothing changes of the incidents at other steps
            known = [alarm for alarm in view.alarms if alarm.step <= step]
            alarms_seen = incidents_at(view, [_as_at(alarm, step) for alarm in known], step)
        record = translation.record(StoredStep(step, rows.pop(step), alarms_seen))
        if step == steps[-1]:
            verdict = Event("verdict", "info", f"verdict: {view.verdict.word}", view.verdict.reason)
            record = replace(record, events=(*record.events, verdict))
        yield replace(record, time=times.get(step, record.time))


def _as_at(alarm: Any, step: int) -> Any:
    later = alarm.cleared is not None and alarm.cleared > step
    return replace(alarm, cleared=None) if later else alarm


def _step_of(kind: str, row: Row) -> int:
    return max(0, int(row["last"] if kind == "states" else row["step"]))


def _rows(view: RunView) -> Iterator[tuple[str, Row]]:
    """Rows of a run, merged over ranks, without what a resume superseded."""
    reader = view.reader
    if len(reader.ranks) <= 1:
        for kind in ("states", "readings", "series", "alarms", "actions", "errors", "steps", "end"):
            yield from ((kind, row) for row in reader.rows(kind))
        return
    for window, states in view.blocks:
        yield "states", {"first": window.first, "last": window.last, "states": pack_states(states)}
    yield from (("readings", row) for row in view.readings.rows)
    yield from (("series", series_row(series)) for series in step_series(reader))
    yield from (("alarms", alarm_row(alarm, "fired", alarm.step)) for alarm in view.alarms)
    yield from (("actions", row) for row in view.actions)
    yield from (("errors", row) for row in view.errors)
    yield from (("steps", row) for row in view.steps)


def _unseen(record: StepRecord, mark: ExportMark) -> StepRecord | None:
    """What of a record an earlier export has not written; None where it has written all."""
    if record.step < mark.step:
        return None
    if record.step > mark.step:
        return record
    return _without(record, mark.names)


def _without(record: StepRecord, names: frozenset[str]) -> StepRecord | None:
    left = replace(
        record,
        points=tuple(one for one in record.points if one.name not in names),
        histograms=tuple(one for one in record.histograms if one.name not in names),
        events=tuple(one for one in record.events if one.title not in names),
    )
    return left if left.points or left.histograms or left.events else None


def _later(mark: ExportMark, record: StepRecord) -> ExportMark:
    names = {one.name for one in record.points} | {one.name for one in record.histograms}
    names |= {event.title for event in record.events}
    return ExportMark(record.step, frozenset(names | (mark.names if record.step == mark.step else set())))


def _read_marks(path: Path) -> dict[str, ExportMark]:
    with suppress(FileNotFoundError):
        try:
            runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
            return {
                str(key): ExportMark(int(one["step"]), frozenset(map(str, one["names"])))
                for key, one in runs.items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise SinkError(
                f"{path} cannot be read ({type(error).__name__}): remove it and the target to export anew"
            ) from error
    return {}


def _write_marks(path: Path, marks: dict[str, ExportMark]) -> None:
    runs = {key: {"step": one.step, "names": sorted(one.names)} for key, one in marks.items()}
    with replacing(path, SinkError) as part:
        part.write_text(json.dumps({"version": 1, "runs": runs}), encoding="utf-8")

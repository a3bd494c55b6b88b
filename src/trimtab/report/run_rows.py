"""Stored rows of a run as a view takes them: steps merged over ranks, and recorded alarms joined with those
of a replay."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from trimtab.detect.rules.all_rules import LIVE_RULES
from trimtab.runs import RunReader
from trimtab.runs.records import alarm_from_row
from trimtab.runs.schema import CLEAN_ENDS
from trimtab.types import Alarm

Row = dict[str, Any]


def nonfinite_steps(steps: Iterable[Row]) -> dict[str, list[int]]:
    """Return column -> the steps, of rows in their order, at which it held NaN or infinity.

    >>> nonfinite_steps([{"step": 3, "nonfinite": {}}, {"step": 4, "nonfinite": {"logprobs": 2}}])
    {'logprobs': [4]}
    """
    bad: dict[str, list[int]] = {}
    for row in steps:
        for column, count in row["nonfinite"].items():
            if count > 0:
                bad.setdefault(column, []).append(row["step"])
    return bad


def last_failure(errors: Iterable[Row], steps: Iterable[Row]) -> str | None:
    """Return the monitor's last failure, of its rows of errors and of the steps that tell of those it could
    not write; None where the record has none."""
    texts = [(row["time"], row["error"]) for row in errors]
    texts += [(row["time"], str(row["last_failure"])) for row in steps if "last_failure" in row]
    return max(texts)[1] if texts else None


def union_of_alarms(recorded: list[Alarm], replayed: list[Alarm]) -> list[Alarm]:
    """Return the alarms as recorded, and those the replay alone has.

    How many rules were ready, and over which steps, is known from the replay; so is where the window of the
    evidence began, which older records do not hold.
    """
    again = {(alarm.rule, alarm.slice, alarm.step): alarm for alarm in replayed}
    known = {(alarm.rule, alarm.slice, alarm.step): alarm for alarm in recorded}
    lost = [alarm for key, alarm in again.items() if key not in known]
    shown = [_with_replay(alarm, again.get((alarm.rule, alarm.slice, alarm.step))) for alarm in recorded]
    return sorted([*shown, *lost], key=lambda alarm: alarm.step)


def _with_replay(alarm: Alarm, again: Alarm | None) -> Alarm:
    if again is None:
        return alarm
    pairs = zip(alarm.readings, again.readings, strict=False)
    readings = tuple(replace(mine, reason=other.reason) for mine, other in pairs)
    since, hidden = min(alarm.since, again.since), alarm.hidden and again.hidden
    return replace(alarm, since=since, heard=again.heard, hidden=hidden, readings=readings)


def recorded_alarms(rows: list[Row]) -> list[Alarm]:
    """Return the alarms of stored rows, with the step at which each cleared."""
    alarms: list[Alarm] = []
    for row in rows:
        if row["event"] == "fired":
            alarms.append(alarm_from_row(row))
            continue
        for i, alarm in enumerate(alarms):
            if (alarm.rule, alarm.slice, alarm.step) == (row["rule"], row["slice"], row["fired"]):
                alarms[i] = replace(alarm, cleared=None if row["event"] == "reopened" else int(row["step"]))
    return alarms


def alarms_of_record(reader: RunReader) -> list[Alarm]:
    """Return the recorded alarms; one of a rank that was silent clears where that rank wrote on, or ended as
    it should, though nobody was left to record that."""
    return [_settled(alarm, reader) for alarm in recorded_alarms(reader.rows("alarms"))]


def live_alarms(reader: RunReader, rules: Collection[str]) -> list[Alarm]:
    """Return the recorded alarms of `rules`, and of those that only a running job can judge; each once,
    whichever ranks wrote it."""
    alarms = [one for one in alarms_of_record(reader) if one.rule in LIVE_RULES.union(rules)]
    return list({(one.rule, one.slice, one.step): one for one in alarms}.values())


def _settled(alarm: Alarm, reader: RunReader) -> Alarm:
    if alarm.rule != "rank_silent" or alarm.cleared is not None:
        return alarm
    rank = int(alarm.slice.removeprefix("rank/"))
    last = reader.last_step(rank) if rank in reader.ranks else None
    end = reader.end(rank) if rank in reader.ranks else None
    if end is not None and end["reason"] in CLEAN_ENDS:
        return replace(alarm, cleared=alarm.step)
    return replace(alarm, cleared=last) if last is not None and last >= alarm.step else alarm


def with_superseded(alarms: list[Alarm], rows: list[Row]) -> list[Alarm]:
    """Return `alarms` and those that a resume superseded, closed: an alarm that was raised stays shown."""
    known = {(alarm.rule, alarm.slice, alarm.step) for alarm in alarms}
    old = {(a.rule, a.slice, a.step): replace(a, cleared=a.cleared or a.step) for a in recorded_alarms(rows)}
    return sorted([*alarms, *(old[key] for key in old.keys() - known)], key=lambda alarm: alarm.step)


def actions_of_ranks(reader: RunReader) -> list[Row]:
    """Return what the guard did, in order, also at steps that a later session started over.

    All ranks do the same. So the rows of the first rank that has any are shown; `alike` is False in each of
    them where another rank's differ in more than their clocks.
    """
    of_ranks = {rank: _actions(reader, rank) for rank in reader.ranks}
    shown = next((rows for _, rows in sorted(of_ranks.items()) if rows), [])
    alike = all(_without_clocks(rows) == _without_clocks(shown) for rows in of_ranks.values())
    return [{**row, "alike": alike} for row in shown]


def _actions(reader: RunReader, rank: int) -> list[Row]:
    sessions = range(reader.session_of(rank) + 1)
    return [row for session in sessions for row in reader.file("actions", rank, session).rows]


def _without_clocks(rows: Iterable[Row]) -> list[Row]:
    return [{key: value for key, value in row.items() if key not in ("time", "q", "s", "c")} for row in rows]

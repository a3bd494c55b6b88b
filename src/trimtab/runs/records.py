"""Records to rows of the run store and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from trimtab.types import Alarm, Reading, Window

Row = dict[str, Any]


def reading_rows(readings: Iterable[Reading]) -> list[Row]:
    """One row a (slice, window): `values` by key, with `low`, `high`, `n` (where not n_tokens) and `reasons`
    by key."""
    rows: dict[tuple[str, Window, str], Row] = {}
    for reading in readings:
        group = (
            "pair"
            if reading.key.startswith("tail_ratio/")
            else reading.key.split("/")[0]
            if reading.key.startswith(("lagged", "gradient/", "distinguish/"))
            else ""
        )
        row = rows.setdefault((reading.slice, reading.window, group), _empty_row(reading))
        row["values"][reading.key] = reading.value
        if math.isfinite(reading.low):
            row["low"][reading.key], row["high"][reading.key] = reading.low, reading.high
        if reading.n_tokens != row["n_tokens"]:
            row["n"][reading.key] = reading.n_tokens
        if reading.reason:
            row["reasons"][reading.key] = reading.reason
        if reading.excluded:
            row["excluded"][reading.key.split("/")[0]] = dict(reading.excluded)
        if reading.reference:
            row["reference"][reading.key.split("/")[0]] = reading.reference
    return list(rows.values())


def _empty_row(reading: Reading) -> Row:
    tokens = reading.state.n_tokens if reading.state is not None else reading.n_tokens
    return {
        "step": reading.step,
        "first": reading.window.first,
        "last": reading.window.last,
        "slice": reading.slice,
        "n_tokens": tokens,
        "n_trajectories": reading.n_trajectories,
        "values": {},
        "low": {},
        "high": {},
        "n": {},
        "reasons": {},
        "excluded": {},
        "reference": {},
    }


def readings_from_row(row: Row, keys: Iterable[str] | None = None) -> Iterator[Reading]:
    """The readings a row holds (without their states), or those of `keys`, which it must hold."""
    values = row["values"]
    for key in values if keys is None else keys:
        value = values[key]
        family, reason = key.split("/")[0], row["reasons"].get(key, "")
        number = math.nan if value is None else float(value)
        yield Reading(
            key=key,
            step=int(row["step"]),
            window=Window(int(row["first"]), int(row["last"])),
            slice=row["slice"],
            value=number,
            n_tokens=int(row["n"].get(key, row["n_tokens"])),
            n_trajectories=int(row["n_trajectories"]),
            low=float(row["low"].get(key, math.nan)),
            high=float(row["high"].get(key, math.nan)),
            reference=row["reference"].get(family, ""),
            excluded=row["excluded"].get(family, {}),
            status="not observed" if reason and math.isnan(number) else "ok",
            reason=reason,
        )


def alarm_row(alarm: Alarm, event: str, step: int) -> Row:
    """A row for an alarm that `event` ("fired", "cleared" or "reopened") at `step`."""
    evidence = [
        {"key": r.key, "value": r.value, "low": r.low, "high": r.high, "n_tokens": r.n_tokens,
        "n_trajectories": r.n_trajectories,
         "first": r.window.first, "last": r.window.last}
        for r in alarm.readings
    ]  # fmt: skip
    return {
        "event": event, "step": step, "fired": alarm.step, "rule": alarm.rule, "since": alarm.since,
        "severity": alarm.severity, "slice": alarm.slice, "bound": alarm.bound, "why": alarm.why,
        "advice": alarm.advice,
        "reference": alarm.reference, "hidden": alarm.hidden, "evidence": evidence,
    }  # fmt: skip


def alarm_from_row(row: Row) -> Alarm:
    """The alarm of a "fired" row."""
    readings = tuple(
        Reading(e["key"], int(row["fired"]), Window(e["first"], e["last"]), row["slice"], float(e["value"]),
        e["n_tokens"],
                e["n_trajectories"], float(e["low"]), float(e["high"]))
        for e in row["evidence"]
    )  # fmt: skip
    return Alarm(
        row["rule"], int(row["fired"]), int(row["since"]), row["severity"], row["slice"], readings,
        float(row["bound"]),
        row["why"], row["advice"], row["reference"], bool(row["hidden"]),
    )  # fmt: skip

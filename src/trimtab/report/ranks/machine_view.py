"""The machine of a stored run: which rank is slow, what memory is left, which episode holds the steps."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from trimtab.detect.reading_columns import ReadingColumn, columns_of_rows
from trimtab.distributed.stragglers import MachineJudge, SlowPhase, relative_scores
from trimtab.runs import RunReader
from trimtab.runs.records import reading_rows, readings_from_row
from trimtab.types import Reading

Json = dict[str, Any]
_GIB = 2**30
_RECENT = 8  # a rank that wrote one of so many steps is waited for
_PATIENCE = 3  # steps
_MAX_RANKS = 64  # rows of a page's table
_MAX_MEMORY = 4  # lines of memory in the text


class MachineView:
    """Judges the rows of steps of all ranks as a live run judges those of one.

    `follow` takes what a reader has now. What it took before is not judged again, unless a resume or a rank
    that came late changed it.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.judge = MachineJudge()
        self.rows: list[Json] = []
        self._taken: dict[int, tuple[tuple[int, int], ...]] = {}  # step -> (rank, session) of its rows

    def follow(self, reader: RunReader, steps: Collection[int]) -> None:
        """Judge the rows of `steps` that are new.

        A step that a rank of the last eight steps has not written yet waits for it, for three steps.
        """
        by_step: dict[int, dict[int, Json]] = {}
        for rank in reader.ranks:
            for row in reader.rows("steps", rank):
                by_step.setdefault(int(row["step"]), {})[rank] = row
        order = sorted(by_step.keys() & set(steps))
        signs = {
            step: tuple((rank, int(row.get("session", 0))) for rank, row in by_step[step].items())
            for step in order
        }
        if [(step, signs[step]) for step in order[: len(self._taken)]] != list(self._taken.items()):
            self._begin()
        readings: list[Reading] = []
        for i in range(len(self._taken), len(order)):
            expected = {rank for step in order[max(i - _RECENT, 0) : i] for rank, _ in signs[step]}
            if len(order) - i <= _PATIENCE and expected - by_step[order[i]].keys():
                break
            readings += self.judge.update(order[i], by_step[order[i]])
            self._taken[order[i]] = signs[order[i]]
        self.rows += reading_rows(readings)

    def columns(self) -> list[ReadingColumn]:
        """Return all readings as columns."""
        return columns_of_rows(self.rows, {(key, row["slice"]) for row in self.rows for key in row["values"]})

    def series(self, key: str, name: str) -> list[Reading]:
        """Return the readings of one key and slice, in the order of steps."""
        rows = [row for row in self.rows if row["slice"] == name and key in row["values"]]
        return [reading for row in rows for reading in readings_from_row(row, (key,))]

    def summary(self) -> Json:
        """Return phases by rank, slow ones, memory and the last episode, as JSON types.

        Empty lists where steps were not timed.
        """
        judge = self.judge
        phases = judge.stragglers.phases
        tables = {rank: _columns(rows, phases) for rank, rows in sorted(judge.recent.items())}
        scores = relative_scores(tables) if len(tables) > 1 else {}
        return {
            "phases": phases,
            "waits": sorted(judge.waits & set(phases)),
            "ranks": [
                {
                    "rank": rank,
                    "median_s": {name: float(np.median(one)) for name, one in times.items() if one},
                    "score": {name: scores[name][rank] for name in scores},
                }
                for rank, times in tables.items()
            ],
            "waits_shortest": _waits_shortest(tables, judge.waits),
            "slow": [_slow(one) for one in judge.slow],
            "memory": [row for rank in sorted(judge.uses) for row in self._memory(rank)],
            "last_episode": "" if judge.hold is None else judge.hold.words,
            "held_frac": math.nan if judge.hold is None else judge.hold.held_frac,
        }

    def _memory(self, rank: int) -> list[Json]:
        rows = []
        for kind, use in sorted(self.judge.uses[rank].items()):
            forecast = self.judge.forecasts.get((rank, kind))
            rows.append({
                "rank": rank, "kind": kind,
                **{f"{name}_bytes": value for name, value in use._asdict().items()},
                "steps_left": math.inf if forecast is None else forecast.steps_left,
                "judged": forecast is not None,
            })  # fmt: skip
        return rows


def machine_lines(summary: Json) -> list[str]:
    """Return `MachineView.summary` as text: what is slow, the last episode, memory, and phases by rank.

    Ranks with slow phases come first in the table, and of memory the ranks with the smallest rest.
    """
    lines = [one["text"] for one in summary["slow"]]
    if summary["phases"] and not lines:
        lines.append("no phase of a rank is shown to be slow")
    if summary["waits_shortest"] is not None and summary["slow"]:
        lines.append(f"rank {summary['waits_shortest']} waits the shortest time for the others")
    if summary["last_episode"]:
        lines.append(summary["last_episode"])
    short = sorted(
        summary["memory"], key=lambda row: (row["steps_left"], row["available_bytes"], row["rank"])
    )
    lines += [memory_line(row) for row in short[:_MAX_MEMORY]]
    if not summary["phases"]:
        return lines
    names = summary["phases"]
    lines.append("rank  " + "  ".join(f"{name:>10}" for name in names) + "   median seconds a step")
    first = {one["rank"] for one in summary["slow"]}
    for row in sorted(summary["ranks"], key=lambda row: (row["rank"] not in first, row["rank"])):
        cells = (f"{row['median_s'].get(name, math.nan):>10.4g}" for name in names)
        lines.append(f"{row['rank']:>4}  " + "  ".join(cells))
    return lines


def machine_table(summary: Json) -> Json:
    """Return `MachineView.summary` as a page shows it: slow ranks first, at most 64 of them.

    Returns:
        `phases`; `rows` of rank, `cells` (median seconds, as text; `slow` where that phase is) and memory;
        `lines` on what is slow, on memory that runs out and on the last episode; `num_left_out` ranks.
        Empty where nothing was recorded.
    """
    slow = {(one["rank"], one["phase"]) for one in summary["slow"]}
    first = {rank for rank, _ in slow}
    memory: dict[int, list[str]] = {}
    for row in summary["memory"]:
        used, limit = row["used_bytes"] / _GIB, row["limit_bytes"] / _GIB
        memory.setdefault(row["rank"], []).append(f"{row['kind']} {used:.2f} of {limit:.2f} GiB")
    times = {row["rank"]: row["median_s"] for row in summary["ranks"]}
    order = sorted({*times, *memory}, key=lambda rank: (rank not in first, rank))
    rows = [
        {
            "rank": rank,
            "cells": [
                {"text": _seconds(times.get(rank, {}).get(name)), "slow": (rank, name) in slow}
                for name in summary["phases"]
            ],
            "memory": ", ".join(memory.get(rank, [])),
        }
        for rank in order[:_MAX_RANKS]
    ]
    lines = [one["text"] for one in summary["slow"]]
    lines += [memory_line(row) for row in summary["memory"] if row["steps_left"] < math.inf]
    lines += [summary["last_episode"]] if summary["last_episode"] else []
    left_out = len(order) - len(rows)
    if not rows:
        return {}
    return {"phases": summary["phases"], "rows": rows, "lines": lines, "num_left_out": left_out}


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def machine_line(summary: Json) -> str:
    """Return in one line what is slow or runs out; empty where nothing is."""
    parts = [one["text"] for one in summary["slow"] if one["basis"] != "its own past"][:1]
    parts += [memory_line(row) for row in summary["memory"] if row["steps_left"] < math.inf][:1]
    return "; ".join(parts)


def memory_line(row: Json) -> str:
    """Return one row of memory as a sentence."""
    used, free, limit = (row[f"{name}_bytes"] / _GIB for name in ("used", "available", "limit"))
    left = f"{free:.2f} of {limit:.2f} GiB are left"
    text = f"rank {row['rank']} holds {used:.2f} GiB of {row['kind']} memory, {left}"
    if row["steps_left"] < math.inf:
        return f"{text}: at this growth for {row['steps_left']:.0f} steps"
    return text if row["judged"] else f"{text}; its trend is not judged yet"


def _columns(rows: Collection[Mapping[str, float]], phases: list[str]) -> dict[str, list[float]]:
    return {name: [row[name] for row in rows if name in row] for name in phases}


def _waits_shortest(tables: Mapping[int, Mapping[str, list[float]]], waits: Collection[str]) -> int | None:
    """Return the rank whose waits are shortest; None with one rank or without waits."""
    sums = {
        rank: math.fsum(float(np.median(times[name])) for name in waits if times.get(name))
        for rank, times in tables.items()
        if any(times.get(name) for name in waits)
    }
    return min(sums, key=lambda rank: sums[rank]) if len(sums) > 1 else None


def _slow(one: SlowPhase) -> Json:
    text = (
        f"rank {one.rank} is slow in {one.phase} since step {one.since}: "
        f"{one.ratio:.2f} times as long as {one.basis}, {one.lost_s:.3g} s a step ({one.lost_frac:.1%} of it)"
    )
    fields = ("rank", "phase", "since", "ratio", "lost_s", "lost_frac", "basis")
    return {**{name: getattr(one, name) for name in fields}, "text": text}

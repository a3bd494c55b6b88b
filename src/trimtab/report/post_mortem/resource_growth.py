"""What grew before a run ran out of memory: memory itself, the phases of a step, the length of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from trimtab.capture.memory_use import memory_of
from trimtab.capture.phase_clock import phases_of
from trimtab.catalog import bound

_GIB = 2**30
_RECENT = 3  # steps at the end
_BEFORE = 64  # steps they are compared with
_FEWEST = 8  # steps without which nothing is compared


def memory_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each kind of memory: the last reading, its peak, and how it grew.

    Args:
        rows: rows of steps of one rank, in order.

    Returns:
        Empty where memory was not recorded.

    Example:
        >>> row = {"step": 4, "memory": {"host": [2**30, 2**30, 2**32, 2**29]}}
        >>> memory_lines([row])
        ['host memory at step 4: 1.00 GiB of 4.00 GiB used, peak 1.00, 0.50 left']
    """
    lines = []
    known = [(int(row["step"]), memory_of(row)) for row in rows[-_BEFORE:]]
    for kind in ("device", "host"):
        uses = [(step, one[kind]) for step, one in known if kind in one]
        if not uses:
            continue
        (first, start), (last, now) = uses[0], uses[-1]
        text = (
            f"{kind} memory at step {last}: {now.used / _GIB:.2f} GiB of {now.limit / _GIB:.2f} GiB used, "
            f"peak {now.peak / _GIB:.2f}, {now.available / _GIB:.2f} left"
        )
        if last > first:
            text += f"; {(now.used - start.used) / _GIB:+.2f} GiB since step {first}"
        lines.append(text)
    return lines


def is_nearly_full(rows: Sequence[Mapping[str, Any]], kind: str) -> bool:
    """Return whether little of one kind of memory was left at the last step that recorded it."""
    uses = [one[kind] for one in map(memory_of, rows[-_BEFORE:]) if kind in one]
    return bool(uses) and uses[-1].available < bound("end_memory_left") * uses[-1].limit


def grown_phases(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each phase whose last steps took longer than those before, the largest first."""
    tables = [(row, phases_of(row)) for row in rows[-_BEFORE:]]
    times = [seconds for _, (seconds, _) in tables if seconds]
    if len(times) < _FEWEST:
        return []
    waits = frozenset[str]().union(*(waits for _, (_, waits) in tables))
    grown = []
    for name in {name for one in times for name in one} - waits:
        before = median([one.get(name, 0.0) for one in times[:-_RECENT]])
        now = median([one.get(name, 0.0) for one in times[-_RECENT:]])
        if before > 0 and now > bound("end_growth") * before:
            grown.append((now / before, f"{name} took {now:.3g} s a step at the end, {before:.3g} s before"))
    return [text for _, text in sorted(grown, reverse=True)]


def length_growth(averages: Mapping[str, Any]) -> str:
    """Return a sentence where the last answers were longer than those before; empty where they were not."""
    series = averages.get("length")
    if series is None or len(series.value) < _FEWEST:
        return ""
    before = median(series.value[-_BEFORE:-_RECENT] or series.value[:1])
    now = median(series.value[-_RECENT:])
    if not (before > 0 and now > bound("end_growth") * before):
        return ""
    return f"answers had {now:.4g} tokens at the end, {before:.4g} before"

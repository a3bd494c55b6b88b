"""A trainer's metrics log under our names, whatever wrote it: what the aggregate rules judge when there are
no tokens.

A log's metrics as arrays: straight off rows that hold plain numbers, one row a step; by way of merged rows
otherwise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.errors import MetricLogError
from trimtab.metric_logs.formats.column_blocks import Block, Column, blocks_of, column_of, columns_of_rows
from trimtab.metric_logs.formats.nulls import Row, settle_nulls
from trimtab.metric_logs.formats.types import RawLog, steps_of
from trimtab.metric_logs.frameworks.match import check_mapping, choose, framework_named
from trimtab.metric_logs.resumes import superseded_rows
from trimtab.typing import Int64

REPLACED = ("rows out of order, sorted", "values overwritten by a later row of the same step")
"""Reasons of `excluded` that late rows and several writers leave behind."""
_Lost = list[tuple[str, "int | None"]]
"""Our name, and the step of the row or of the one before it."""

_WORDS = {"nan": math.nan, "+nan": math.nan, "-nan": math.nan}


@dataclass(frozen=True, eq=False)
class MetricLog:
    """One row a step, steps ascending; NaN and infinity are kept, for they are alarms of their own.

    `steps`: (T,). `columns`: ours -> places in `steps` at which it was logged, values there. `framework` says
    whose keys they were, `why` on what ground. `mapped`: ours -> theirs. `unmapped`: numeric keys of the log
    that no name of ours stands for. `excluded`: what was left out, by reason. `notes`: traps of this
    trainer's keys, and choices the reader made. `lost_nonfinite`: ours -> indices of `steps` at which NaN or
    infinity stood in a row that was overwritten, or in rows after it that had no step or were superseded.
    """

    source: str
    format: str
    framework: str
    why: str
    steps: npt.NDArray[np.int64]
    columns: dict[str, Column]
    mapped: dict[str, str]
    unmapped: tuple[str, ...]
    excluded: dict[str, int]
    notes: tuple[str, ...]
    lost_nonfinite: dict[str, Int64] = field(default_factory=dict)

    @cached_property
    def rows(self) -> list[tuple[int, dict[str, float]]]:
        """The same row by row: (step, ours -> value)."""
        rows: list[tuple[int, dict[str, float]]] = [(step, {}) for step in self.steps.tolist()]
        for name, (index, values) in self.columns.items():
            for i, value in zip(index.tolist(), values.tolist(), strict=True):
                rows[i][1][name] = value
        return rows


def build_log(
    raw: RawLog, source: str, framework: str | None, mapping: Mapping[str, str] | None
) -> MetricLog:
    """Translate, sort and merge a raw log. MetricLogError when it has no step or no key that we know."""
    if not raw.num_rows:
        left = ", ".join(f"{count} {reason}" for reason, count in raw.excluded.items())
        raise MetricLogError(f"{source}: no row to read{f' ({left})' if left else ''}")
    every = raw.keys()
    steps = steps_of(raw, source, every)
    keys = _numeric(raw, every)
    wanted = dict(mapping or {})
    check_mapping(wanted, keys)
    if framework is None:
        chosen, why = choose(keys, raw.format)
    else:
        chosen = framework_named(framework)
        why = f"{chosen.name}: as asked for"
    translated, lines = chosen.translate(keys) if chosen else ({}, [])
    taken = set(wanted.values())
    mapped = {ours: theirs for ours, theirs in translated.items() if theirs not in taken} | wanted
    if not mapped:
        shown = ", ".join(keys[:6]) or "none"
        raise MetricLogError(
            f"{source}: {'none of its numbers is known' if not framework else f'no key of {framework} in it'} "  # noqa: E501
            f"(it has: {shown}); name them with --map NAME=KEY, the names are in "
            f"docs/reference/metric-keys.md"
        )
    plain = plain_columns(steps, raw, mapped)
    lost: _Lost = []
    if plain is None:
        steps = _without_superseded(raw, steps, mapped, lost)
        plain = columns_of_rows(_merged(raw, steps, mapped, lost))
    at, columns = plain
    signs = chosen.signs({ours: mapped[ours] for ours in mapped.keys() - wanted.keys()}) if chosen else {}
    columns = {ours: (i, v if signs.get(ours, 1) > 0 else -v) for ours, (i, v) in columns.items()}
    if not at.size:
        left = ", ".join(f"{count} {reason}" for reason, count in raw.excluded.items() if count)
        raise MetricLogError(f"{source}: no row has a step that can be read ({left})")
    read = set(mapped.values())
    return MetricLog(
        source=source,
        format=raw.format,
        framework=chosen.name if chosen else "custom",
        why=why,
        steps=at,
        columns=columns,
        mapped=mapped,
        unmapped=tuple(key for key in keys if key not in read),
        excluded={reason: count for reason, count in raw.excluded.items() if count},
        notes=(*raw.notes, *lines, *(chosen.notes_for(mapped) if chosen else ())),
        lost_nonfinite=_at_steps(lost, at),
    )


def number(value: Any) -> float | None:
    """A written value as a number, None when it is none; null is NaN, as verl and the JSON writers write it.

    >>> number("-Infinity"), number(None), number("abc"), number(True)
    (-inf, nan, None, None)
    """
    if value is None:
        return math.nan
    if isinstance(value, (bool, list, dict, bytes)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        return _WORDS.get(str(value).strip().lower())


def _numeric(raw: RawLog, keys: list[str]) -> list[str]:
    """Keys under which some row has a number."""
    open_keys = dict.fromkeys(raw.metric_keys(keys))
    order = list(open_keys)
    good = set(order if raw.blocks else ())
    for row in raw.rows:
        if not open_keys:
            break
        for key in [key for key in open_keys if row.get(key) is not None and number(row[key]) is not None]:
            good.add(key)
            del open_keys[key]
    return [key for key in order if key in good]


def _without_superseded(
    raw: RawLog, steps: list[int | None], mapped: Mapping[str, str], lost: _Lost
) -> list[int | None]:
    """Drop rows of earlier attempts; return the steps of the others. Lost NaN: at the step before."""
    raw.unpack()
    keys = set(mapped.values())
    rows = superseded_rows(
        steps,
        lambda row: frozenset(key for key in keys & raw.rows[row].keys() if raw.rows[row][key] is not None),
    )
    if not rows:
        return steps
    resumes = list(dict.fromkeys(rows.values()))
    shown = ", ".join(map(str, resumes[:3])) + (f" and {len(resumes) - 3} more" if resumes[3:] else "")
    again = f"{'steps' if resumes[1:] else 'step'} {shown} again"
    raw.excluded[f"rows superseded: the log goes on from {again} (a resume or a restart)"] = len(rows)
    pairs = [(theirs, ours) for ours, theirs in mapped.items()]
    for row, resume in rows.items():
        _lose(_nonfinite(_translated(raw.rows[row], pairs, Counter())), resume - 1, raw.excluded, lost)
    raw.rows = [row for i, row in enumerate(raw.rows) if i not in rows]
    return [step for i, step in enumerate(steps) if i not in rows]


def _lose(
    names: list[str],
    step: int | None,
    count: Counter[str],
    lost: _Lost,
    how: str = "alarms at the step before",
) -> None:
    """Note metrics that are NaN or infinite in a row that is left out, and the step to alarm at."""
    lost += [(name, step) for name in names]
    if names:
        count[f"rows among them with NaN or infinity ({', '.join(names[:4])}): {how}"] += 1


def _merged(
    raw: RawLog, steps: list[int | None], mapped: Mapping[str, str], lost: _Lost
) -> list[tuple[int, dict[str, float]]]:
    """One row a step of our names; a number beats a null, and of two numbers the later one stands and is
    counted. NaN and infinity that so are in no row go to `lost`."""
    pairs = [(theirs, ours) for ours, theirs in mapped.items()]
    count: Counter[str] = raw.excluded
    table: dict[int, dict[str, float | None]] = {}
    last: int | None = None
    for step, row in zip(steps, raw.rows, strict=True):
        if step is None:
            _lose(_nonfinite(_translated(row, pairs, Counter())), last, count, lost)
            continue
        if last is not None and step < last:
            count[REPLACED[0]] += 1
        last = step
        new = _translated(row, pairs, count)
        known = table.setdefault(step, new)
        if known is new:
            continue
        overwritten = [name for name in _nonfinite(known) if new.get(name) is not None]
        _lose(overwritten, step, count, lost, "alarms")
        for ours, value in new.items():
            old = known.get(ours)
            if old is not None and value is not None and repr(old) != repr(value):
                count[REPLACED[1]] += 1
            if value is not None or ours not in known:
                known[ours] = value
    rows = sorted(table.items())
    if raw.null_is_nothing:
        return _without_nulls(raw, rows)
    return settle_nulls(rows, raw.is_table(), count)


def _nonfinite(row: Row) -> list[str]:
    return [name for name, value in row.items() if value is not None and not math.isfinite(value)]


def _at_steps(lost: _Lost, steps: Int64) -> dict[str, Int64]:
    """Where in `steps` it was lost, else at the step before; before the first one, at the first."""
    index: dict[str, set[int]] = {}
    for name, step in lost if steps.size else ():
        at = 0 if step is None else int(np.searchsorted(steps, step, "right")) - 1
        index.setdefault(name, set()).add(max(at, 0))
    return {name: np.array(sorted(some), np.int64) for name, some in index.items()}


def _without_nulls(raw: RawLog, rows: list[tuple[int, Row]]) -> list[tuple[int, dict[str, float]]]:
    """The rows with the numbers only; where something was not logged, a note says so: the writer may have
    meant NaN."""
    empty = Counter(name for _, row in rows for name, value in row.items() if value is None)
    if empty:
        names, rest = ", ".join(list(empty)[:4]), len(empty) - 4
        raw.notes.append(
            f"{empty.total()} empty cell{'s' * (empty.total() > 1)} in {len(empty)} "
            f"column{'s' * (len(empty) > 1)} "
            f"({names}{f' and {rest} more' if rest > 0 else ''}) read as not logged; pandas writes NaN so "
            f"too: "
            'write it with to_csv(na_rep="NaN") to have it judged'
        )
    raw.excluded["empty cells read as not logged"] += empty.total()
    return [(step, {n: v for n, v in row.items() if v is not None}) for step, row in rows]


def _translated(
    row: Mapping[str, Any], pairs: list[tuple[str, str]], count: Counter[str]
) -> dict[str, float | None]:
    """A row under our names: numbers, and None where a null stood; what is neither is counted."""
    numbers: dict[str, float | None] = {}
    for theirs, ours in pairs:
        if theirs not in row:
            continue
        value = row[theirs]
        if type(value) is not float and value is not None:
            value = number(value)
            if value is None:
                count["values that are not numbers"] += 1
                continue
        numbers[ours] = value
    return numbers


def plain_columns(
    steps: Sequence[int | None], raw: RawLog, mapped: Mapping[str, str]
) -> tuple[Int64, dict[str, Column]] | None:
    """Steps and columns (`mapped`: ours -> theirs) of rows in order, one a step, that hold plain numbers
    there.

    None where a row must be dropped, moved or merged, or a value is anything else: null, text, a truth value,
    a list.
    """
    if not set(map(type, steps)) <= {int}:
        return None
    try:
        at = np.array(steps, np.int64)
    except OverflowError:
        return None
    if (at[1:] <= at[:-1]).any():
        return None
    blocks = raw.blocks or _picked(raw, mapped)
    if blocks is None:
        return None
    columns = {ours: column_of(blocks, theirs) for ours, theirs in mapped.items()}
    return at, {ours: column for ours, column in columns.items() if column is not None}


def _picked(raw: RawLog, mapped: Mapping[str, str]) -> list[Block] | None:
    """Blocks of what is mapped only: other values may be anything."""
    wanted = set(mapped.values())
    return blocks_of([{key: row[key] for key in row if key in wanted} for row in raw.rows], 0)

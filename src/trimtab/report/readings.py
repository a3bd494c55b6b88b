"""Readings of a run as their rows: a long run has hundreds of thousands, and a view needs a few series of
them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from trimtab.detect.pipeline import Pipeline
from trimtab.detect.reading_columns import ReadingColumn, columns_of_rows
from trimtab.measure.state.values import recorded
from trimtab.runs.records import readings_from_row
from trimtab.types import Reading

Row = dict[str, Any]


class ReadingRows:
    """Rows in the order of steps; a `Reading` is made when somebody asks for it."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        self._by_slice: dict[str, list[Row]] = {}
        self._keys: set[str] = set()
        self._closed: set[str] = set()
        for row in self.rows:
            self._by_slice.setdefault(row["slice"], []).append(row)
            self._keys.update(row["values"])
            if not all(map(recorded, row["values"])):
                self._closed.add(row["slice"])

    @property
    def slices(self) -> set[str]:
        """Slices with a closed window."""
        return self._closed

    def series(self, key: str, name: str) -> list[Reading]:
        """Readings of one key and slice."""
        if key not in self._keys:
            return []
        rows = (row for row in self._by_slice.get(name, []) if key in row["values"])
        return [reading for row in rows for reading in readings_from_row(row, (key,))]

    def latest(self, key: str, name: str) -> Reading | None:
        """The last reading of one key and slice that has a value; None without any."""
        rows = (row for row in reversed(self._by_slice.get(name, [])) if key in row["values"])
        readings = (reading for row in rows for reading in readings_from_row(row, (key,)))
        return next((reading for reading in readings if reading.status == "ok"), None)

    def columns(self, wanted: Collection[tuple[str, str]], steps: Collection[int]) -> list[ReadingColumn]:
        """Return these columns, (key, slice), of the readings that closed at one of `steps`."""
        rows = [row for row in self.rows if row["step"] in steps]
        return columns_of_rows(sorted(rows, key=lambda row: row["step"]), wanted)

    def observed(self, families: Collection[str]) -> set[str]:
        """Those families (the part of a key before the slash) that have a value in some window."""
        left = {key: key.split("/")[0] for key in self._keys if key.split("/")[0] in families}
        seen: set[str] = set()
        for row in self.rows:
            if not left:
                break
            done = {left[k] for k in left if k in row["values"] and k not in row["reasons"]}
            seen |= done
            left = {key: family for key, family in left.items() if family not in done}
        return seen

    def num_windows(self, families: Collection[str]) -> int:
        """Windows of any slice that hold a reading of these families."""
        keys = {key for key in self._keys if key.split("/")[0] in families}
        rows = (row for row in self.rows if not keys.isdisjoint(row["values"]))
        return len({(row["slice"], row["first"], row["last"]) for row in rows})

    def __iter__(self) -> Iterator[Reading]:
        return (reading for row in self.rows for reading in readings_from_row(row))


def judged_readings(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the keys of the readings that were judged; a joint reading consists of others."""
    judged = set(pipeline.judged())
    keys = dict.fromkeys(rule.key for rule in pipeline.rules if rule.name in judged)
    return tuple(key for key in keys if not key.startswith("joint/"))

"""The columnar engine: step JSONL to the table of the checks, shard by shard, in memory that does not grow with the log's bytes.

Same table as `tabulate` makes of the same lines, but for what it does not keep: the file's line and the arguments of examples.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.traces.columnar.cross_shard import Loose
from trimtab.traces.columnar.episodes import Part, named, part_of
from trimtab.traces.columnar.extract import ids_of
from trimtab.traces.columnar.merge import ColumnTable
from trimtab.traces.columnar.order import together
from trimtab.traces.columnar.shard_counts import Counted, Job, count_shard
from trimtab.traces.columnar.shards import LinesBefore, shards_of
from trimtab.traces.columnar.spill import Shelf
from trimtab.traces.core.coerce import as_label
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import UNREAD_SUCCESS, ReadReport
from trimtab.traces.deduplicate import RENAMED
from trimtab.traces.files.lines import iter_lines
from trimtab.traces.readers.ptt_steps.buffer import COPIES
from trimtab.traces.readers.ptt_steps.field_names import SAMPLE, StepNames
from trimtab.traces.readers.ptt_steps.reader import NO_END, ORPHANS, is_step
from trimtab.traces.readers.ptt_steps.restarts import BEGAN_AGAIN
from trimtab.traces.table.types import TraceTable
from trimtab.typing import Array

Mapper = Callable[[Iterable[Job]], Iterator[Counted]]
"""Jobs to what `count_shard` makes of them, in their order, a few at a time."""

_NONE: Array = np.zeros(0, np.uint64)


def thread_map(threads: int = 2) -> Mapper:
    """Jobs over threads of this process; one more than that many are held."""

    def mapped(jobs: Iterable[Job]) -> Iterator[Counted]:
        with ThreadPoolExecutor(threads) as pool:
            waiting: deque[Any] = deque()
            for job in jobs:
                waiting.append(pool.submit(count_shard, job))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    return mapped


def tabulate_steps(files: Sequence[str], report: ReadReport, mapper: Mapper | None = None) -> TraceTable:
    """The table of files of step JSONL. The caller has made sure of the format; see `traces.engine`."""
    shards = itertools.count()
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder, closing(Shelf(Path(folder))) as shelf:
        whole = ColumnTable(shelf)
        for file in files:
            report.formats[file] = "steps"
            reading = _File(file, report, mapper or thread_map(), shards, Path(folder), shelf)
            whole.merge(reading.table())
        table = whole.table()
    for what, count in (
        ("steps out of order, sorted", whole.moved),
        (COPIES, whole.copies),
        (ORPHANS, whole.orphans),
        (NO_END, whole.endless),
        (UNREAD_SUCCESS, whole.unread),
        (BEGAN_AGAIN, whole.again),
        (RENAMED, whole.again),
    ):
        if count:
            report.note(what, count)
    report.num_episodes += whole.size
    return table


class _File:
    """One file's reading; a second one where the first was wrong about which episodes are whole."""

    def __init__(
        self,
        path: str,
        report: ReadReport,
        mapper: Mapper,
        numbers: Iterator[int],
        folder: Path,
        shelf: Shelf,
    ) -> None:
        self._path, self._report, self._mapper, self._numbers = path, report, mapper, numbers
        self._folder, self._shelf = folder, shelf
        self._numeric_time, self._tools = _sample(path, report)
        self._counted, self._loose = ColumnTable(self._shelf), Loose(folder)

    def table(self) -> ColumnTable:
        """All of its episodes."""
        self._read(self._report, _NONE)
        if (twice := self._twice()).size:
            self._counted, self._loose = ColumnTable(self._shelf), Loose(self._folder)
            self._read(ReadReport(), twice)
        for steps in self._loose.parts():
            part, table = part_of(*together(steps)), ColumnTable()
            table.add(part, self._ids(part), list(self._loose.tools), list(self._loose.errors))
            self._counted.merge(table)
        return self._counted

    def _read(self, report: ReadReport, never: Array) -> None:
        lines_before, known = LinesBefore(), dict.fromkeys(self._tools)
        jobs = (
            Job(shard._replace(number=next(self._numbers)), tuple(known), self._numeric_time, never)
            for shard in shards_of(self._path, report)
        )
        for found in self._mapper(jobs):
            shard = found.shard
            self._counted.merge(found.table)
            self._loose.add(found.loose, found.tools, found.errors)
            known |= dict.fromkeys(found.tools)
            report.num_lines += found.num_lines
            first = lines_before(shard) if found.problems or shard.failure else 0
            for line, reason in found.problems:
                report.malformed(self._path, first + line, reason)
            if shard.failure:
                report.num_lines += 1
                at = first + (shard.data or b"").count(b"\n") + 1
                report.cut_off(self._path, at, shard.failure)
            if report.progress is not None:
                report.progress(shard.end - shard.start if shard.data is None else 0)

    def _twice(self) -> Array:
        """Hashes of episodes that were taken for whole and came again."""
        whole = self._counted.column("eh").astype(np.uint64)
        hashes, counts = np.unique(np.concatenate([whole, self._loose.hashes()]), return_counts=True)
        return hashes[counts > 1]

    def _ids(self, part: Part) -> list[str]:
        """(E,) ids; those of episodes that have neither a step 0 nor an end are looked for in the file again."""
        hashes, ids = part.eh, part.ids
        missing = hashes[ids == None]  # noqa: E711
        if missing.size:
            known: dict[int, str] = {}
            for shard in shards_of(self._path, ReadReport()):
                known |= ids_of(shard, missing)
            ids = np.array([known.get(h, i) for h, i in zip(hashes.tolist(), ids.tolist(), strict=True)])
        return named(ids, part.run)


def _sample(path: str, report: ReadReport) -> tuple[bool, list[str]]:
    """Of the first lines: are timestamps numbers, which are faster read as such? And the names of tools. Notes what nothing reads."""
    numeric, tools = True, dict[str, None]()
    for line in itertools.islice(iter_lines(path, ReadReport()), SAMPLE):
        try:
            value = parse_json(line.text)
        except BadJson:
            continue
        if isinstance(value, dict):
            numeric &= not isinstance(value.get("timestamp"), str)
            tools[as_label(value.get("tool")) or ""] = None
            if is_step(value) and as_label(value["episode_id"]) is not None:
                report.state.setdefault("steps", StepNames()).look(value, line.number)
    report.state.setdefault("steps", StepNames()).tell(report.notes)
    return numeric, [tool for tool in tools if tool]

"""Any logs to the table of the checks: small ones in this process, large ones in shards over processes or a
Ray cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np

from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.deduplicate import renamed_episodes
from trimtab.traces.files.find import STDIN, find_files
from trimtab.traces.files.json_records import is_lines
from trimtab.traces.files.shards import Shard, cut, plain_copy
from trimtab.traces.read import Log, Skipped, iter_episodes, open_logs
from trimtab.traces.readers.mapped import is_step_mapping, say_missed
from trimtab.traces.registry import FORMATS
from trimtab.traces.shard_table import Answer, Job, Reading, tabulate_shard
from trimtab.traces.step_shards import Match, assign, disputed, lines_of
from trimtab.traces.table.build import tabulate
from trimtab.traces.table.compact import Names
from trimtab.traces.table.partials import combine, first_tools
from trimtab.traces.table.required_files import RequiredFiles
from trimtab.traces.table.types import TraceTable
from trimtab.traces.workers import Mapper, process_map, ray_map

LARGE_BYTES = 48 * 2**20
"""Logs of this size and more, all files together, are shared between processes, each of which takes half a
second to start."""


def table_of(
    paths: Iterable[str | Path],
    report: ReadReport,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    required: RequiredFiles | None = None,
    ray: str | None = None,
) -> TraceTable:
    """Return the table of the checks, of any logs we read; `report` is filled.

    Args:
        paths: files, folders and globs, or `-`.
        report: what was left out or repaired.
        format: the name of a format, where it is not to be found out.
        mapping: our fields -> paths in the records, of logs of no known format.
        required: files that calls should name.
        ray: a cluster's address, or `local`: shards are then Ray tasks, whatever their size.

    Returns:
        The same table, whether the logs are read in one piece or in shards.

    Raises:
        TraceError: where `iter_episodes` raises it, or Ray cannot be used.

    Example:
        >>> table_of(["log.jsonl"], ReadReport()).num_episodes  # doctest: +SKIP
        1200
    """
    files = find_files(paths)
    large = STDIN not in files and sum(Path(file).stat().st_size for file in files) >= LARGE_BYTES
    if ray is None and not large:
        return tabulate(iter_episodes(files, report, format, mapping), required)
    workers: AbstractContextManager[Mapper] = process_map() if ray is None else ray_map(ray)
    with workers as mapper:
        return tabulate_shards(files, report, format, mapping, required, mapper)


def tabulate_shards(
    files: Sequence[str],
    report: ReadReport,
    format: str | None,
    mapping: Mapping[str, str] | None,
    required: RequiredFiles | None,
    mapper: Mapper,
) -> TraceTable:
    """Return the table of logs that `mapper` reads shard by shard; arguments as of `table_of`."""
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
        whole = _Whole(mapper, report)
        known = ReadReport(strict=report.strict)
        required = required or RequiredFiles()
        skipped = Skipped()
        opened = open_logs(files, known, skipped, format, mapping)
        whole.read(_jobs(opened, known, mapping or {}, report, required, folder))
        whole.hand_out_disputed()
        whole.rename_repeated()
        whole.limit_tools()
    for answer in whole.answers:
        report.merge(answer.report)
    report.formats = known.formats
    say_missed(mapping or {}, report)
    skipped.note(report)
    return combine([answer.part for answer in whole.answers])


def _jobs(
    logs: Iterator[Log],
    known: ReadReport,
    mapping: Mapping[str, str],
    report: ReadReport,
    required: RequiredFiles,
    folder: str,
) -> Iterator[Job]:
    for log in logs:
        state = {"trl": known.state["trl"]} if "trl" in known.state else {}
        reading = Reading(dict(mapping), report.strict, report.error_patterns, state, required.empty())
        by_line = FORMATS[log.format].by_line and not is_step_mapping(mapping) and is_lines(log.file)
        shards: Iterable[Shard] = [Shard(log.file)]
        if by_line:
            shards = cut(log.file, *plain_copy(log.file, folder))
        for shard in shards:
            yield Job(shard, log.format, reading)
            if report.progress is not None:
                report.progress(shard.num_bytes)


class _Whole:
    """Answers of all shards, in their order; those that the whole log proves wrong are asked for again."""

    def __init__(self, mapper: Mapper, report: ReadReport) -> None:
        self._mapper, self._report = mapper, report
        self.jobs: list[Job] = []
        self.answers: list[Answer] = []

    def read(self, jobs: Iterable[Job]) -> None:
        """Ask for every shard."""

        def noted() -> Iterator[Job]:
            for job in jobs:
                self.jobs.append(job)
                yield job

        self.answers = list(self._mapper(tabulate_shard, noted()))

    def _again(self, changed: Mapping[int, Job]) -> None:
        for i, job in changed.items():
            self.jobs[i] = job
        for i, answer in zip(changed, self._mapper(tabulate_shard, changed.values()), strict=True):
            self.answers[i] = answer

    def hand_out_disputed(self) -> None:
        """Read once more the shards of step logs that took lines of an episode for all of them."""
        files = dict.fromkeys(job.shard.file for job in self.jobs if job.format == "steps")
        for file in files:
            at = [i for i, job in enumerate(self.jobs) if job.shard.file == file and self.answers[i].counted]
            names = disputed([c for i in at if (c := self.answers[i].counted)]) if at else frozenset()
            if not names:
                continue
            shards = [self.jobs[i].shard for i in at]
            lines = list(self._mapper(_lines_of, [(shard, names) for shard in shards]))
            assigned = assign(names, lines)
            keys = np.array(sorted(names), np.uint64)
            changed = {}
            for i, one in zip(at, assigned, strict=True):
                counted = self.answers[i].counted
                if one.mine or one.visiting or (counted and np.isin(keys, counted.owned).any()):
                    changed[i] = replace(self.jobs[i], assigned=one)
            self._again(changed)

    def rename_repeated(self) -> None:
        """Drop copies, and rename episodes under an id that an earlier one has."""
        sizes = [answer.part.size for answer in self.answers]
        starts = np.cumsum([0, *sizes])
        names = [name for answer in self.answers for name in Names.joined(*answer.part.ids)]
        digests, nameless = (
            np.concatenate([getattr(a, what) for a in self.answers] or [np.zeros(0)])
            for what in ("digests", "nameless")
        )
        changed = renamed_episodes(names, digests, nameless, self._report)
        at = np.searchsorted(starts, list(changed), side="right") - 1
        jobs: dict[int, Job] = {}
        for (number, name), i in zip(changed.items(), at.tolist(), strict=True):
            jobs.setdefault(i, replace(self.jobs[i], renamed={}))
            jobs[i].renamed[number - int(starts[i])] = name  # type: ignore[index]
        self._again(jobs)

    def limit_tools(self) -> None:
        """Count once more where there are more tools than rows: the first of the whole log have one."""
        known: dict[str, None] = {}
        jobs: dict[int, Job] = {}
        for i, answer in enumerate(self.answers):
            tools = first_tools(known, answer.part)
            if tools is not None:
                jobs[i] = replace(self.jobs[i], tools=tools)
            known |= dict.fromkeys(name for name in answer.part.tools if tools is None or name in tools)
        self._again(jobs)


def _lines_of(job: tuple[Shard, frozenset[int]]) -> list[Match]:
    return lines_of(*job)

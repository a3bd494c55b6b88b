"""Agent logs to episodes: find the files, tell the format by content, read, and say what was left out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from trimtab.errors import TraceError
from trimtab.traces.core.coerce import as_label
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.deduplicate import Identities
from trimtab.traces.errors.patterns import compile_patterns
from trimtab.traces.files.find import STDIN, find_files
from trimtab.traces.files.json_records import iter_records
from trimtab.traces.readers.coding_agents.log_folders import distinct_logs
from trimtab.traces.readers.mapped import say_missed
from trimtab.traces.readers.trl.completions import is_trl
from trimtab.traces.readers.trl.reward_columns import columns_of
from trimtab.traces.registry import FORMATS, find_format


def read_episodes(
    paths: Iterable[str | Path],
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    strict: bool = False,
    progress: Callable[[int], None] | None = None,
    error_patterns: Iterable[str] = (),
) -> tuple[list[Episode], ReadReport]:
    """All episodes of the logs, and what was left out of them or repaired; see `iter_episodes`."""
    report = ReadReport(strict=strict, progress=progress, error_patterns=compile_patterns(error_patterns))
    return list(iter_episodes(paths, report, format, mapping)), report


def iter_episodes(
    paths: Iterable[str | Path],
    report: ReadReport,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    only: Collection[str] | None = None,
) -> Iterator[Episode]:
    """Episodes one by one, in the order of the files; `report` fills as they come.

    The format of a file is recognised by its first record that some reader knows, unless `format` (a name of
    `trimtab.traces.registry.FORMATS`) forces it. `mapping`: our field -> JSON path, for logs of no known
    format. A file in which nothing is recognised is a TraceError, unless others were read. `only`: of step
    JSONL, hold the lines of these ids alone.
    """
    files, identities = find_files(paths), Identities()
    wanted = {*(only or ()), *(name.rpartition("#")[0] for name in only or ())}  # a#2 began as a
    skipped = Skipped()
    for log in open_logs(files, report, skipped, format, mapping):
        records = log.records
        if only is not None and log.format == "steps":
            records = (r for r in records if _has_id(r.value, wanted))
        for episode in FORMATS[log.format].read(mapping or {})(records, report):
            if identities.admit(episode, report):
                report.mark_errors(episode.calls)
                report.num_episodes += 1
                yield episode
    say_missed(mapping or {}, report)
    skipped.note(report)


@dataclass
class Skipped:
    """Files without a record, and those of no format we know."""

    empty: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def note(self, report: ReadReport) -> None:
        """Count them, but for those from which a reader took something about the episodes of others."""
        unknown = [file for file in self.unknown if str(Path(file).resolve()) not in report.used]
        for count, why in ((len(unknown), "of no format we know"), (len(self.empty), "without a record")):
            if count:
                report.note(f"file{'s' * (count > 1)} {why}, skipped", count)


class Log(NamedTuple):
    """A file whose format is known."""

    file: str
    format: str
    records: Iterator[Record]


def open_logs(
    files: Sequence[str],
    report: ReadReport,
    skipped: Skipped,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
) -> Iterator[Log]:
    """Yield the files that some reader knows; TraceError, after the last, where none does. Arguments as of
    `iter_episodes`."""
    if format is not None and format not in FORMATS:
        raise TraceError(f"unknown format {format!r}; one of {', '.join(FORMATS)}")
    if mapping and format not in (None, "mapped"):
        raise TraceError(f"--map changes nothing of --format {format}; leave one of them out")
    empty, unknown = skipped.empty, skipped.unknown
    files = distinct_logs(files, report)
    for index, file in enumerate(files):
        records = iter_records(file, report)
        seen, stopped = _first(records, 20)
        name = format or ("mapped" if mapping else find_format(record.value for record in seen))
        if stopped is not None and (name is None or not seen):
            raise stopped
        if name is None:
            (unknown if seen else empty).append(file)
            continue
        report.formats[file] = name
        if name == "trl" and "trl" not in report.state and STDIN not in files:
            report.state["trl"] = columns_of(files[index:], _trl_rows)
        yield Log(file, name, itertools.chain(seen, _raised(stopped), records))
    if empty and len(empty) == len(files):
        last = report.problems[-1] if report.problems else None
        why = f"no line of it can be read ({last.reason})" if last else "it is empty"
        raise TraceError(f"{empty[0]} holds no record: {why}")
    if unknown and len(unknown) + len(empty) == len(files):
        raise TraceError(
            f"{unknown[0]} is of no format we know; name one with --format ({', '.join(FORMATS)}) or its "
            f"fields with --map"
        )


def _first(records: Iterator[Record], count: int) -> tuple[list[Record], TraceError | None]:
    """The first records, and what ended them: under `strict` a line after one that its reader may refuse
    first."""
    seen: list[Record] = []
    try:
        for record in itertools.islice(records, count):
            seen.append(record)
    except TraceError as error:
        return seen, error
    return seen, None


def _raised(error: TraceError | None) -> Iterator[Record]:
    if error is not None:
        raise error
    yield from ()


def _trl_rows(file: str) -> Iterator[Any]:
    """The rows of a file that are TRL's."""
    for record in iter_records(file, ReadReport()):
        if not isinstance(record.value, dict) or not is_trl(record.value):
            return
        yield record.value


def _has_id(value: Any, only: Collection[str]) -> bool:
    return isinstance(value, dict) and as_label(value.get("episode_id")) in only

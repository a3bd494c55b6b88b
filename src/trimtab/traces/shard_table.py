"""One shard of a log to a partial table: the function that worker processes and Ray tasks map."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from trimtab.errors import TraceError
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.deduplicate import content_digest, is_nameless
from trimtab.traces.files.json_records import iter_records
from trimtab.traces.files.shards import BOM, Shard, lines_from
from trimtab.traces.registry import FORMATS
from trimtab.traces.step_shards import Assigned, Counted, StepShard
from trimtab.traces.table.build import TableBuilder
from trimtab.traces.table.partials import Partial
from trimtab.traces.table.required_files import RequiredFiles
from trimtab.typing import Array


@dataclass(frozen=True)
class Reading:
    """What is the same for all shards of a reading."""

    mapping: Mapping[str, str]
    strict: bool
    error_patterns: tuple[re.Pattern[str], ...]
    state: Mapping[str, Any]  # what readers know of all files before they begin
    required: RequiredFiles  # with nothing counted


@dataclass(frozen=True)
class Job:
    """A shard, its format, and what only the whole log tells of it."""

    shard: Shard
    format: str
    reading: Reading
    assigned: Assigned = field(default_factory=Assigned)
    # number in the shard -> new id; None: a copy
    renamed: Mapping[int, str | None] = field(default_factory=dict)
    tools: frozenset[str] | None = None  # those with a row of their own; None: the first that come


class Answer(NamedTuple):
    """The facts of a shard's episodes."""

    part: Partial
    report: ReadReport
    digests: Array  # (n,) 64 bits of each content
    nameless: Array  # (n,) has the log no id for it
    counted: Counted | None  # of step logs


def tabulate_shard(job: Job) -> Answer:
    """Return the partial table of a shard's episodes. TraceError under `strict` at its first malformed line,
    or where it cannot be read."""
    try:
        return _tabulate(job)
    except OSError as error:
        raise TraceError(f"{job.shard.file} cannot be read: {error.strerror or error}") from error


def _tabulate(job: Job) -> Answer:
    reading, shard = job.reading, job.shard
    report = ReadReport(reading.strict, error_patterns=reading.error_patterns, state=dict(reading.state))
    builder = TableBuilder(reading.required.empty(), job.tools)
    digests, nameless = list[int](), list[bool]()
    read, records = FORMATS[job.format].read(reading.mapping), _records(shard, report)
    steps = StepShard(shard, job.assigned) if job.format == "steps" and shard.end >= 0 else None
    episodes = read(records, report) if steps is None else steps.episodes(records, report, read)
    for number, episode in enumerate(episodes):
        if number in job.renamed:
            name = job.renamed[number]
            if name is None:
                continue
            episode.id = name
        elif not job.renamed:
            nameless.append(is_nameless(episode))
            digests.append(content_digest(episode))
        report.mark_errors(episode.calls)
        report.num_episodes += 1
        builder.add(episode)
    counted = None if steps is None else steps.counted()
    return Answer(builder.partial(), report, np.array(digests, np.uint64), np.array(nameless, bool), counted)


def _records(shard: Shard, report: ReadReport) -> Iterator[Record]:
    """Yield the JSON values of the shard's lines, or of the whole file."""
    if shard.end < 0:
        yield from iter_records(shard.file, report)
        return
    number = shard.lines_before
    for line in lines_from(shard.path, shard.start, shard.end, shard.lines_before):
        number, text = line.number, line.text
        if number == 1 and text.startswith(BOM):
            report.note("byte-order mark removed")
            text = text[len(BOM) :]
            if not text:
                continue
        report.num_lines += 1
        if line.failure:
            report.malformed(shard.file, number, line.failure)
            continue
        try:
            value = parse_json(text)
        except BadJson as error:
            cut_off = "" if line.ended else "cut off at the end of the file; "
            report.malformed(shard.file, number, f"{cut_off}{error}")
            continue
        yield Record(shard.file, number, value)
    if shard.failure:
        report.num_lines += 1
        report.cut_off(shard.file, shard.failed_line, shard.failure)

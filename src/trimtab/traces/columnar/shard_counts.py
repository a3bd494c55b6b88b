"""One shard, counted: what a thread or another machine does with it. All it needs is in the job, all it found is in the answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.traces.columnar.cross_shard import split
from trimtab.traces.columnar.episodes import named, part_of
from trimtab.traces.columnar.extract import Columns, read_rows
from trimtab.traces.columnar.merge import ColumnTable
from trimtab.traces.columnar.order import together
from trimtab.traces.columnar.shards import Shard

_ROW_BITS = 32  # rows of a shard; its number stands above them, so that rows keep the order of the log


class Job(NamedTuple):
    """`tools`: names known so far. `never`: hashes of episodes that other shards have lines of."""

    shard: Shard
    tools: tuple[str, ...]
    numeric_time: bool
    never: npt.NDArray[np.uint64]


@dataclass
class Counted:
    """`table`: of the episodes that are in the shard from first to last. `loose`: the other steps, whose codes stand for `tools` and
    `errors`. `problems`: line in the shard and reason."""

    shard: Shard
    table: ColumnTable
    loose: Columns
    tools: list[str]
    errors: list[str]
    num_lines: int
    problems: list[tuple[int, str]] = field(default_factory=list)


def count_shard(job: Job) -> Counted:
    """Read a shard and count its episodes."""
    rows = read_rows(job.shard, job.tools, job.numeric_time)
    rows.columns["row"] += job.shard.number << _ROW_BITS
    here, ep, loose = split(*together(rows.columns), job.never)
    table = ColumnTable()
    if ep.size:
        part = part_of(here, ep)
        table.add(part, named(part.ids, part.run), rows.tools, rows.errors)
    shard = job.shard  # its text is asked for again only to say where a line stands
    if shard.data is not None and not (rows.problems or shard.failure):
        shard = shard._replace(data=b"")
    return Counted(shard, table, loose, rows.tools, rows.errors, rows.num_lines, rows.problems)

"""Episodes of a step log that are spread over shards: who reads them, and a check that each line was read
once.

An episode belongs to the shard of its first line. A worker takes those that seem to begin in its shard, and
reads on behind it until they have ended; `disputed` finds the episodes for which that was wrong. Their lines
are then looked up and handed out.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from trimtab.traces.core.coerce import as_int, as_label
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.shards import SHARD_BYTES, Shard, lines_from
from trimtab.typing import Array

_OPENING = ("user_message", "user", "system", "system_message")
_FIRST_STEPS = (0, 1)


Position = tuple[int, int]
"""Number and offset of a line."""
Match = tuple[int, int, int, bool]
"""Hash of a line's id, its number and offset, and is it an episode's end?"""
Reader = Callable[[Iterable[Record], ReadReport], Iterator[Episode]]


@dataclass(frozen=True)
class Assigned:
    """Episodes of which the parent says who reads them, by the hash of their ids."""

    disputed: frozenset[int] = frozenset()
    mine: frozenset[int] = frozenset()  # those that begin in the shard
    behind: tuple[Position, ...] = ()  # lines of these behind it
    visiting: tuple[Position, ...] = ()  # all lines of ids that begin before it, and may begin anew in it


class Counted(NamedTuple):
    """Of one shard: hashes of the ids that it owns, and of others or beyond it the number of lines left or
    borrowed."""

    owned: Array
    others: Array
    lines: Array  # parallel to `others`; borrowed ones count positive


def hash_of(name: str) -> int:
    """Return 64 bits of an id, the same in every process."""
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def name_of(value: Any) -> str | None:
    """Return the episode of a step; None where the value is not a step."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return None
    return as_label(value.get("episode_id"))


def _begins(value: Mapping[str, Any]) -> bool:
    step = as_int(value.get("step"))
    return step in _FIRST_STEPS if step is not None else value["type"] in _OPENING


@dataclass
class StepShard:
    """The records of one shard's episodes, and what is to be checked of them."""

    shard: Shard
    assigned: Assigned = field(default_factory=Assigned)
    _owned: dict[str, bool] = field(default_factory=dict)
    _others: Counter[str] = field(default_factory=Counter)
    _last: int = 0

    def episodes(self, records: Iterable[Record], report: ReadReport, read: Reader) -> Iterator[Episode]:
        """Yield the episodes that begin in the shard; one that began anew behind it is counted here and
        yielded there."""
        if not self.assigned.disputed:
            yield from read(self.records(records), report)
            return
        visiting = read(self._lines_at(self.assigned.visiting), ReadReport())
        for episode in heapq.merge(read(self.records(records), report), visiting, key=_line_of):
            if self.shard.lines_before < _line_of(episode) <= self._last:
                yield episode

    def records(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield those of `records` (the shard's) that are its episodes', and lines of these behind it."""
        open_names: set[str] = set()
        for record in records:
            self._last = record.line
            name = name_of(record.value)
            if name is None:
                yield record  # counted as malformed by its reader
                continue
            mine = self._owned.get(name)
            if mine is None:
                mine = self._owned[name] = self._is_mine(name, record.value)
                if mine:
                    open_names.add(name)
            if not mine:
                self._others[name] -= 1
                continue
            if record.value["type"] == "episode_end":
                open_names.discard(name)
            yield record
        if self.assigned.disputed:
            open_names = {name for name in open_names if hash_of(name) not in self.assigned.disputed}
        if open_names:
            yield from self._behind(open_names)
        yield from self._lines_at(self.assigned.behind)

    def _lines_at(self, lines: tuple[Position, ...]) -> Iterator[Record]:
        with open(self.shard.path, "rb") as raw:
            for number, offset in lines:
                raw.seek(offset)
                yield Record(self.shard.file, number, parse_json(raw.readline()))

    def _is_mine(self, name: str, value: Mapping[str, Any]) -> bool:
        if self.assigned.disputed and (key := hash_of(name)) in self.assigned.disputed:
            return key in self.assigned.mine
        return not self.shard.start or _begins(value)

    def _behind(self, open_names: set[str]) -> Iterator[Record]:
        """Yield lines of open episodes behind the shard, at most one shard further."""
        newlines = 0
        with open(self.shard.path, "rb") as raw:
            raw.seek(self.shard.start)
            left = self.shard.end - self.shard.start
            while left > 0 and (piece := raw.read(min(left, 2**20))):
                left, newlines = left - len(piece), newlines + piece.count(b"\n")
            at, number, end = self.shard.end, self.shard.lines_before + newlines, self.shard.end + SHARD_BYTES
            while open_names and at < end and (text := raw.readline(2**24)):
                number += 1
                at += len(text)
                try:
                    value = parse_json(text)
                except BadJson:
                    continue
                name = name_of(value)
                if name in open_names:
                    self._others[name] += 1
                    if value["type"] == "episode_end":
                        open_names.discard(name)
                    yield Record(self.shard.file, number, value)

    def counted(self) -> Counted:
        """Return what the parent checks."""
        owned = np.array([hash_of(name) for name, mine in self._owned.items() if mine], np.uint64)
        others = np.array([hash_of(name) for name in self._others], np.uint64)
        return Counted(owned, others, np.array(list(self._others.values()), np.int64))


def disputed(counted: Sequence[Counted]) -> frozenset[int]:
    """Return the episodes of a file that not exactly one shard owns, or whose lines beyond it were not all
    read."""
    owned = np.concatenate([one.owned for one in counted])
    others = np.concatenate([one.others for one in counted])
    owners, times = np.unique(owned, return_counts=True)
    keys, inverse = np.unique(others, return_inverse=True)
    balance = np.bincount(inverse, np.concatenate([one.lines for one in counted]), keys.size)
    wrong = np.concatenate([owners[times > 1], keys[balance != 0], keys[~np.isin(keys, owners)]])
    return frozenset(wrong.tolist())


def _line_of(episode: Episode) -> int:
    return int(episode.source.rpartition(":")[2])


def lines_of(shard: Shard, names: frozenset[int]) -> list[Match]:
    """Return the shard's lines of these episodes."""
    lines = []
    for line in lines_from(shard.path, shard.start, shard.end, shard.lines_before):
        try:
            value: Any = None if line.failure else parse_json(line.text)
        except BadJson:
            continue
        name = name_of(value)
        if name is not None and (key := hash_of(name)) in names:
            lines.append((key, line.number, line.offset, value["type"] == "episode_end"))
    return lines


def assign(names: frozenset[int], lines: Sequence[Sequence[Match]]) -> list[Assigned]:
    """Hand out disputed episodes, each to the shard of its first line. `lines`: as `lines_of`, one list a
    shard."""
    owner: dict[int, int] = {}
    everywhere: dict[int, list[Position]] = {}
    ended, begun_anew = set[int](), set[int]()
    behind: list[list[Position]] = [[] for _ in lines]
    for i, some in enumerate(lines):
        for key, number, offset, end in some:
            if key in ended:
                begun_anew.add(key)
            if end:
                ended.add(key)
            everywhere.setdefault(key, []).append((number, offset))
            if owner.setdefault(key, i) != i:
                behind[owner[key]].append((number, offset))
    assigned = []
    for i, some in enumerate(lines):
        here = {key for key, *_ in some}
        mine = frozenset(key for key in here if owner[key] == i)
        visiting = sorted(position for key in (here - mine) & begun_anew for position in everywhere[key])
        assigned.append(Assigned(names, mine, tuple(behind[i]), tuple(visiting)))
    return assigned

"""Parts of the columnar engine to one table: a shard's numbers, shards added up, then episodes in the order in which they began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.traces.columnar.episodes import Part
from trimtab.traces.columnar.evidence import Places
from trimtab.traces.columnar.spill import Kept, Shelf, loaded, stored
from trimtab.traces.columnar.tools import FAULTS, ToolCounts, judged
from trimtab.traces.table.compact import Names, Widened, narrow
from trimtab.traces.table.interning import Codes
from trimtab.traces.table.language import MARKS
from trimtab.traces.table.prompt_groups import grouped_by_prompt
from trimtab.traces.table.stop_reasons import is_limit
from trimtab.traces.table.types import COUNTS, TraceTable, group_of
from trimtab.typing import Array

_INTS = ("task", "group", "stop", "first_error", "success", "truncated", "wrong", "wrong_turn", "wrong_step")
_FLOATS = ("reward", "tokens", "duration_s", "cost", "time")
_NOT_SEEN = ("schema_errors",)  # a step log declares no schemas, and names no policy version


class ColumnTable:
    """`add` a part, `merge` other tables in the order of their shards, then ask for the `table`. Pickles small: sums and columns.
    With a `shelf`, what is merged lies there; without, in memory."""

    def __init__(self, shelf: Shelf | None = None) -> None:
        self.size, self._shelf = 0, shelf
        self.tools, self.evidence = ToolCounts(shelf), Places()
        self.codes = {"task": Codes(), "group": Codes(), "stop": Codes(256), "first_error": Codes(256)}
        self.columns: dict[str, list[Kept]] = {}
        self.nan_rewards = self.moved = self.copies = self.orphans = self.endless = self.unread = (
            self.again
        ) = 0
        self.told_by_log = False

    def add(self, part: Part, ids: list[str], tools: list[str], errors: list[str]) -> None:
        """Count one part's episodes; `ids` (E,), and the texts that the codes of its calls stand for."""
        n, calls = len(ids), part.calls
        said, failing = [judged(text) for text in errors], calls.error >= 0
        calls.tool = self.tools.coded(calls, tools)
        fault = np.array([error.fault for error in said] or [0])[calls.error]
        fault = np.where(failing, np.where(calls.parsed, fault, FAULTS.index("policy")), 0)
        unknown = np.array([error.unknown_tool for error in said] or [False])[calls.error]
        hits = {
            "failed": failing, "tool_faults": fault == FAULTS.index("tool"), "bad_arguments": ~calls.parsed,
            "unknown_tools": failing & unknown, "unanswered": ~calls.answered & ~failing,
        }  # fmt: skip
        self.evidence.of_part(part, ids, self.tools.names, said, hits)
        columns: dict[str, Array] = {
            name: np.bincount(calls.episode[hit], minlength=n) for name, hit in hits.items()
        }
        loops = np.zeros(n, np.int32)
        loops[list(part.loops)] = [loop.calls for loop, _ in part.loops.values()]
        columns |= {
            "calls": np.bincount(calls.episode, minlength=n), "turns": part.turns, **part.marks,
            "repeats": part.repeats, "loop_calls": loops, "wrong": part.wrong[0], "wrong_turn": part.wrong[1], "wrong_step": part.wrong[2],
        }  # fmt: skip
        columns |= self._ends(part) | {"first_error": self._first_errors(part, [e.kind for e in said], n)}
        columns = {name: narrow(column) for name, column in columns.items()}
        total = part.ends["total"]
        columns |= {
            "reward": part.ends["reward"], "tokens": np.where((np.abs(total) < 2.0**53) & (total == np.floor(total)), total, part.tokens), "duration_s": part.duration_s,
            "cost": _absent(part.ends["cost"]), "time": part.time, "eh": part.eh + part.run.astype(np.uint64), "first": part.first, "prompt": self._prompts(part, columns["group"]),
        }  # fmt: skip
        columns["used"], columns["erred"] = self.tools.count(calls, fault, said, n)
        columns["id_text"], columns["id_size"] = Names.packed(ids)
        self._extend(n, {name: [column] for name, column in columns.items()})
        self.nan_rewards += int(part.ends["odd_reward"].sum())
        self.moved, self.copies = self.moved + part.moved, self.copies + part.copies
        self.orphans, self.endless = self.orphans + part.orphans, self.endless + part.endless
        self.unread, self.again = self.unread + part.unread, self.again + int((part.run > 0).sum())
        self.told_by_log |= part.told

    def _extend(self, size: int, columns: Mapping[str, Sequence[Kept]]) -> None:
        self.size += size
        for name, parts in columns.items():
            self.columns.setdefault(name, []).extend(stored(part, self._shelf) for part in parts)

    def column(self, name: str) -> Array:
        """A column, all episodes; zeros for tools that an earlier part did not know."""
        parts = self.columns.get(name, [])
        if not parts:
            return np.zeros(0, np.int64)
        size = sum(part.shape[0] for part in parts)
        found: Array = np.zeros((size, *_widest(parts)), np.result_type(*{part.dtype for part in parts}))
        at = 0
        for part in parts:
            here = loaded(part, self._shelf)
            found[at : at + len(here)][tuple(map(slice, here.shape))] = here
            at += len(here)
        return found

    @property
    def ids(self) -> Names:
        """Of all episodes, in the order in which they were added."""
        return Names.joined(self.column("id_text"), self.column("id_size"))

    @staticmethod
    def _prompts(part: Part, group: Array) -> Array:
        """(E,) what was asked, of episodes of no group; in one byte each where all are of one."""
        prompt = np.where(group < 0, part.prompt, np.uint64(0))
        return prompt if prompt.any() else prompt.astype(np.uint8)

    def _ends(self, part: Part) -> dict[str, Array]:
        task, group, stop = (part.ends[name].tolist() for name in ("task", "group", "stop"))
        cut = {text: -1 if text is None else int(is_limit(text)) for text in set(stop)}
        groups = [group_of(one, of) for one, of in zip(group, task, strict=True)]
        return {
            "task": _coded(self.codes["task"], task),
            "group": _coded(self.codes["group"], groups),
            "stop": _coded(self.codes["stop"], stop),
            "truncated": np.array([cut[text] for text in stop]),
            "success": part.ends["success"],
        }

    def _first_errors(self, part: Part, kinds: list[str], n: int) -> Array:
        """(E,) code of tool and kind of the first error."""
        at, calls, found = np.flatnonzero(part.calls.error >= 0), part.calls, np.full(n, -1)
        if not at.size:
            return found
        episodes, place = np.unique(calls.episode[at], return_index=True)
        at = at[place]
        pair = calls.tool[at] * len(kinds) + calls.error[at]
        order = np.argsort(calls.row[at])
        pairs, first, inverse = np.unique(pair[order], return_index=True, return_inverse=True)
        codes, names = np.zeros(pairs.size, np.int64), self.tools.names
        for i in np.argsort(first).tolist():
            tool, error = divmod(int(pairs[i]), len(kinds))
            codes[i] = self.codes["first_error"].of(f"{names[tool]}: {kinds[error]}")
        found[episodes[order]] = codes[inverse]
        return found

    def merge(self, other: ColumnTable) -> None:
        """Add another table's episodes behind these. The other is used up; what it has on a shelf must lie on this one's."""
        for name, codes in other.codes.items():
            moved = np.array([*(self.codes[name].of(text) for text in codes), -1])
            if not np.array_equal(moved[:-1], np.arange(moved.size - 1)):
                other.columns[name] = [
                    narrow(moved[loaded(part, other._shelf)]) for part in other.columns.get(name, [])
                ]
        places = self.tools.merge(other.tools)
        if places != list(range(len(places))):
            for name in ("used", "erred"):
                other.columns[name] = [
                    self._placed(loaded(part, other._shelf), places) for part in other.columns.get(name, [])
                ]
        self.evidence.merge(other.evidence)
        self.told_by_log |= other.told_by_log
        self._extend(other.size, other.columns)
        for name in ("nan_rewards", "moved", "copies", "orphans", "endless", "unread", "again"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def _placed(self, column: Array, places: list[int]) -> Array:
        wide = np.zeros((column.shape[0], len(self.tools.rows)), bool)
        for i in range(column.shape[1]):
            wide[:, places[i]] |= column[:, i]
        return wide

    def taken(self, name: str) -> Array:
        """A column, all episodes; it is let go of here."""
        found = self.column(name)
        self.columns.pop(name, None)
        return found

    def table(self) -> TraceTable:
        """The table, episodes in the order of their first lines. The columns are used up."""
        order = np.argsort(self.taken("first"), kind="stable")
        n, width = order.size, len(self.tools.rows)
        self.taken("eh")
        wide: dict[str, Any] = {name: self._wide(name, n, width)[order] for name in ("used", "erred")}
        small = {
            name: narrow(self.taken(name)[order]) for name in (*COUNTS, *MARKS) if name not in _NOT_SEEN
        } | {name: np.zeros(n, np.int8) for name in _NOT_SEEN}
        ints: dict[str, Any] = {name: self.taken(name)[order].astype(np.int32) for name in _INTS}
        floats: dict[str, Any] = {name: self.taken(name)[order].astype(np.float64) for name in _FLOATS}
        ids = self.ids.taken(order)
        ints["group"], groups, by_prompt = grouped_by_prompt(
            ints["group"], list(self.codes["group"]), self.taken("prompt")[order], ids
        )
        for name in ("success", "truncated"):
            ints[name] = ints[name].astype(np.int8)
        return TraceTable(
            ids=ids, counts=Widened({name: small[name] for name in COUNTS}), marks=Widened({name: small[name] for name in MARKS}), **floats, **ints,
            ratio=np.broadcast_to(np.nan, n), version=np.broadcast_to(-1, n), tasks=list(self.codes["task"]), groups=groups, by_prompt=by_prompt,
            stops=list(self.codes["stop"]), first_errors=list(self.codes["first_error"]), tools=self.tools.finished(wide["used"]),
            tool_names=self.tools.names, **wide, nan_rewards=self.nan_rewards, sources=[""] * n, evidence=self.evidence.listed(),
            told_by_log=self.told_by_log, engine="columns",
        )  # fmt: skip

    def _wide(self, name: str, n: int, width: int) -> Array:
        """(E, T) a column of tools, of which early parts know fewer."""
        found = np.zeros((n, width), bool)
        some = self.taken(name)
        found[:, : some.shape[1] if some.ndim > 1 else 0] = some if some.ndim > 1 else False
        return found


def _absent(column: Array) -> Array:
    """Half as many bytes for what no episode says."""
    return column if np.isfinite(column).any() else column.astype(np.float16)


def _widest(parts: Sequence[Kept]) -> tuple[int, ...]:
    """The shape of a row that holds those of all parts."""
    return tuple(max(sizes) for sizes in zip(*(part.shape[1:] for part in parts), strict=True))


def _coded(codes: Codes, texts: list[str | None]) -> Array:
    places = {text: codes.of(text) for text in dict.fromkeys(texts)}
    return np.array([places[text] for text in texts])

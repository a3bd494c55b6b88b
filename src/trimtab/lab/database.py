"""The world: a seeded SQLite table of items; a tool is one SQL query against it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TOOL_NAMES = ("price", "stock", "owner")
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
QUERIES = {name: f"SELECT {name} FROM item WHERE name = ?" for name in TOOL_NAMES}
NOTHING = "none"


def word(rng: np.random.Generator, syllables: int = 2) -> str:
    """A pronounceable lowercase word: consonant and vowel, `syllables` times."""
    picks = rng.random(2 * syllables)
    return "".join(
        chars[int(p * len(chars))] for p, chars in zip(picks, (CONSONANTS, VOWELS) * syllables, strict=True)
    )


@dataclass(frozen=True)
class ToolReply:
    """What a tool found. `error` is None, "unknown_tool" or "no_such_item"; then `value` is "none"."""

    value: str
    error: str | None = None


class World:
    """`items` items with a name, a price, a stock and an owner, generated from `seed`.

    In memory by default; with `path` in a file, which is created if missing and then opened read-only. After
    the table is built the connection refuses to write. The values are random, so only a query can tell them.

    >>> world = World(seed=0, items=50)
    >>> item = world.items[0]
    >>> calls = (("price", item), ("price", "nobody"), ("drop", item))
    >>> [world.query(*call).error for call in calls]
    [None, 'no_such_item', 'unknown_tool']
    """

    def __init__(self, seed: int = 0, items: int = 1500, path: str | Path | None = None) -> None:
        self.seed = seed
        fresh = path is None or not Path(path).exists()
        self._db = sqlite3.connect(":memory:" if path is None else str(path), check_same_thread=False)
        if fresh:
            self._build(seed, items)
        self._db.execute("PRAGMA query_only = ON")
        self.items = [name for (name,) in self._db.execute("SELECT name FROM item ORDER BY rowid")]

    def _build(self, seed: int, items: int) -> None:
        rng = np.random.default_rng([seed, 101])
        names: dict[str, None] = {}
        while len(names) < items:
            names[word(rng)] = None
        rows = [(name, int(rng.integers(100, 1000)), int(rng.integers(10, 100)), word(rng)) for name in names]
        self._db.execute(
            "CREATE TABLE item (name TEXT PRIMARY KEY, price INTEGER, stock INTEGER, owner TEXT)"
        )
        self._db.executemany("INSERT INTO item VALUES (?, ?, ?, ?)", rows)
        self._db.commit()

    def query(self, tool: str, item: str) -> ToolReply:
        """Run the tool's SQL with the item bound as a parameter; a failure is a reply, not an exception."""
        if tool not in QUERIES:
            return ToolReply(NOTHING, "unknown_tool")
        row = self._db.execute(QUERIES[tool], (item,)).fetchone()
        return ToolReply(NOTHING, "no_such_item") if row is None else ToolReply(str(row[0]))

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

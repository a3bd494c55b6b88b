"""Two tables as one, so that what compares kinds of episodes compares logs; a task of the same name is the
same task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trimtab.traces.table.types import COUNTS, TraceTable
from trimtab.typing import Array


def joined(a: TraceTable, b: TraceTable) -> TraceTable:
    """The episodes of both, a's first. Tools have no rows in it: those of either log stay with that log.

    >>> from trimtab.traces.core.episode import Episode
    >>> from trimtab.traces.table.build import tabulate
    >>> both = joined(tabulate([Episode(id="x", task="t")]), tabulate([Episode(id="x", task="u"),
    ...     Episode(id="y", task="t")]))
    >>> both.ids, both.tasks, both.task.tolist()
    (['x', 'x', 'y'], ['t', 'u'], [0, 1, 0])
    """
    codes = {n: _codes(getattr(a, n), getattr(b, n)) for n in (*_FIELDS.values(), "tool_names")}
    recoded: dict[str, Any] = {field: _placed(a, b, field, codes[n][1]) for field, n in _FIELDS.items()}
    named: dict[str, Any] = {name: list(names) for name, (names, _) in codes.items()}
    wide: dict[str, Any] = {name: _wide(a, b, name, codes["tool_names"]) for name in ("used", "erred")}
    both: dict[str, Any] = {name: np.concatenate([getattr(a, name), getattr(b, name)]) for name in _COLUMNS}
    return TraceTable(
        ids=[*a.ids, *b.ids],
        counts={name: np.concatenate([a.counts[name], b.counts[name]]) for name in COUNTS},
        marks={name: np.concatenate([a.marks[name], b.marks[name]]) for name in a.marks if name in b.marks},
        **both, **recoded, **wide, **named, tools={}, declared_tools=a.declared_tools | b.declared_tools,
        nan_rewards=a.nan_rewards + b.nan_rewards,
        num_checked_schemas=a.num_checked_schemas + b.num_checked_schemas,
        sources=[*a.sources, *b.sources], error_flags_in_log=a.error_flags_in_log or b.error_flags_in_log,
    )  # fmt: skip


_COLUMNS = (
    "reward", "success", "truncated", "tokens", "duration_s", "cost", "ratio", "time", "symptom",
    "symptom_turn", "symptom_step",
)  # fmt: skip
_FIELDS = {
    "task": "tasks", "group": "groups", "stop": "stops", "first_error": "first_errors", "version": "versions",
    "policy": "policies",
}  # fmt: skip


def _codes(a: Sequence[str], b: Sequence[str]) -> tuple[dict[str, int], Array]:
    """Return all names with their codes, and the codes of b's names among them."""
    names = {name: i for i, name in enumerate(a)}
    for name in b:
        names.setdefault(name, len(names))
    return names, np.array([names[name] for name in b], np.int64)


def _placed(a: TraceTable, b: TraceTable, field: str, moved: Array) -> Array:
    mine: Array = getattr(b, field)
    return np.concatenate([getattr(a, field), np.where(mine >= 0, moved[mine] if moved.size else -1, -1)])


def _wide(a: TraceTable, b: TraceTable, name: str, codes: tuple[dict[str, int], Array]) -> Array:
    n = a.num_episodes
    used = np.zeros((n + b.num_episodes, len(codes[0])), bool)
    used[:n, : len(a.tool_names)] = getattr(a, name)
    used[n:, codes[1]] = getattr(b, name)
    return used

"""What changed while the log was written: the second half of the episodes against the first, later policies
against earlier ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.measure.traces.contrasts import Contrast, contrasts
from trimtab.measure.traces.episode_times import in_order, version_ranks
from trimtab.traces.table.types import TraceTable
from trimtab.typing import Bool


@dataclass(frozen=True)
class Drift:
    """Contrasts of the episodes `a`, the later ones, less those of `b`. `by`: time, order or
    policy_version."""

    by: str
    a: str
    b: str
    contrasts: list[Contrast]


def drifts(table: TraceTable, solved: npt.NDArray[Any] | None) -> list[Drift]:
    """The splits that the log allows; one that repeats another is left out. `solved` as `TraceTable.solved`,
    None where unknown."""
    drifts: list[Drift] = []
    seen: set[bytes] = set()
    for by, a, b, late, early in _splits(table):
        key = late.tobytes() + early.tobytes()
        if key not in seen:
            seen.add(key)
            drifts.append(Drift(by, a, b, contrasts(table, late, early, outcome=solved)))
    return drifts


def _splits(table: TraceTable) -> Iterator[tuple[str, str, str, Bool, Bool]]:
    versions = _by_version(table)
    if versions is not None:
        yield versions
    order, by = in_order(table)
    late = np.zeros(table.num_episodes, bool)
    late[order[table.num_episodes // 2 :]] = True
    yield by, "the second half", "the first half", late, ~late


def _by_version(table: TraceTable) -> tuple[str, str, str, Bool, Bool] | None:
    """Cut between two versions so that the sides are as equal as can be; versions in the order of
    `version_ranks`."""
    known = table.version >= 0
    if len(set(table.version[known].tolist())) < 2:
        return None
    ranks = version_ranks(table)
    rank = np.where(known, ranks[table.version], -1)
    cuts = np.unique(rank[known])[1:]
    cut = min(cuts.tolist(), key=lambda c: abs(int((rank[known] >= c).sum()) * 2 - int(known.sum())))
    late, early = known & (rank >= cut), known & (rank < cut)
    names = sorted(table.versions, key=lambda name: ranks[table.versions.index(name)])
    sides = [
        [n for n in names if bool(ranks[table.versions.index(n)] >= cut) is side] for side in (False, True)
    ]
    return "policy_version", f"policies {_span(sides[1])}", f"policies {_span(sides[0])}", late, early


def _span(names: list[str]) -> str:
    return names[0][:40] if len(names) == 1 else f"{names[0][:40]} to {names[-1][:40]}" if names else "none"

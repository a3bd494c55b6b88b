"""The first places where each thing was seen, over shards: one an episode, five of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.traces.columnar.calls import Calls
from trimtab.traces.columnar.episodes import Part
from trimtab.traces.columnar.tools import Judged
from trimtab.traces.table.types import MAX_EVIDENCE, Evidence
from trimtab.typing import Array

_LOOKED_AT = 50  # first places of a thing in a shard, from which those of different episodes are taken
_Row = tuple[int, str, int, str]  # row, episode, step, text


class Places:
    """`found`: what -> (row, evidence) of the first ones. `merge` keeps the first of both."""

    def __init__(self) -> None:
        self.found: dict[str, list[tuple[int, Evidence]]] = {}

    def of_part(self, part: Part, ids: list[str], names: list[str], errors: list[Judged], hits: dict[str, Array]) -> None:  # fmt: skip
        """Keep what `hits` (C,) of the calls, repeats, loops, void turns and odd rewards; `names` of the calls' tools."""
        calls = part.calls

        def text(at: int) -> str:
            code = int(calls.error[at])
            came = errors[code].text if code >= 0 else "a result" if calls.answered[at] else "no result"
            return f"{names[calls.tool[at]]}(…) -> {came}"

        def rows(places: Array) -> list[_Row]:
            return [
                (int(calls.row[i]), ids[calls.episode[i]], int(calls.step[i]), text(i))
                for i in places.tolist()
            ]

        for what, hit in hits.items():
            self._keep(what, rows(_first(np.flatnonzero(hit), calls)))
        failed = np.flatnonzero(calls.error >= 0)
        for tool in np.unique(calls.tool[failed]).tolist():
            mine = _first(failed[calls.tool[failed] == tool], calls)
            self._keep(f"failed/{names[tool]}", rows(mine))
        self._keep("repeats", rows(_first(part.again[part.again >= 0], calls)))
        for what, marked in part.marked.items():
            first = {e: (row, ids[e], step, _said(what, of, errors)) for row, e, step, of in reversed(marked)}
            self._keep(what, list(first.values()))
        loops = list(part.loops.items())[:_LOOKED_AT]
        blocks = {
            at: f"{loop.calls} calls in a block of {loop.period}, from {text(at)}" for _, (loop, at) in loops
        }
        self._keep("loop_calls", [(*row[:3], blocks[at]) for at in blocks for row in rows(np.array([at]))])
        odd = np.flatnonzero(part.ends["odd_reward"])[:_LOOKED_AT].tolist()
        self._keep(
            "nan_rewards",
            [(int(part.first[e]), ids[e], -1, f"reward {part.ends['reward'][e]}") for e in odd],
        )

    def _keep(self, what: str, rows: list[_Row]) -> None:
        if rows:
            self._add(what, [(row, Evidence(episode, step, text)) for row, episode, step, text in rows])

    def _add(self, what: str, rows: list[tuple[int, Evidence]]) -> None:
        kept = sorted([*self.found.get(what, []), *rows], key=lambda item: item[0])
        one_each = {item[1].episode: item for item in reversed(kept)}
        self.found[what] = sorted(one_each.values(), key=lambda item: item[0])[:MAX_EVIDENCE]

    def merge(self, other: Places) -> None:
        """Keep the first of both."""
        for what, rows in other.found.items():
            self._add(what, rows)

    def listed(self) -> dict[str, list[Evidence]]:
        """Without rows."""
        return {what: [evidence for _, evidence in kept] for what, kept in self.found.items()}


def _said(what: str, of: Any, errors: list[Judged]) -> str:
    if what == "refusals":
        return str(errors[of].text)
    if what == "switches":
        return f"{of} comes in"
    return (
        "the last assistant turn is empty"
        if what == "empty_answers"
        else "an assistant turn without text or call"
    )


def _first(places: Array, calls: Calls) -> Array:
    """The first place, by step, in each of the first few episodes; `places` go up."""
    looked = places[:_LOOKED_AT]
    return looked[np.sort(np.unique(calls.episode[looked], return_index=True)[1])][:MAX_EVIDENCE]

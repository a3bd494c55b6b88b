"""Do a tool's failures come in bursts, and do they come when many episodes run at once?

Both are asked of episodes that call the tool: did a call of it fail? Under the null, tasks are exchangeable: what happened in one task's
attempts could have happened in those of another with as many, so hard tasks whose attempts run side by side are no burst. The p value is
of permutations of whole tasks, stopped early where it cannot become small (Besag and Clifford 1991).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from trimtab.catalog import bound
from trimtab.measure.trace_maker import Maker, Measured
from trimtab.stats.dot import dot
from trimtab.traces.table import Evidence, TraceTable

__all__ = ["bursts", "in_order", "permutation_p", "running_at_once", "worst_window"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Statistic = Callable[[Floats], float]

_PERMUTATIONS, _EXCEEDED = 499, 10
_MOST_TOOLS = 8  # of those that fail in most episodes; what is looked at is corrected for
_MOST_EPISODES = 20_000  # the last ones that call the tool
_LEAST_FAILED = 5
_NARROWEST = 8


@dataclass(frozen=True)
class _Case:
    """One tool's episodes in order of time: places in the table, (n,) failed, tasks, episodes at once (None: unknown)."""

    tool: str
    places: Ints
    failed: Floats
    tasks: Ints
    at_once: Floats | None


def in_order(table: TraceTable) -> tuple[Ints, str]:
    """(E,) places of the episodes as they began, and by what: the time where every episode has one, else the log's order."""
    if table.num_episodes and np.isfinite(table.time).all():
        return np.argsort(table.time, kind="stable"), "time"
    return np.arange(table.num_episodes), "order"


def running_at_once(table: TraceTable) -> Floats | None:
    """(E,) how many episodes were open as each began, itself included; None without times and durations of all.

    An episode that ends the moment another begins is still open.
    """
    if not np.isfinite(table.time).all() or not np.isfinite(table.duration_s).all():
        return None
    began, ended = np.sort(table.time), np.sort(table.time + table.duration_s)
    open_now = np.searchsorted(began, table.time, "right") - np.searchsorted(ended, table.time, "left")
    return open_now.astype(np.float64)


def worst_window(failed: Floats) -> tuple[float, int, int]:
    """The window of 8, 16, 32, ... episodes, up to half of all, with the most failures beyond its share: deviates, first place, end.

    >>> z, first, end = worst_window(np.array([0.0] * 40 + [1.0] * 8 + [0.0] * 40))
    >>> round(z, 1), first, end
    (9.4, 40, 48)
    """
    n, total = failed.size, np.r_[0.0, np.cumsum(failed)]
    p, best = total[-1] / n, (-math.inf, 0, 0)
    width = _NARROWEST
    while width <= n // 2 and 0 < p < 1:
        sums = total[width:] - total[:-width]
        at = int(sums.argmax())
        z = float((sums[at] - width * p) / math.sqrt(width * p * (1 - p) * (1 - width / n)))
        best = max(best, (z, at, at + width))
        width *= 2
    return best


def permutation_p(failed: Floats, tasks: Ints, statistic: Statistic, rng: np.random.Generator) -> float:
    """How often the statistic is as large or larger when tasks with as many episodes change places.

    Tasks are told apart by `tasks` (n,) and go by the place of their first episode, so what they are numbered by does not matter.
    """
    _, first, task, sizes = np.unique(tasks, return_index=True, return_inverse=True, return_counts=True)
    by_place = np.argsort(first)
    sizes, task = sizes[by_place], np.argsort(by_place)[task]
    order = np.lexsort((np.arange(failed.size), task, sizes[task]))
    ends = np.cumsum(np.bincount(sizes[task]))
    blocks = [
        (
            int(a),
            int(b),
            (-1, size) if size > 1 else -1,
        )  # one column permutes several times slower than a flat array
        for size, (a, b) in enumerate(zip(np.r_[0, ends], ends, strict=False))
        if b > a
    ]
    laid, observed, exceeded = failed[order], statistic(failed), 0
    again = np.empty_like(failed)
    for number in range(1, _PERMUTATIONS + 1):
        mixed = [rng.permutation(laid[a:b].reshape(shape)).ravel() for a, b, shape in blocks]
        again[order] = np.concatenate(mixed)
        exceeded += statistic(again) >= observed - 1e-9
        if exceeded == _EXCEEDED:
            return _EXCEEDED / number
    return (exceeded + 1) / (_PERMUTATIONS + 1)


def bursts(maker: Maker) -> Iterator[Measured]:
    """Per tool, how much more of its episodes fail inside the worst window, and among those begun while more ran than usual; 0 where
    that is no more than chance at the family's level."""
    table = maker.table
    cases = list(_cases(maker))
    judged = [case for case in cases if _LEAST_FAILED <= case.failed.sum() < case.failed.size]
    judged = sorted(judged, key=lambda case: (-case.failed.sum(), case.tool))[:_MOST_TOOLS]
    family = sum(1 + _varies(case.at_once) for case in judged)
    level = bound("trace_level") / max(family, 1)
    if not cases:
        yield maker.value("traces/burst_excess", math.nan, 0, reason="no tool is called in enough episodes")
        yield maker.value("traces/load_excess", math.nan, 0, reason="no tool is called in enough episodes")
    for case in cases:
        if not any(case is one for one in judged):
            few = f"{case.failed.sum():.0f} of {case.failed.size:,} episodes fail: too few, or too many, to come in bursts"
            yield maker.value("traces/burst_excess", 0.0, case.failed.size, f"tool/{case.tool}", text=few)
            yield _no_load(maker, case) or maker.value(
                "traces/load_excess", 0.0, case.failed.size, f"tool/{case.tool}", text=few
            )
            continue
        yield _burst(maker, table, case, level)
        yield _no_load(maker, case) or _load(maker, table, case, level)


def _cases(maker: Maker) -> Iterator[_Case]:
    table = maker.table
    order, _ = in_order(table)
    at_once = running_at_once(table)
    for place, tool in enumerate(table.tool_names):
        mine = order[table.used[order, place]][-_MOST_EPISODES:]
        if mine.size >= bound("trace_episodes"):
            load = None if at_once is None else at_once[mine]
            yield _Case(tool, mine, table.erred[mine, place] * 1.0, maker.clusters[mine], load)


def _rng(question: str, case: _Case) -> np.random.Generator:
    """Of its own for each tool and question, so that neither their order nor the other tools change a p."""
    seed = blake2b(f"{question}/{case.tool}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(seed, "big"))


def _burst(maker: Maker, table: TraceTable, case: _Case, level: float) -> Measured:
    p = permutation_p(case.failed, case.tasks, lambda failed: worst_window(failed)[0], _rng("burst", case))
    _, first, end = worst_window(case.failed)
    inside, outside = case.failed[first:end], np.r_[case.failed[:first], case.failed[end:]]
    excess = float(inside.mean() - outside.mean()) if p <= level else 0.0
    ids = case.places[first:end]
    when = _when(table, int(ids[0]), int(ids[-1]))
    text = (
        f"{inside.sum():.0f} of {inside.size} episodes that call it fail {when}, {100 * outside.mean():.0f} % of the others"
        f" ({'p ' if p <= level else 'chance: p '}{p:.2g})"
    )
    found = [_place(table, int(i), case.tool) for i in ids[inside > 0][:5]]
    return maker.value(
        "traces/burst_excess", excess, case.failed.size, f"tool/{case.tool}", evidence=found, text=text
    )


def _load(maker: Maker, table: TraceTable, case: _Case, level: float) -> Measured:
    load = case.at_once
    assert load is not None
    away = load - load.mean()
    p = permutation_p(case.failed, case.tasks, lambda failed: dot(failed, away), _rng("load", case))
    busy = load > np.median(load) if (load > np.median(load)).any() else load >= np.median(load)
    high, low = case.failed[busy].mean(), case.failed[~busy].mean()
    excess = float(high - low) if p <= level else 0.0
    text = (
        f"{100 * high:.0f} % of the episodes that call it fail when more than {np.median(load):g} run at once, {100 * low:.0f} % otherwise"
        f" ({'p ' if p <= level else 'chance: p '}{p:.2g})"
    )
    found = [_place(table, int(i), case.tool) for i in case.places[busy & (case.failed > 0)][:5]]
    return maker.value(
        "traces/load_excess", excess, load.size, f"tool/{case.tool}", evidence=found, text=text
    )


def _no_load(maker: Maker, case: _Case) -> Measured | None:
    if case.at_once is None:
        why = "not every episode has a time and a duration"
    elif not _varies(case.at_once):
        why = "as many episodes run at once throughout"
    else:
        return None
    return maker.value("traces/load_excess", math.nan, 0, f"tool/{case.tool}", reason=why)


def _varies(load: Floats | None) -> bool:
    return load is not None and bool(load.min() < load.max())


def _when(table: TraceTable, first: int, last: int) -> str:
    if not np.isfinite(table.time).all():
        return f"from {table.ids[first]} to {table.ids[last]}"
    texts = [_clock(table.time[i]) for i in (first, last)]
    return f"begun from {texts[0]} to {texts[1]}"


def _clock(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s"


def _place(table: TraceTable, i: int, tool: str) -> Evidence:
    when = f", begun {_clock(table.time[i])}" if math.isfinite(table.time[i]) else ""
    return Evidence(table.ids[i], -1, f"a call of {tool} fails{when}", table.sources[i])

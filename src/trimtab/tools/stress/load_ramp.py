"""A stress test: ramp the load, find the knee and the load that holds the objective, forecast the cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from trimtab.catalog import bound
from trimtab.errors import ToolError
from trimtab.tools.circuit_breaker import BreakerOptions
from trimtab.tools.executor import Executor, ExecutorOptions
from trimtab.tools.retries import RetryOptions
from trimtab.tools.stress.call_mix import CallMix
from trimtab.tools.stress.load_capacity import Capacity, capacity_of
from trimtab.tools.stress.load_loops import LoadPoint, closed_loop, open_loop
from trimtab.tools.stress.target_health import (
    require_alive,
    require_no_exit,
    require_survived,
    too_slow,
)

_BISECTIONS = 5

RAW = ExecutorOptions(
    limit=10**6, retry=RetryOptions(attempts=1, give_up_s=0.0), breaker=BreakerOptions(failures=10**9)
)
"""Options of the executor under test: nothing of ours delays calls, retries them or spares the target."""


@dataclass(frozen=True)
class Objective:
    """What the tools must hold, with `concurrency` callers at least. NaN: nothing is asked."""

    p99_s: float = float("nan")
    error_rate: float = float("nan")
    concurrency: int = 1

    @property
    def stated(self) -> bool:
        """Is anything asked?"""
        return not (math.isnan(self.p99_s) and math.isnan(self.error_rate))

    def met(self, point: LoadPoint) -> bool:
        """Does a level of load hold it? One without an answer does not."""
        slow = not math.isnan(self.p99_s) and not point.latency.quantile(99) <= self.p99_s
        failing = not math.isnan(self.error_rate) and not point.error_frac <= self.error_rate
        return bool(point.answered) and not slow and not failing


@dataclass(frozen=True)
class StressOptions:
    """Settings of a stress test."""

    seconds: float = 3.0  # of each level of load
    max_concurrency: int = 128
    rate: float = float("nan")  # arrivals a second of the open loop; NaN: 0.7 of the highest throughput
    objective: Objective = field(default_factory=Objective)
    calls_per_rollout: float = float("nan")  # NaN: the trace's mean, 4 without one
    rollouts: int = 256  # of a training step
    cost_per_call: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class StressResult:
    """What a stress test showed."""

    closed: list[LoadPoint]
    opened: LoadPoint
    objective: Objective
    capacity: Capacity
    holds: int | None  # most callers that hold the objective; None where none was asked
    forecast: dict[str, float]
    rate_stated: bool = False  # was the open loop's rate asked for?

    @property
    def knee(self) -> float:
        """Callers beyond which calls only wait; NaN where the load did not saturate the target."""
        return self.capacity.knee

    @property
    def peak(self) -> float:
        """Highest rate of answered calls, a second."""
        return self.capacity.peak

    @property
    def met(self) -> bool:
        """Is the objective held, by the callers it asks for and by the open loop at a stated rate?"""
        return self.holds is None or self.holds >= self.objective.concurrency

    def row(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return {
            "points": [point.row() for point in self.closed], "open_loop": self.opened.row(),
            "open_loop_histogram": self.opened.latency.encoded(), "knee_concurrency": self.knee,
            "knee_reason": self.capacity.knee_reason, "peak_throughput": self.peak,
            "reached_concurrency": self.capacity.reached, "failures": self.failures(),
            "rate_stated": self.rate_stated, "objective": asdict(self.objective),
            "objective_stated": self.objective.stated,
            "holds_concurrency": self.holds, "objective_met": self.met, "forecast": self.forecast,
        }  # fmt: skip

    def failures(self) -> list[dict[str, Any]]:
        """The first failed call of each tool and kind, with how many there were at all levels."""
        first: dict[tuple[str, str], dict[str, Any]] = {}
        for point in (*self.closed, self.opened):
            for key, failure in point.failures.items():
                row = first.setdefault(key, asdict(failure) | {"count": 0})
                row["count"] += failure.count
        return sorted(first.values(), key=lambda row: (-row["count"], row["tool"], row["kind"]))


async def run_stress(
    executor: Executor, mix: CallMix, options: StressOptions, say: Callable[[str], None] | None = None
) -> StressResult:
    """Ramp callers up by doubling, look closer where the objective breaks, then run an open loop.

    Args:
        executor: Made with `RAW` options.
        mix: Calls to make.
        options: Times, bounds, objective.
        say: Takes a line about each level.

    Returns:
        The result.

    Raises:
        ToolError: The target does not answer at all, not within a level's time, or died meanwhile.

    Example:
        result = await run_stress(executor, mix, StressOptions(objective=Objective(p99_s=0.25)))
        result.knee, result.holds
    """
    await require_alive(executor, mix, options.seed)
    points: dict[int, LoadPoint] = {}

    async def measure(concurrency: int) -> LoadPoint:
        if concurrency not in points:
            point = points[concurrency] = await closed_loop(
                executor, mix, concurrency=concurrency, seconds=options.seconds, seed=options.seed
            )
            require_no_exit(point)
            if say is not None:
                say(f"{concurrency} callers: {point.throughput:.1f} calls/s, {point.error_frac:.1%} errors")
        return points[concurrency]

    await _ramp(measure, options)
    holds = await _holding(measure, points, options) if options.objective.stated else None
    shown = capacity_of(points)
    if not shown.peak:
        await require_survived(executor, mix, points)
        raise ToolError(too_slow(points, options.seconds))
    rate = options.rate if not math.isnan(options.rate) else max(bound("stress_open_load") * shown.peak, 0.1)
    if say is not None:
        say(f"open loop: {rate:.1f} arrivals a second for {2 * options.seconds:g} s")
    opened = await open_loop(executor, mix, rate=rate, seconds=2 * options.seconds, seed=options.seed)
    require_no_exit(opened)
    if not opened.answered:
        await require_survived(executor, mix, points)
    if holds is not None and not math.isnan(options.rate) and not options.objective.met(opened):
        holds = 0
    closed = [points[key] for key in sorted(points)]
    return StressResult(
        closed,
        opened,
        options.objective,
        shown,
        holds,
        _forecast(closed, shown, mix, options),
        not math.isnan(options.rate),
    )


async def _ramp(measure: Callable[[int], Any], options: StressOptions) -> None:
    """Double the callers until two doublings brought nothing, or almost nothing is answered."""
    best, flat, concurrency = 0.0, 0, 1
    while concurrency <= options.max_concurrency and flat < 2:
        point = await measure(concurrency)
        flat = flat + 1 if point.throughput <= bound("stress_flat") * best else 0
        best = max(best, point.throughput)
        if point.error_frac > 0.9:
            return
        concurrency *= 2


async def _holding(
    measure: Callable[[int], Any], points: dict[int, LoadPoint], options: StressOptions
) -> int:
    """The most callers that hold the objective, by bisection between levels that do and do not."""
    goal = options.objective
    if goal.concurrency <= options.max_concurrency:
        await measure(goal.concurrency)
    good = max((c for c, point in points.items() if goal.met(point)), default=0)
    bad = min((c for c, point in points.items() if c > good and not goal.met(point)), default=None)
    while bad is None and 2 * good <= options.max_concurrency:  # the ramp ended before it broke
        if goal.met(await measure(2 * good)):
            good *= 2
        else:
            bad = 2 * good
    for _ in range(_BISECTIONS):
        if bad is None or bad - good <= max(1, good // 16):
            break
        middle = (good + bad) // 2
        if goal.met(await measure(middle)):
            good = middle
        else:
            bad = middle
    return good


def _forecast(
    closed: list[LoadPoint], shown: Capacity, mix: CallMix, options: StressOptions
) -> dict[str, float]:
    """Cost of a rollout and a step of training, at the measured level nearest the knee."""
    stated = [options.calls_per_rollout, mix.calls_per_rollout, 4.0]
    calls = next(value for value in stated if not math.isnan(value))
    level = shown.reached if math.isnan(shown.knee) else shown.knee
    near = min(closed, key=lambda point: abs(point.concurrency - level))
    errors = sum((Counter(point.errors) for point in closed), Counter[str]())
    broken = sum(count for kind, count in errors.items() if kind.startswith("infrastructure"))
    total = sum(point.calls for point in closed)
    per_call = broken / total if total else math.nan
    return {
        "calls_per_rollout": calls,
        "tool_seconds_per_rollout": calls * near.latency.mean(),
        "at_concurrency": near.concurrency,
        "rollouts_per_step": options.rollouts,
        "min_tool_seconds_per_step": calls * options.rollouts / shown.peak if shown.peak else math.inf,
        "cost_per_rollout": calls * options.cost_per_call,
        "broken_rollout_frac": 1 - (1 - per_call) ** calls,
    }

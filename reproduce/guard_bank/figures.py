"""What each arm saved: figures and table of the guard test, over complete seeds alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import comb
from pathlib import Path

import numpy as np

from reproduce.collapse_bank.figures import first_commit, lower_bound
from reproduce.guard_bank.causes import ALL_ARMS, CAUSES, HALVES, LAST, arms_of, half_of
from reproduce.guard_bank.guarded import CHANGES
from reproduce.guard_bank.records import Record
from reproduce.guard_bank.remedies import REMEDIES

__all__ = [
    "ALTERNATIVES",
    "MAIN",
    "PAGES",
    "Bank",
    "figures_of",
    "registered_before_data",
    "sign_test",
    "table_of",
]

PAGES = {"test": Path("docs") / "guard-test.md", "second": Path("docs") / "guard-second-test.md"}
"""Test -> the page that registers it."""
MAIN = tuple(cause for cause, fault in CAUSES.items() if fault.arms == ALL_ARMS)
"""Causes that are run with every arm; the figures are of these."""
ALTERNATIVES = (*REMEDIES, "best_checkpoint")
SAVED = 0.90
"""A run is saved whose last 30 steps reach this share of the mean of the runs without the fault."""
INTACT = 8
"""A stopped run is intact whose last 8 steps reach that level. The column `stopped` counts them; they are not saved all the same."""

Figures = dict[str, float | int | None]


class Bank:
    """The complete seeds of one half, and what counts as saved among them."""

    def __init__(self, records: Iterable[Record], causes: Sequence[str] = tuple(CAUSES)) -> None:
        runs = {(r["cause"], r["seed"], r["arm"]): r for r in records}
        seeds = sorted({seed for _, seed, _ in runs})
        self.causes = tuple(causes)
        self.seeds = [seed for seed in seeds if _is_complete(runs, seed, self.causes)]
        self.runs = {key: run for key, run in runs.items() if key[1] in self.seeds}
        ends = [end_of(run) for run in self.of("healthy", "none")]
        self.level = float(np.mean(ends)) if ends else float("nan")
        """Mean reward of the last steps of the runs without a fault."""

    def of(self, cause: str, arm: str) -> list[Record]:
        """Return the runs of an arm, by seed."""
        return [run for (c, _, a), run in sorted(self.runs.items()) if (c, a) == (cause, arm)]

    def collapsing(self, cause: str) -> list[int]:
        """Return the seeds whose run with the fault collapses."""
        return [run["seed"] for run in self.of(cause, "none") if run["notes"]["collapses"]]

    def saved(self, run: Record) -> bool:
        """Return whether a run that went to its end ended well. A stopped run is not saved."""
        return run["stopped"] is None and not run["ended_early"] and end_of(run) >= SAVED * self.level

    def outcomes(self, cause: str, arm: str) -> list[bool]:
        """Return whether each collapsing seed was saved by an arm."""
        return [self.saved(self.runs[cause, seed, arm]) for seed in self.collapsing(cause)]


def end_of(run: Record) -> float:
    """Return the mean reward of the last steps of a run."""
    return float(np.mean(run["rewards"][-LAST:])) if run["rewards"] else float("nan")


def _is_complete(runs: dict[tuple[str, int, str], Record], seed: int, causes: Sequence[str]) -> bool:
    for cause in ("healthy", *causes):
        none = runs.get((cause, seed, "none"))
        if none is None:
            return False
        if cause != "healthy" and not none["notes"]["collapses"]:
            continue
        if any((cause, seed, arm) not in runs for arm in arms_of(cause, seed)):
            return False
    return True


def figures_of(bank: Bank) -> Figures:
    """Return the figures of the causes with all arms; None where nothing was run."""
    arms = [arm for arm in ALL_ARMS if any(bank.of(cause, arm) for cause in MAIN)]
    pooled = {arm: [hit for cause in MAIN for hit in bank.outcomes(cause, arm)] for arm in arms}
    guard = pooled.get("guard", [])
    touched = [any(row["action"] in CHANGES for row in run["actions"]) for run in bank.of("healthy", "guard")]
    others = [share(pooled[arm]) for arm in ALTERNATIVES if arm in pooled]
    backs = [
        row["to_step"] < run["fault_step"]
        for cause in bank.causes
        for run in bank.of(cause, "guard")
        for row in run["actions"]
        if row["action"] == "rollback" and row["step"] >= run["fault_step"]
    ]
    return {
        "test_seeds": len(bank.seeds) or None,
        "collapses": len(guard) or None,
        "saved_frac": share(guard),
        "saved_frac_lower": lower_bound(sum(guard), len(guard)),
        "saved_frac_rerun": share([bank.saved(run) for run in bank.of("healthy", "rerun")]),
        "saved_frac_none": share(pooled.get("none", [])),
        "saved_frac_placebo": share(pooled.get("placebo", [])),
        "saved_frac_delayed": share(pooled.get("delayed", [])),
        "saved_frac_oracle": share(pooled.get("oracle", [])),
        "saved_frac_best_alternative": max((o for o in others if o is not None), default=None),
        "healthy_touched_frac": share(touched),
        "restored_before_onset_frac": share(backs),
    }


def share(hits: Sequence[bool]) -> float | None:
    """Return the fraction of hits; None of none."""
    return sum(hits) / len(hits) if hits else None


def sign_test(one: Sequence[bool], other: Sequence[bool]) -> float:
    """Return the exact one-sided p that `one` is saved more often than `other`, paired by seed (McNemar).

    Example:
        >>> sign_test([True] * 5, [False] * 5)
        0.03125
    """
    ahead = sum(a and not b for a, b in zip(one, other, strict=True))
    behind = sum(b and not a for a, b in zip(one, other, strict=True))
    n = ahead + behind
    return sum(comb(n, k) for k in range(ahead, n + 1)) / 2**n


def table_of(bank: Bank) -> str:
    """Return one line a cause and arm: saved of collapsing runs, mean end, p of guard against it, steps and CPU it cost."""
    lines = [
        f"{len(bank.seeds)} complete seeds; runs without a fault end at {bank.level:.3f}, saved is {SAVED * bank.level:.3f} and more",
        f"{'cause':16s} {'arm':16s} saved     end  guard better p  actions  stopped  skipped  dropped  CPU-s",
    ]
    for cause in ("healthy", *bank.causes):
        for arm in arms_of(cause):
            runs = bank.of(cause, arm)
            if runs:
                lines.append(f"{cause:16s} {arm:16s} {_row(bank, cause, arm, runs)}")
    return "\n".join(lines)


def _row(bank: Bank, cause: str, arm: str, runs: Sequence[Record]) -> str:
    healthy = cause == "healthy"
    chosen = runs if healthy else [bank.runs[cause, seed, arm] for seed in bank.collapsing(cause)]
    hits = [bank.saved(run) for run in chosen]
    p = "-"
    if not healthy and arm != "guard" and chosen:
        p = f"{sign_test(bank.outcomes(cause, 'guard'), hits):.3f}"
    ends = mean(chosen, end_of)
    actions = mean(chosen, lambda run: sum(row["action"] in CHANGES for row in run["actions"]))
    counts = [mean(chosen, lambda run, name=name: run[name]) for name in ("skipped", "dropped", "cpu_s")]  # type: ignore[misc]
    stops = [run for run in chosen if run["stopped"] is not None]
    intact = sum(float(np.mean(run["rewards"][-INTACT:])) >= SAVED * bank.level for run in stops)
    stopped = f"{intact} of {len(stops)}" if stops else "-"
    return f"{sum(hits):2d}/{len(hits):<2d} {ends:8.2f} {p:>15s} {actions:8.1f} {stopped:>8s} {counts[0]:8.1f} {counts[1]:8.1f} {counts[2]:6.0f}"


def mean(runs: Sequence[Record], value: Callable[[Record], float]) -> float:
    """Return the mean of a value over runs, nan for none."""
    return float(np.mean([value(run) for run in runs])) if runs else float("nan")


def registered_before_data(root: Path, store: Path, half: str = "test") -> int | None:
    """Return 1 when a test's page was committed before any archive of its seeds, 0 when not, None where one is missing."""
    page = first_commit(root, PAGES[half])
    inside = store.is_relative_to(root)
    data = [
        first_commit(root, path.relative_to(root)) for path in sorted(store.glob(f"*-{half}.zip")) if inside
    ]
    times = [time for time in data if time is not None]
    return None if page is None or not times else int(page < min(times))


def halves(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the records of each test and of tuning seeds."""
    return {half: [r for r in records if half_of(r["seed"]) == half] for half in (*HALVES, "tuning")}

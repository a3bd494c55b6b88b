"""The figures of the registered test, and of the tuning seeds beside them, from the outcomes of recorded runs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from math import comb
from pathlib import Path
from statistics import median

from reproduce.collapse_bank.outcomes import BEFORE, LEAD, Outcome
from reproduce.collapse_bank.regimes import CAUSES, FAULTS
from trimtab.detect.rules.all_rules import ALIASES, RULES

__all__ = ["STALE", "figures_of", "lower_bound", "page_is_committed", "registered_before_data", "table_of"]

STALE = ("stale_fault", "frozen_fault", "quantised_fault", "stale_ramp", "stale_constant", "quantised")
"""Causes whose rollouts come from other weights than the trained ones."""
AVERAGES = frozenset(rule.name for rule in RULES if rule.kind == "aggregate")
"""Rules on averages over all tokens or sequences."""
PAGE = Path("docs") / "early-warning-test.md"
PAGES = {
    "test": (PAGE, "--diff-filter=A"),
    "second": (PAGE, "-S", "## Second registration"),
    "third": (Path("docs") / "early-warning-third-test.md", "--diff-filter=A"),
}
"""Test -> the page that registers it, and what finds the commit that did: the one that adds the page, or its section."""

Figures = dict[str, float | int | None]


def figures_of(outcomes: Sequence[Outcome]) -> Figures:
    """Return the figures of the first test under their names, of later ones with `_second` and `_third` behind, and of the tuning seeds with `tuning_` in front.

    None where nothing was run.
    """
    figures: Figures = {}
    for half in (*PAGES, "tuning"):
        runs, behind = (
            [run for run in outcomes if run.half == half],
            "" if half in ("test", "tuning") else f"_{half}",
        )
        figures[f"{half if half == 'tuning' else 'test'}_seeds{behind}"] = (
            len({run.seed for run in runs}) or None
        )
        shares = _shares(runs, "tuning_" if half == "tuning" else "")
        figures |= {f"{name}{behind}": value for name, value in shares.items()}
    return figures


def lower_bound(hits: int, trials: int, level: float = 0.95) -> float | None:
    """Return the exact one-sided lower bound of a share (Clopper and Pearson 1934); None without trials.

    Example:
        >>> round(lower_bound(29, 29), 3), round(lower_bound(45, 46), 3)
        (0.902, 0.901)
    """
    if not trials:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        tail = sum(
            comb(trials, k) * middle**k * (1 - middle) ** (trials - k) for k in range(hits, trials + 1)
        )
        low, high = (middle, high) if tail < 1 - level else (low, middle)
    return low


def table_of(outcomes: Sequence[Outcome]) -> str:
    """Return one line a cause and role: runs, events, their median step, warned in time, false alarms."""
    lines = [
        f"{'cause':16s} {'role':9s} runs events learned  event step (median, range)  warned  false  median lead"
    ]
    for cause in CAUSES:
        for role in ("collapse", "twin", "control"):
            runs = [run for run in outcomes if (run.cause, run.role) == (cause, role)]
            if runs:
                lines.append(f"{cause:16s} {role:9s} {_row(runs)}")
    return "\n".join(lines)


def _row(runs: Sequence[Outcome]) -> str:
    steps = [run.event for run in runs if run.event is not None]
    spread = f"{median(steps):.0f}, {min(steps)} to {max(steps)}" if steps else "-"
    counted = [run for run in runs if run.counts]
    leads = [run.lead for run in counted if run.lead is not None]
    after = f"{len(leads)}/{len(counted)}" if counted else "-"
    if not counted and any(run.fault_step is not None for run in runs):
        after = f"({sum(map(detected, runs))}/{len(runs)})"
    false = f"{sum(bool(run.false_alarms) for run in runs)}/{len(runs)}"
    lead = f"{median(leads):.0f}" if leads else "-"
    return f"{len(runs):4d} {len(steps):6d} {len(counted):7d}  {spread:27s} {after:>7s} {false:>6s}  {lead}"


def detected(run: Outcome) -> bool:
    """Return whether a fault that ended in no collapse was met by an alarm within 60 steps."""
    start = run.fault_step
    return start is not None and any(start <= alarm.step < start + BEFORE for alarm in run.alarms)


def warned_by_averages(run: Outcome) -> bool:
    """Return whether a rule that reads averages, as any dashboard has them, warned in time."""
    return any(ALIASES.get(alarm.rule, alarm.rule) in AVERAGES for alarm in run.warnings)


def _shares(runs: Sequence[Outcome], prefix: str) -> Figures:
    counted = [run for run in runs if run.counts]
    stale = [run for run in counted if run.cause in STALE]
    warned = [run for run in counted if run.warnings]
    unended = [run for run in runs if run.cause in FAULTS and run.event is None]
    leads = [run.lead for run in warned if run.lead is not None]
    first_slices = [run.warnings[0].slice for run in warned]
    return {
        f"{prefix}collapses": len(counted) or None,
        f"{prefix}warned_frac": _share(counted, lambda run: bool(run.warnings)),
        f"{prefix}warned_10_frac": _share(counted, lambda run: (run.lead or 0) >= 2 * LEAD),
        f"{prefix}warned_frac_stale": _share(stale, lambda run: bool(run.warnings)),
        f"{prefix}warned_frac_stale_lower": lower_bound(sum(bool(run.warnings) for run in stale), len(stale)),
        f"{prefix}warned_frac_averages": _share(counted, warned_by_averages),
        f"{prefix}lead_median": median(leads) if leads else None,
        f"{prefix}false_frac_twins": _share([r for r in runs if r.role == "twin"], lambda r: bool(r.alarms)),
        f"{prefix}false_frac_controls": _share([r for r in runs if r.role == "control"], lambda r: bool(r.alarms)),
        f"{prefix}false_frac_before": _share(counted, lambda run: bool(run.false_alarms)),
        f"{prefix}first_series_post_tool_frac": _mean([name.startswith("post_tool") for name in first_slices]),
        f"{prefix}faults_without_event": len(unended) or None,
        f"{prefix}faults_without_event_detected_frac": _share(unended, detected),
    }  # fmt: skip


def registered_before_data(root: Path, store: Path, half: str = "test") -> int | None:
    """Return 1 when a test was registered in a commit before any archive of its seeds, 0 when not, None where one is missing or not in `root`.

    Runs of the first test lie in archives whose names end in `-test`, those of later ones in `-second` and `-third`; `PAGES` says where each
    is registered.
    """
    page = registered_at(root, half)
    inside = store.is_relative_to(root)
    data = [
        first_commit(root, path.relative_to(root)) for path in sorted(store.glob(f"*-{half}.zip")) if inside
    ]
    times = [time for time in data if time is not None]
    return None if page is None or not times else int(page < min(times))


def registered_at(root: Path, half: str) -> int | None:
    """Return the time of the first commit that registers a test; None where none does."""
    page, *wanted = PAGES[half]
    return first_commit(root, Path(page), *map(str, wanted))


def page_is_committed(root: Path, half: str = "test") -> bool:
    """Return whether the registration of a test is part of the history."""
    return registered_at(root, half) is not None


def first_commit(root: Path, path: Path, *wanted: str) -> int | None:
    """Return the time of the first commit of a path, by default of the one that adds it; None without one."""
    options = wanted or ("--diff-filter=A",)
    command = ["git", "-C", str(root), "log", *options, "--format=%ct", "--", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    times = [int(line) for line in done.stdout.split()]
    return min(times) if times else None


def _share(runs: Sequence[Outcome], holds: Callable[[Outcome], bool]) -> float | None:
    return _mean([holds(run) for run in runs])


def _mean(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None

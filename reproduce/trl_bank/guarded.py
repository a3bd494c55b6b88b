"""Guarded runs under TRL: the arms, what is kept of a run, and how many were saved. docs/trl-guard-test.md registers them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from trimtab.errors import RunError
from trimtab.runs.action_rows import action_text
from trimtab.training.collapse_event import event_of

__all__ = ["ARMS", "SEEDS", "TRAINERS", "GuardedRun", "figures_of", "read_records", "table_of"]

TRAINERS = ("grpo", "minirl")
"""GRPOTrainer with TRL's GRPO loss, and MiniRLTrainer with its defaults."""
ARMS: Mapping[str, tuple[str, str | None]] = {
    "healthy": ("none", None),
    "none": ("stale", None),
    "guard": ("stale", "recommended"),
}
"""Arm -> its fault in `trimtab.training.lab_faults`, and the guard of `watch`."""
SEEDS = (140, 141, 142, 143)
"""Seeds that nothing was tuned on."""
LAST, SAVED = 30, 0.9
"""A run is saved where the mean reward of its last steps is at least this fraction of that of runs without a fault."""


@dataclass(frozen=True)
class GuardedRun:
    """The record of one run. `alarms` above info: step, since, rule, slice, severity."""

    trainer: str
    arm: str
    seed: int
    steps: int
    fault: str
    fault_step: int
    rewards: tuple[float, ...]
    alarms: tuple[tuple[Any, ...], ...]
    actions: tuple[dict[str, Any], ...]
    errors: int  # failures of the monitor
    cpu_s: float

    @property
    def end(self) -> float:
        """Mean reward of the last 30 steps."""
        return fmean(self.rewards[-LAST:])

    @property
    def stopped(self) -> bool:
        """Whether the guard ended the run."""
        return any(row["action"] == "stop" for row in self.actions)

    @property
    def rolled_back(self) -> list[int]:
        """Steps that the guard went back to."""
        return [
            int(row["to_step"]) for row in self.actions if row["action"] == "rollback" and not row["failure"]
        ]


def read_records(store: Path) -> list[GuardedRun]:
    """Read the packed records; none where the file is missing. Raises RunError for a damaged one."""
    if not store.exists():
        return []
    try:
        rows = [json.loads(line) for line in store.read_text(encoding="utf-8").splitlines()]
        return [GuardedRun(**{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}) for row in rows]  # fmt: skip
    except (ValueError, TypeError) as error:
        raise RunError(f"{store} is damaged ({error}); restore it (git restore)") from error


def level_of(records: Sequence[GuardedRun], trainer: str) -> float | None:
    """Return the mean end of a trainer's runs without a fault; None without one."""
    ends = [one.end for one in records if (one.trainer, one.arm) == (trainer, "healthy")]
    return fmean(ends) if ends else None


def is_saved(one: GuardedRun, level: float | None) -> bool:
    """Return whether a run ended as one without a fault does, and was not stopped."""
    return level is not None and not one.stopped and one.end >= SAVED * level


def figures_of(records: Sequence[GuardedRun]) -> dict[str, float | int | None]:
    """Return the figures, of each trainer apart; None where nothing was run."""
    figures: dict[str, float | int | None] = {}
    for trainer in TRAINERS:
        level = level_of(records, trainer)
        figures[f"{trainer}_level"] = None if level is None else round(level, 3)
        for arm in ARMS:
            runs = [one for one in records if (one.trainer, one.arm) == (trainer, arm)]
            saved = [one for one in runs if is_saved(one, level)]
            figures[f"{trainer}_{arm}_runs"] = len(runs)
            figures[f"{trainer}_{arm}_at_level"] = len(saved) if runs and level is not None else None
            if arm == "guard":
                figures[f"{trainer}_saved_by_rollback"] = sum(bool(one.rolled_back) for one in saved)
                figures[f"{trainer}_stopped"] = sum(one.stopped for one in runs)
    figures["monitor_failures"] = sum(one.errors for one in records)
    return figures


def table_of(records: Sequence[GuardedRun]) -> str:
    """Return a line a run: its end, where its reward was lost, its first alarm after the fault, and what the guard did."""
    lines = ["run                 last 30  at level  lost at  first alarm  actions"]
    for one in records:
        event = event_of(one.rewards)
        alarm = next((a[0] for a in one.alarms if a[0] >= one.fault_step), "-")
        actions = ", ".join(f"{row['step']} {action_text(row)}" for row in one.actions)
        at_level = "yes" if is_saved(one, level_of(records, one.trainer)) else "no"
        name = f"{one.trainer}-{one.arm}-s{one.seed}"
        lines.append(
            f"{name:18s} {one.end:8.2f}  {at_level:>8s}  {'-' if event is None else event.step:>7}  {alarm:>11}  {actions}"
        )
    return "\n".join(lines)

"""What each recorded run says: did it collapse, had it learned, and which alarms came before, in time or too early.

Registered terms: a warning counts from the fault (in slow collapses from 60 steps before the event) to 5 steps before the event. An alarm above
info before that is a false one, as is any on a twin or a control.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduce.collapse_bank.events import event_of, has_learned, smoothed
from reproduce.collapse_bank.marks import read_mark, run_folders
from reproduce.collapse_bank.regimes import FAULTS, half_of
from trimtab.errors import RunError
from trimtab.runs import RunReader

__all__ = ["BEFORE", "LEAD", "Alarmed", "Outcome", "load_outcomes"]

LEAD = 5
"""Steps a warning must come ahead of the event to count."""
BEFORE = 60
"""Steps before the event of a slow collapse from which a warning counts."""
LOUD = ("warning", "critical")


@dataclass(frozen=True)
class Alarmed:
    """An alarm above info."""

    step: int
    rule: str
    slice: str


@dataclass(frozen=True)
class Outcome:
    """One run of the bank."""

    cause: str
    role: str
    seed: int
    steps: int
    fault_step: int | None
    rewards: tuple[float, ...]
    alarms: tuple[Alarmed, ...]
    event: int | None
    learned: bool
    """The best reward before the event was 80 % of what the healthy relative of the seed reached."""

    @property
    def half(self) -> str:
        """What the seed is for: `tuning`, or the registered test `test`, `second` or `third`."""
        return half_of(self.seed)

    @property
    def is_relative(self) -> bool:
        """Whether the run is meant to stay healthy."""
        return self.role != "collapse"

    @property
    def counts(self) -> bool:
        """Whether the run is a collapse in the sense of the test."""
        return self.role == "collapse" and self.event is not None and self.learned

    @property
    def warnings(self) -> tuple[Alarmed, ...]:
        """Alarms in time: after the onset and at least 5 steps before the event."""
        if self.event is None:
            return ()
        event, first = self.event, self.onset
        return tuple(alarm for alarm in self.alarms if first <= alarm.step <= event - LEAD)

    @property
    def onset(self) -> int:
        """The first step at which a warning counts."""
        if self.fault_step is not None:
            return self.fault_step
        return 1 if self.event is None else self.event - BEFORE

    @property
    def false_alarms(self) -> tuple[Alarmed, ...]:
        """Alarms of a healthy run, or before the onset."""
        if self.is_relative:
            return self.alarms
        return tuple(alarm for alarm in self.alarms if alarm.step < self.onset)

    @property
    def lead(self) -> int | None:
        """Steps from the first warning in time to the event."""
        return self.event - self.warnings[0].step if self.event is not None and self.warnings else None


def load_outcomes(store: Path) -> list[Outcome]:
    """Read every finished run of an unpacked store; raises RunError for a damaged one."""
    marks = [(folder, read_mark(folder)) for folder in run_folders(store)]
    rewards = {folder: _rewards(mark, RunReader(folder)) for folder, mark in marks}
    reachable: dict[tuple[str, int], float] = {}
    for folder, mark in marks:
        if mark["role"] != "collapse":
            key = (mark["cause"], mark["seed"])
            reachable[key] = max(
                reachable.get(key, 0.0), float(max(smoothed(rewards[folder])[7:], default=0.0))
            )
    outcomes = [_outcome(mark, rewards[folder], RunReader(folder), reachable) for folder, mark in marks]
    return sorted(outcomes, key=lambda run: (run.cause, run.role, run.seed))


def _outcome(
    mark: Mapping[str, Any],
    rewards: Sequence[float],
    reader: RunReader,
    reachable: Mapping[tuple[str, int], float],
) -> Outcome:
    relative = "healthy" if mark["cause"] in FAULTS else mark["cause"]
    event = event_of(rewards)
    fault = mark["fault_step"]
    alarms = [
        Alarmed(int(row["step"]), row["rule"], row["slice"])
        for row in reader.rows("alarms")
        if row["event"] == "fired" and row["severity"] in LOUD
    ]
    best = reachable.get((relative, mark["seed"]))
    return Outcome(
        cause=mark["cause"],
        role=mark["role"],
        seed=mark["seed"],
        steps=mark["steps"],
        fault_step=fault,
        rewards=tuple(rewards),
        alarms=tuple(sorted(alarms, key=lambda alarm: alarm.step)),
        event=None if event is None or (fault is not None and event.step < fault) else event.step,
        learned=event is not None and best is not None and has_learned(event, best),
    )


def _rewards(mark: Mapping[str, Any], reader: RunReader) -> list[float]:
    """The rewards events are read from: the mark's, where what is trained on is not what is meant."""
    rewards = mark.get("true_rewards") or [row["metrics"]["reward"] for row in reader.rows("steps")]
    if len(rewards) != mark["steps"]:
        raise RunError(
            f"{reader.folder} has {len(rewards)} of its {mark['steps']} steps; restore it (git restore)"
        )
    return [float(value) for value in rewards]

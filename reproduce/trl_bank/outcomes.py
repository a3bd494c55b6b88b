"""What the recorded runs say, in the terms of the registered test: event, warnings in time, false alarms. Rules are those of today, replayed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from reproduce.collapse_bank.events import event_of, has_learned, smoothed
from reproduce.collapse_bank.figures import warned_by_averages
from reproduce.collapse_bank.outcomes import LOUD, Alarmed, Outcome
from reproduce.trl_bank.recording import ARMS, finished_runs, read_mark
from trimtab.errors import RunError
from trimtab.report.run_view import RunView, load_view
from trimtab.types import Alarm

__all__ = ["TrlOutcome", "figures_of", "load_outcomes", "table_of"]

Figures = dict[str, float | int | None]
CONTROL = "none"


@dataclass(frozen=True)
class TrlOutcome:
    """One run; `run` has the terms of the registered test."""

    run: Outcome
    replay_differs: bool
    """Whether the rules of today, replayed over the recorded readings, give other alarms than were raised live."""

    @property
    def end(self) -> float:
        """Mean reward of the last 8 steps."""
        return sum(self.run.rewards[-8:]) / len(self.run.rewards[-8:])

    @property
    def detected(self) -> bool:
        """Whether an alarm came at the fault or after it."""
        start = self.run.fault_step
        return start is not None and any(alarm.step >= start for alarm in self.run.alarms)


def load_outcomes(store: Path) -> list[TrlOutcome]:
    """Read every finished run of an unpacked store; raises RunError for a damaged one."""
    marks = [(read_mark(folder), load_view(folder)) for folder in finished_runs(store)]
    rewards = {(mark["arm"], mark["seed"]): _rewards(view, mark["steps"]) for mark, view in marks}
    outcomes = []
    for mark, view in marks:
        arm, seed = mark["arm"], mark["seed"]
        own, control = rewards[arm, seed], rewards.get((CONTROL, seed))
        event = event_of(own)
        fault = None if arm == CONTROL else mark["fault_step"]
        if event is not None and fault is not None and event.step < fault:
            event = None
        reachable = max(smoothed(control)[7:], default=0.0) if control else 0.0
        outcomes.append(
            TrlOutcome(
                Outcome(
                    cause=arm,
                    role="control" if arm == CONTROL else "collapse",
                    seed=seed,
                    steps=mark["steps"],
                    fault_step=fault,
                    rewards=tuple(own),
                    alarms=tuple(_alarmed(view.pipeline.alarms)),
                    event=None if event is None else event.step,
                    learned=event is not None and has_learned(event, float(reachable)),
                ),
                replay_differs=_live(view) != _lines(view.pipeline.alarms),
            )
        )
    return sorted(outcomes, key=lambda one: (list(ARMS).index(one.run.cause), one.run.seed))


def figures_of(outcomes: Sequence[TrlOutcome]) -> Figures:
    """Return the figures: of each fault, of all, and of the controls; None where there is nothing to count."""
    figures: Figures = {}
    for arm in [name for name in ARMS if name != CONTROL]:
        figures |= _counts([one for one in outcomes if one.run.cause == arm], arm)
    broken = [one for one in outcomes if one.run.cause != CONTROL]
    controls = [one.run for one in outcomes if one.run.cause == CONTROL]
    figures |= _counts(broken, "all")
    figures["alarmed_before_fault"] = sum(bool(one.run.false_alarms) for one in broken)
    figures["controls"] = len(controls)
    figures["controls_alarmed"] = sum(bool(run.alarms) for run in controls)
    figures["controls_lost"] = sum(run.event is not None for run in controls)
    figures["replay_differs"] = sum(one.replay_differs for one in outcomes)
    return figures


def table_of(outcomes: Iterable[TrlOutcome]) -> str:
    """Return one line a run."""
    lines = [
        "run            fault  lost at  reward at the end  warned at (lead)  first alarm after the fault"
    ]
    for one in outcomes:
        run = one.run
        start = 0 if run.fault_step is None else run.fault_step
        first = next((alarm for alarm in run.alarms if alarm.step >= start), None)
        warned = "-" if run.lead is None else f"{run.warnings[0].step} ({run.lead})"
        alarm = "-" if first is None else f"{first.step} {first.rule}, {first.slice}"
        numbers = ["-" if value is None else str(value) for value in (run.fault_step, run.event)]
        name = f"{run.cause}-s{run.seed}"
        lines.append(f"{name:14s} {numbers[0]:>5s}  {numbers[1]:>7s}  {one.end:17.2f}  {warned:16s}  {alarm}")
    return "\n".join(lines)


def _counts(runs: Sequence[TrlOutcome], name: str) -> Figures:
    counted = [one.run for one in runs if one.run.counts]
    leads = [run.lead for run in counted if run.lead is not None]
    delays = [run.event - run.fault_step for run in counted if run.event and run.fault_step]
    return {
        f"{name}_runs": len(runs),
        f"{name}_collapses": len(counted),
        f"{name}_warned": len(leads),
        f"{name}_warned_by_averages": sum(warned_by_averages(run) for run in counted),
        f"{name}_detected": sum(one.detected for one in runs),
        f"{name}_lead_median": median(leads) if leads else None,
        f"{name}_steps_to_event_median": median(delays) if delays else None,
    }


def _rewards(view: RunView, steps: int) -> list[float]:
    rewards = [float(row["metrics"]["reward"]) for row in view.steps]
    if len(rewards) != steps:
        raise RunError(f"{view.folder} has {len(rewards)} of its {steps} steps; restore it (git restore)")
    return rewards


def _alarmed(alarms: Iterable[Alarm]) -> list[Alarmed]:
    loud = [Alarmed(alarm.step, alarm.rule, alarm.slice) for alarm in alarms if alarm.severity in LOUD]
    return sorted(loud, key=lambda alarm: alarm.step)


def _lines(alarms: Iterable[Alarm]) -> list[tuple[int, str, str, str]]:
    return sorted((alarm.step, alarm.rule, alarm.slice, alarm.severity) for alarm in alarms)


def _live(view: RunView) -> list[tuple[int, str, str, str]]:
    rows = [row for row in view.reader.rows("alarms") if row["event"] == "fired"]
    return sorted((row["step"], row["rule"], row["slice"], row["severity"]) for row in rows)

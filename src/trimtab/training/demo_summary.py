"""What the demo's runs show, in words: when the fault came, when the first alarm, when the reward was lost.

Every number comes from the recorded runs. Where the warning did not come first, or a guard did not save the
reward, the words say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.report.run_tables import action_lines
from trimtab.report.run_view import RunView
from trimtab.training.collapse_event import WINDOW, Event, event_of
from trimtab.types import Alarm

__all__ = ["LOUD", "RunFacts", "facts_of", "fault_words", "guard_words", "healthy_words"]

LOUD = ("warning", "critical")
"""Severities that count as a warning."""


@dataclass(frozen=True)
class RunFacts:
    """What is read from one recorded run."""

    steps: tuple[int, ...]
    rewards: tuple[float, ...]
    alarms: tuple[Alarm, ...]
    """Alarms above info, in the order they came."""

    @property
    def event(self) -> Event | None:
        """The loss of the reward; None where it was not lost."""
        return event_of(self.rewards, self.steps[0]) if self.steps else None

    @property
    def end(self) -> float:
        """Mean reward of the last 8 steps."""
        last = self.rewards[-WINDOW:]
        return sum(last) / len(last) if last else float("nan")

    def first_alarm(self, from_step: int = 0) -> Alarm | None:
        """Return the first alarm at or after a step."""
        return next((alarm for alarm in self.alarms if alarm.step >= from_step), None)


def facts_of(view: RunView) -> RunFacts:
    """Read steps, rewards and alarms of a run; a step without a reward is left out."""
    rows = [row for row in view.steps if "reward" in row["metrics"]]
    loud = [alarm for alarm in view.alarms if alarm.severity in LOUD]
    return RunFacts(
        tuple(int(row["step"]) for row in rows),
        tuple(float(row["metrics"]["reward"]) for row in rows),
        tuple(sorted(loud, key=lambda alarm: alarm.step)),
    )


def fault_words(facts: RunFacts, fault: str, fault_step: int) -> str:
    """Return what a run with a fault shows: when the fault came, the first alarm, the loss of the reward."""
    event, alarm = facts.event, facts.first_alarm(fault_step)
    sentences = [f"{fault} from step {fault_step} on."]
    early = facts.first_alarm()
    if early is not None and early.step < fault_step:
        sentences.append(f"A false alarm came before, at step {early.step} ({early.rule}, {early.slice}).")
    if alarm is None:
        sentences.append("No alarm came after the fault.")
    else:
        sentences.append(f"First alarm after it: step {alarm.step} ({alarm.rule}, {alarm.slice}).")
    if event is None:
        return " ".join([*sentences, f"The reward was not lost: {facts.end:.2f} at the end."])
    sentences.append(
        f"Reward lost at step {event.step}: its {WINDOW}-step mean fell under 70 % of its best "
        f"({event.best:.2f}) for good; {facts.end:.2f} at the end."
    )
    if event.step < fault_step:
        sentences.append("It was lost before the fault came, so this run shows nothing of a warning.")
    elif alarm is None or alarm.step >= event.step:
        sentences.append("The warning did not come first.")
    else:
        sentences.append(f"The warning came {steps_text(event.step - alarm.step)} ahead.")
    return " ".join(sentences)


def healthy_words(facts: RunFacts) -> str:
    """Return what a run without a fault shows."""
    event = facts.event
    outcome = f"reward {facts.end:.2f} at the end"
    if event is not None:
        outcome = f"the reward was lost all the same, at step {event.step}; {facts.end:.2f} at the end"
    return f"No fault: {outcome}; {_alarm_words(facts.alarms)}."


def guard_words(facts: RunFacts, actions: Sequence[dict[str, Any]]) -> list[str]:
    """Return what a guard did, a line an action, and whether the reward was kept.

    Args:
        facts: of the guarded run.
        actions: rows of its actions, as `RunView.actions` has them.
    """
    if not actions:
        return ["  Its guard did nothing."]
    count = "1 action" if len(actions) == 1 else f"{len(actions)} actions"
    outcome = "the reward was kept" if facts.event is None else "the reward was NOT saved"
    if any(row["action"] == "stop" for row in actions):
        outcome = f"it stopped the run at step {facts.steps[-1]}"
    return [f"  Its guard took {count}, and {outcome}:", *action_lines(actions)]


def steps_text(count: int) -> str:
    """Return a number of steps in words: 1 step, 2 steps."""
    return "1 step" if count == 1 else f"{count} steps"


def _alarm_words(alarms: Sequence[Alarm]) -> str:
    if not alarms:
        return "no alarm"
    first = alarms[0]
    number = "1 false alarm" if len(alarms) == 1 else f"{len(alarms)} false alarms, the first"
    return f"{number} at step {first.step} ({first.rule}, {first.slice})"

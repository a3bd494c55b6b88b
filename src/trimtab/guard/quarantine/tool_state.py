"""One tool's phase: open, quarantined, on probation; and what moves it from one to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from trimtab.catalog import bound
from trimtab.guard.policies.quarantine_tool import ToolQuarantineOptions
from trimtab.guard.quarantine.failure_rate import EntryTest, FailureHistory, ReturnTest

Phase = Literal["open", "quarantined", "probation"]


@dataclass
class ToolState:
    """Counts, tests and phase of one tool. Moments are steps that were closed, not the trainer's numbers.

    Example:
        >>> state, options = ToolState(), ToolQuarantineOptions()
        >>> phases = [state.step(now, 12 if now >= 20 else 0, 16, options) for now in range(25)]
        >>> phases.index("quarantined"), state.reason
        (21, '24 of 32 episodes with it failed by their environment, at most 2.0 % before')
    """

    phase: Phase = "open"
    since: int = 0  # moment at which the phase began
    relapses: int = 0  # failed probations, and entries soon after a return
    was_quarantined: bool = False
    reason: str = ""  # of the last change of phase
    lever: str = ""  # that is turned for it while it is not open
    history: FailureHistory = field(default_factory=FailureHistory)
    entry: EntryTest = field(default_factory=EntryTest)
    back: ReturnTest = field(default_factory=ReturnTest)

    def step(self, now: int, failed: int, total: int, options: ToolQuarantineOptions) -> Phase:
        """Take a step's episodes with the tool, and return the phase from the next step on."""
        if self.phase == "open":
            self._open(now, failed, total)
        elif self.phase == "quarantined":
            length = options.quarantine_steps(self.relapses)
            if now - self.since >= length:
                self._enter("probation", now, f"{length} steps of quarantine are over")
                self.back = ReturnTest()
        else:
            self._on_probation(now, failed, total)
        return self.phase

    def _open(self, now: int, failed: int, total: int) -> None:
        if self.was_quarantined and now - self.since >= bound("guard_forget"):
            self.was_quarantined, self.relapses = False, 0
        if self.entry.update(self.history, failed, total):
            self.relapses += self.was_quarantined
            self.was_quarantined = True
            self._enter("quarantined", now, self._counted(self.entry))
            self.entry.reset()

    def _on_probation(self, now: int, failed: int, total: int) -> None:
        healthy = self.back.update(self.history, failed, total) if total else None
        if healthy is None:
            return
        counted = self._counted(self.back)
        if healthy:
            self._enter("open", now, f"probation passed: {counted}")
            self.entry.reset()
        else:
            self.relapses += 1
            self._enter("quarantined", now, f"relapse {self.relapses}: {counted}")

    def _counted(self, test: EntryTest | ReturnTest) -> str:
        before = f"at most {self.history.rate():.1%} before".replace("%", " %")
        return f"{test.failed} of {test.total} episodes with it failed by their environment, {before}"

    def _enter(self, phase: Phase, now: int, reason: str) -> None:
        self.phase, self.since, self.reason = phase, now, reason

    def fraction(self, options: ToolQuarantineOptions) -> float:
        """Return the fraction of groups that the phase lets through."""
        return {"open": 1.0, "quarantined": 0.0, "probation": options.probation}[self.phase]

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON types."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ToolState:
        """Return the tool of a state."""
        parts = {
            "history": FailureHistory(**state["history"]),
            "entry": EntryTest(**state["entry"]),
            "back": ReturnTest(**state["back"]),
        }
        return cls(**{**state, **parts})

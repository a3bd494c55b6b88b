"""End the run: when a person's time costs less than what the run would still burn."""

from __future__ import annotations

from typing import ClassVar

from trimtab.guard.policies.base import Policy
from trimtab.types import Incident, Stop


class StopOptions(Policy, frozen=True):
    """Policy `stop`: the last step of the escalation.

    With `enabled` the run ends when rollbacks are used up or were followed by engines that disagree. With
    `when_nothing_is_left` it also ends when an incident is critical and neither a lever nor a stable state is
    left to use. Both off: the guard warns instead, and training goes on.

    The trainer writes its last checkpoint as it does at any end; the guard adds none.

    When not: a run that is resumed by a scheduler comes back by itself, into the same trouble.

    Example:
        >>> StopOptions().action(Incident(73, "all", "critical", (), ()), "third rollback").note
        'third rollback'
    """

    name: ClassVar[str] = "stop"
    enabled: bool = True
    when_nothing_is_left: bool = False

    def action(self, incident: Incident, note: str) -> Stop:
        """Return the action, with the reason for a person to read."""
        return Stop(incident, self.name, note)

    def ends(self, *, critical: bool, used_up: bool) -> bool:
        """Is the run to be ended now?

        >>> StopOptions().ends(critical=True, used_up=False), StopOptions().ends(critical=False, used_up=True)
        (False, True)
        """
        return self.enabled and (used_up or (critical and self.when_nothing_is_left))

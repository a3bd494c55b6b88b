"""Return to the last stable state: what learning slower could not undo."""

from __future__ import annotations

from typing import ClassVar

from trimtab.catalog import bound
from trimtab.guard.policies.base import Amount, Count, Factor, Policy, Request, Situation
from trimtab.types import Lever


class RollbackOptions(Policy, frozen=True):
    """Policy `rollback`: when softer actions did not help, restore the last state from before the incident.

    "Before" is decided by the onset of the incident, not by age, and by `margin`: evidence takes some steps
    to gather, and a state kept between the fault and the first sign of it looks stable. The second time for
    one cause it goes to an earlier state, with the learning rate lower by `lr_factor` once more. After
    `max_times` the run is stopped. The rate stays lower until the trouble has been away for a calm spell.

    After a restore the mismatch of the engines is checked once: more than `gate` times what it was when the
    state was kept means that the sampler was not resynchronised. Then the guard says so and stops.

    When not: a cause outside of the run (a broken tool, a wrong mask, stale rollouts that stay stale) comes
    back after every restore, and costs the steps again.

    Example:
        >>> RollbackOptions().rate(1), RollbackOptions().rate(2)
        (0.5, 0.25)
    """

    name: ClassVar[str] = "rollback"
    needs: ClassVar[tuple[Lever, ...]] = ()
    enabled: bool = True
    max_times: Count = int(bound("guard_rollbacks"))  # for one cause; the next one stops the run
    margin: Count = int(bound("guard_onset_margin"))  # steps before the onset of which no state is trusted
    lr_factor: Factor = bound("guard_rollback_lr")  # factor on the learning rate, each time
    gate: Amount = bound("guard_resume_gate")  # ratio of mismatch after a restore to that at the save

    def rate(self, times: int) -> float:
        """Return the scale of the learning rate after so many rollbacks for one cause."""
        return float(self.lr_factor**times)

    def propose(self, situation: Situation) -> list[Request]:
        """Ask for the lower rate that goes with a rollback; `times` counts those before."""
        if "lr_scale" not in situation.levers:
            return []
        return [Request("lr_scale", "all", self.rate(situation.times + 1))]

    def relax(self, own: Request, neutral: float) -> float:
        """Return twice the scale; `neutral` once it is reached."""
        return min(neutral, own.value / self.lr_factor)

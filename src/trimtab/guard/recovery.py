"""Recovery: what was asked of levers is taken back, step by step, once the trouble has passed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trimtab.guard.controls import LEVERS
from trimtab.guard.lever_requests import LeverRequests
from trimtab.guard.policies.base import Request, Situation
from trimtab.guard.presets import GuardOptions
from trimtab.runs.action_rows import incident_from_row, incident_row
from trimtab.types import Action, Incident, SetLever, Undo

_MAX_DOUBLINGS = 5


Lasting = Callable[[Incident], bool]


def no_evidence(_incident: Incident) -> bool:
    """Stand for a loop that cannot tell whether the evidence of an incident lasts."""
    return False


class Recovery:
    """Relaxes one policy at a time, each after a calm spell; the last one that acted is the first to relax.

    Where the trouble returns soon after a step back, that policy's spells double. Alarms may clear while a
    fault goes on, for they compare with a record that moves: so a policy also waits until the evidence of the
    cause it acted on is gone.
    """

    def __init__(self, options: GuardOptions, requests: LeverRequests) -> None:
        self.options, self.requests = options, requests
        self.because: dict[
            str, Incident
        ] = {}  # policy -> the incident it last acted on, in the order they acted
        self.relaxed: dict[str, int] = {}  # policy -> moment of its last step back
        self.returns: dict[str, int] = {}  # policy -> how often the trouble came back after one
        self.calm_since: int | None = None
        self._last = 0  # moment of the last step back of any policy

    def note_acted(self, now: int, actions: list[Action]) -> None:
        """Remember which incident each policy acted on."""
        for action in actions:
            if isinstance(action, SetLever):
                policy = action.policy
                if policy in self.relaxed and now - self.relaxed.pop(policy) <= 2 * self.spell(policy):
                    self.returns[policy] = self.returns.get(policy, 0) + 1
                self.because.pop(policy, None)
                self.because[policy] = action.because

    def spell(self, policy: str) -> int:
        """Return the calm steps that a policy's next step back needs."""
        return int(self.options.recover_after * 2 ** min(self.returns.get(policy, 0), _MAX_DOUBLINGS))

    def step(self, now: int, calm: bool, lasts: Lasting = no_evidence) -> tuple[list[Action], list[str]]:
        """Return what is taken back at moment `now`, and the policies that ask for nothing any more."""
        if not calm:
            self.calm_since = None
            return [], []
        self.calm_since = now if self.calm_since is None else self.calm_since
        for policy in reversed(self.because):
            waited = now - max(self.calm_since, self._last) >= self.spell(policy)
            if waited and not lasts(self.because[policy]):
                self._last = self.relaxed[policy] = now
                actions = [self._relax(policy, own) for own in self.requests.of_policy(policy)]
                done = not self.requests.of_policy(policy)
                if done:
                    del self.because[policy]
                return actions, [policy] * done
        return [], []

    def _relax(self, policy: str, own: Request) -> Action:
        neutral, because = LEVERS[own.lever].neutral, self.because[policy]
        value = self.options.policy(policy).relax(own, neutral)
        calm = "calm again"
        if value == neutral:
            change = self.requests.withdraw(policy, own.lever, own.slice)
            return Undo(change.lever, change.slice, change.before, change.after, because, policy, calm)
        change = self.requests.put(policy, own._replace(value=value))
        return SetLever(
            change.lever, change.slice, change.before, change.after, because, policy, f"recovery: {calm}"
        )

    def adjust(self, step: int, levels: Mapping[str, float]) -> list[Action]:
        """Return changes of coefficients that follow a level of this step."""
        actions: list[Action] = []
        for policy, own in self.requests.asking():
            because = self.because.get(policy)
            if because is None:
                continue
            levers, value_of = self.requests.levers(), self.requests.value
            situation = Situation(step, because, 0, levers, value_of, levels)
            value = self.options.policy(policy).adjust(situation, own)
            if value != own.value:
                change = self.requests.put(policy, own._replace(value=value))
                actions.append(
                    SetLever(
                        change.lever, change.slice, change.before, change.after, because, policy, "adapted"
                    )
                )
        return actions

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON types."""
        because = [[policy, incident_row(incident)] for policy, incident in self.because.items()]
        return {
            "because": because, "relaxed": self.relaxed, "returns": self.returns,
            "calm_since": self.calm_since, "last": self._last,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state."""
        self.because = {policy: incident_from_row(row) for policy, row in state["because"]}
        self.relaxed, self.returns = dict(state["relaxed"]), dict(state["returns"])
        self.calm_since, self._last = state["calm_since"], state["last"]

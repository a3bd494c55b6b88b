"""Escalation: warn, soften, roll back, stop; one case a cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trimtab.guard.cause_table import likely_cause, open_alarms, policies_for
from trimtab.guard.lever_requests import Change, LeverRequests
from trimtab.guard.policies.base import Request, Situation
from trimtab.guard.presets import GuardOptions
from trimtab.guard.reward_record import RewardRecord
from trimtab.runs.action_rows import incident_from_row, incident_row
from trimtab.types import Action, Alarm, Incident, Rollback, SetLever, Warn

NEVER = -(10**9)


@dataclass
class Case:
    """What was done about one cause. Moments are counts of `Guard.after_step`, not steps."""

    episode: int = -1  # of trouble that was last acted on
    acted: int = NEVER
    softened: int = 0  # softer actions in this episode
    used_here: dict[str, int] = field(default_factory=dict)  # policy -> times, in this episode
    used: dict[str, int] = field(default_factory=dict)  # policy -> times since it was last undone
    rollbacks: list[int] = field(default_factory=list)  # moments
    restored: list[int] = field(default_factory=list)  # steps returned to
    warned: int = -1  # episode that was last warned of


class Escalation:
    """Decides what is done about an open incident.

    An incident that opens is softened, by the policies of its cause in their order. One that stays open for
    `patience` gets the next policy, `soften_times` in all. One that raises further alarms in spite of
    `soften_times` actions, or a critical one after the first, is answered by a rollback; so is a reward that
    has fallen since before the incident, for softer actions do not bring it back. The third rollback for a
    cause is a stop.
    """

    def __init__(
        self,
        options: GuardOptions,
        requests: LeverRequests,
        last_stable: Callable[[int], int | None] | None,
        rewards: RewardRecord,
    ) -> None:
        self.options, self.requests, self.last_stable = options, requests, last_stable
        self.rewards = rewards
        self.cases: dict[str, Case] = {}
        self.seen: dict[str, None] = {}  # alarms that were taken into account
        self.episode = 0  # spells of trouble so far, with calm ones of `cool_down` steps between them
        self.opened, self.closed = NEVER, NEVER  # moments at which the episode began, and was last calm
        self.is_open = False
        self.acted: list[int] = []  # moments of actions that tighten
        self.softened: tuple[Incident, int] | None = None  # what was last softened, and its onset

    def act(self, now: int, step: int, incident: Incident, levels: Mapping[str, float]) -> list[Action]:
        """Return what is to be done about an open incident at moment `now`."""
        self._note_open(now)
        alarms = open_alarms(incident, self.options.ignore_rules)
        fresh = self._fresh(alarms)
        critical = any(alarm.severity == "critical" for alarm in alarms)
        cause = likely_cause(incident)
        case = self.cases.setdefault(cause, Case())
        if not critical and now - self.opened + 1 < self.options.confirm_steps:
            return []
        if now - case.acted < self.options.cool_down:  # what it did cannot show yet
            self.seen |= {name: None for name in fresh if not name.startswith("critical/")}
            return []
        self.seen |= fresh
        # an alarm on slow growth may date from long before; those that are left of it began later
        onset = max(incident.since, min((alarm.since for alarm in alarms), default=incident.since))
        situation = _Moment(now, step, incident, levels, cause, case, onset, critical)
        row = policies_for(cause, self.options.table)
        if not row:
            return self._warn(situation, f"no lever helps against {cause}; see the incident's test")
        if case.episode != self.episode:
            case.episode, case.softened, case.used_here = self.episode, 0, {}
            return self._soften(situation, row) or self._exhausted(situation, "")
        return self._go_on(situation, row, fresh)

    def _go_on(self, at: _Moment, row: tuple[str, ...], fresh: Mapping[str, None]) -> list[Action]:
        """Act again on an incident that was acted on."""
        fallen = self.rewards.has_fallen(at.onset)
        worse = bool(fresh) or fallen
        critical = fallen or any(name.startswith("critical/") for name in fresh)
        if worse and (critical or at.case.softened >= self.options.soften_times):
            return self._roll_back(at) or self._soften(at, row) or self._exhausted(at, "")
        impatient = at.now - at.case.acted >= self.options.patience
        if worse or (impatient and at.case.softened < self.options.soften_times):
            return self._soften(at, row) or (self._roll_back(at) if worse else []) or self._exhausted(at, "")
        return []

    def calm(self, now: int, step: int, levels: Mapping[str, float]) -> list[Action]:
        """No incident is open at moment `now`. Returns a rollback where the last one took the reward with it.

        Once an incident, from `cool_down` to `patience` steps after a softer action: its cause is gone then,
        and the policy is still what it made of it.
        """
        if self.is_open:
            self.is_open, self.closed = False, now
        if self.softened is None:
            return []
        incident, onset = self.softened
        cause = likely_cause(incident)
        case = self.cases[cause]
        if now - case.acted > self.options.patience:
            self.softened = None
        elif now - case.acted >= self.options.cool_down and self.rewards.has_fallen(onset):
            critical = incident.severity == "critical"
            return self._roll_back(_Moment(now, step, incident, levels, cause, case, onset, critical))
        return []

    def _note_open(self, now: int) -> None:
        if self.is_open:
            return
        self.is_open = True
        if now - self.closed >= self.options.cool_down:  # else the same trouble flickers
            self.episode, self.opened = self.episode + 1, now

    def forget_policy(self, policy: str) -> None:
        """A policy's requests are undone: the next time is its first."""
        for case in self.cases.values():
            case.used.pop(policy, None)

    def _soften(self, at: _Moment, row: tuple[str, ...]) -> list[Action]:
        """Let the policy act that was used least in this incident, the first of them in order."""
        recent = [moment for moment in self.acted if at.now - moment < self.options.forget_after]
        if len(recent) >= self.options.budget:
            return self._exhausted(at, f"the budget of {self.options.budget} actions is used up")
        offered, missing = self.requests.levers(), []
        for name in sorted(row, key=lambda name: at.case.used_here.get(name, 0)):
            policy, times = self.options.policy(name), at.case.used.get(name, 0)
            if policy.needs and not set(policy.needs) & offered.keys():
                missing.append(f"{name} needs {' or '.join(policy.needs)}, which this trainer does not offer")
                continue
            situation = Situation(at.step, at.incident, times, offered, self.requests.value, at.levels)
            proposed = policy.propose(situation)
            if not proposed:
                continue
            at.case.used[name], at.case.used_here[name] = times + 1, at.case.used_here.get(name, 0) + 1
            at.case.softened += 1
            self.softened = at.incident, at.onset
            return self._put(at, name, proposed, "; ".join(missing))
        return []

    def _put(self, at: _Moment, policy: str, proposed: list[Request], note: str) -> list[Action]:
        at.case.acted = at.now
        self.acted = [*self.acted[-self.options.budget :], at.now]
        changes = [self.requests.put(policy, request) for request in proposed]
        return [set_lever(change, at.incident, policy, note) for change in changes]

    def _roll_back(self, at: _Moment) -> list[Action]:
        policy, case = self.options.policies.rollback, at.case
        self.softened = None
        if not policy.enabled:
            return []
        if self.last_stable is None:
            return self._exhausted(at, "nothing to roll back to: no stable states are kept")
        times = sum(at.now - moment < self.options.forget_after for moment in case.rollbacks)
        if times >= policy.max_times:
            return self._exhausted(at, f"{times} rollbacks for {at.cause} did not help", used_up=True)
        before = at.onset if not times else min(at.onset, case.restored[-1])
        to_step = self.last_stable(min(before, at.onset - policy.margin))
        if to_step is None:  # then one from within the margin is better than none
            to_step = self.last_stable(before)
        if to_step is None:
            return self._exhausted(at, f"nothing to roll back to: no stable state from before step {before}")
        case.rollbacks.append(at.now)
        case.restored.append(to_step)
        fallen = ", and the reward has fallen since" if self.rewards.has_fallen(at.onset) else ""
        note = f"rollback {times + 1} for {at.cause}: it began at step {at.onset}{fallen}"
        levers = self.requests.levers()
        situation = Situation(at.step, at.incident, times, levers, self.requests.value, at.levels)
        lowered = self._put(at, policy.name, policy.propose(situation), note)
        return [Rollback(to_step, at.incident, policy.name, note), *lowered]

    def _exhausted(self, at: _Moment, note: str, *, used_up: bool = False) -> list[Action]:
        """Stop where the options say so, else warn; once an incident."""
        note = note or f"no lever is left to use against {at.cause}"
        if self.options.policies.stop.ends(critical=at.critical, used_up=used_up):
            at.case.acted = at.now
            return [self.options.policies.stop.action(at.incident, note)]
        return self._warn(at, note)

    def _warn(self, at: _Moment, note: str) -> list[Action]:
        if at.case.warned == self.episode:
            return []
        at.case.warned = at.case.episode = self.episode
        at.case.acted = at.now
        return [Warn(at.incident, "warn", note)]

    def _fresh(self, alarms: Iterable[Alarm]) -> dict[str, None]:
        names = [f"{alarm.severity}/{alarm.rule}/{alarm.slice}/{alarm.step}" for alarm in alarms]
        return {name: None for name in names if name not in self.seen}

    def state_dict(self) -> dict[str, Any]:
        """Return the cases as JSON types."""
        return {
            "cases": {cause: asdict(case) for cause, case in self.cases.items()},
            "seen": list(self.seen)[-1_000:], "acted": self.acted, "is_open": self.is_open,
            "episode": self.episode, "opened": self.opened, "closed": self.closed,
            "softened": self.softened and [incident_row(self.softened[0]), self.softened[1]],
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over cases."""
        self.cases = {cause: replace(Case(), **case) for cause, case in state["cases"].items()}
        self.seen = dict.fromkeys(state["seen"])
        self.acted, self.is_open = list(state["acted"]), state["is_open"]
        self.episode, self.opened, self.closed = state["episode"], state["opened"], state["closed"]
        softened = state.get("softened")
        self.softened = softened and (incident_from_row(softened[0]), int(softened[1]))


@dataclass(frozen=True)
class _Moment:
    now: int
    step: int
    incident: Incident
    levels: Mapping[str, float]
    cause: str
    case: Case
    onset: int  # first step of the evidence of the alarms that are open
    critical: bool


def set_lever(change: Change, because: Incident, policy: str, note: str) -> SetLever:
    """Return the action of a change, with a note where another policy asks for a tighter value."""
    if change.tighter:
        note = "; ".join(filter(None, (note, f"{change.tighter} asks for a tighter value, which counts")))
    return SetLever(change.lever, change.slice, change.before, change.after, because, policy, note)

"""The guard: incidents in, actions out, and their effect on a trainer's levers.

decide (one rank) -> StepPlan -> apply (every rank) -> Controls, StableStates
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.catalog import bound
from trimtab.guard.cause_table import likely_cause, open_alarms
from trimtab.guard.controls import Controls, StableStates
from trimtab.guard.escalation import Escalation
from trimtab.guard.lever_requests import Key, LeverRequests
from trimtab.guard.presets import GuardOptions
from trimtab.guard.quarantine.tool_quarantine import CAUSE, TOOL_LEVERS, ToolQuarantine
from trimtab.guard.recovery import Lasting, Recovery, no_evidence
from trimtab.guard.reward_record import RewardRecord
from trimtab.guard.simulated import SimulatedControls, SimulatedStates
from trimtab.guard.update_filter import UpdateFilter
from trimtab.traces.core.tool_call import ToolCall
from trimtab.types import Action, Incident, QuarantineTool, Rollback, SetLever, SkipUpdate, Stop, Undo, Warn


@dataclass(frozen=True)
class StepPlan:
    """What all ranks do after a step. `keep`: write a stable state, with this `verdict`."""

    actions: tuple[Action, ...] = ()
    verdict: str = "unsettled"
    keep: bool = False
    suspect: tuple[int, int | None] | None = None  # steps whose states are not stable after all


class Guard:
    """Decides what is done about incidents and does it.

    `options` are as `guard_options` returns them. `controls` are the trainer's; without them the guard only
    observes. `states` is the ring of stable states; without one rollbacks are not possible.

    Its own state is saved by `state_dict` for a resume of the process. It is not part of a stable state: a
    rollback that made the guard forget it would be repeated for ever.

    Example:
        guard = Guard(guard_options("recommended"), controls)
        if guard.before_update(step, grad_norm):
            optimizer.step()
        for action in guard.after_step(step, incidents, settled): print(action)
    """

    def __init__(
        self, options: GuardOptions, controls: Controls | None = None, states: StableStates | None = None
    ) -> None:
        self.options, self.controls = options, controls
        self.states = states if self.acts else SimulatedStates(options.states.count)
        self.requests = LeverRequests(controls)
        last_stable = None if self.states is None else self.states.last_stable
        self._rewards = RewardRecord()
        self._escalation = Escalation(options, self.requests, last_stable, self._rewards)
        self._recovery = Recovery(options, self.requests)
        self._updates = UpdateFilter(options, self.requests)
        self.quarantine = ToolQuarantine(options.policies.quarantine_tool, self.requests.levers)
        self._in_force: dict[Key, float] = {}  # what was set on this rank's controls
        self._before_step: list[Action] = []  # done before the update, and recorded after the step
        self._now = 0  # calls of `decide`
        self._quiet_since = 0  # moment of the last new alarm
        self._num_alarms = 0
        self._suspect_since: int | None = None  # first step of the trouble that is acted on
        self._gate: dict[str, float] = {}  # mismatch KL at the last kept state, and the limit after a restore

    @property
    def acts(self) -> bool:
        """True where actions change training; False where they are recorded alone."""
        return not self.options.observe and self.controls is not None

    def note_call(self, call: ToolCall) -> None:
        """Take a tool call of the open step, for the quarantine of tools."""
        self.quarantine.note_call(call)

    def before_update(self, step: int, grad_norm: float | None, ess_frac: float | None = None) -> bool:
        """Return whether the optimizer step may be made; False: leave it out.

        Args:
            step: the step that is made.
            grad_norm: of the whole batch, before clipping; None where it is not known.
            ess_frac: fraction of sequences that carry the raw weights, for the ESS-scaled step.
        """
        actions = self.decide_update(step, grad_norm, ess_frac)
        for action in actions:
            self.apply(action)
        return not (self.acts and any(isinstance(action, SkipUpdate) for action in actions))

    def decide_update(
        self, step: int, grad_norm: float | None, ess_frac: float | None = None
    ) -> list[Action]:
        """Return what is done at an update; `decide` records it."""
        actions = self._updates.decide(step, grad_norm, ess_frac)
        self._before_step += actions
        return actions

    def after_step(
        self,
        step: int,
        incidents: Sequence[Incident],
        settled: bool,
        levels: Mapping[str, float] | None = None,
        lasts: Lasting = no_evidence,
    ) -> list[Action]:
        """Decide and apply. Returns what was done at this step, what was done before its update included.

        Args:
            step: the step that was made.
            incidents: those of the run so far, in the order they began.
            settled: the detectors have judged, and no alarm above info is open. A state kept now is stable.
            levels: readings that policies follow: `kl` and `kl/<slice>` (nats a token, to the reference),
                `mismatch_kl` (nats), `reward` (the step's mean). Those that are not known are left out.
            lasts: takes an incident, and returns whether the evidence of its cause still stands. Levers that
                were turned for it are not turned back while it does.
        """
        plan = self.decide(step, incidents, settled, levels, lasts)
        for action in plan.actions:
            self.apply(action)
        self.doubt(plan)
        if plan.keep:
            self.keep(step, plan)
        return list(plan.actions)

    def decide(
        self,
        step: int,
        incidents: Sequence[Incident],
        settled: bool,
        levels: Mapping[str, float] | None = None,
        lasts: Lasting = no_evidence,
    ) -> StepPlan:
        """Return what all ranks are to do after this step; nothing is done yet."""
        self._now += 1
        levels = levels or {}
        self._rewards.add(step, levels.get("reward"))
        done, self._before_step = self._before_step, []
        trouble = _open_incident(incidents, self.options)
        self._note_alarms(incidents)
        actions: list[Action] = self._resume_gate(step, levels)
        tools = self.quarantine.close(step)
        if trouble is None:
            actions += self._escalation.calm(self._now, step, levels)
        elif not actions and not (self.quarantine.is_active and likely_cause(trouble) == CAUSE):
            actions = self._escalation.act(self._now, step, trouble, levels)
        self._recovery.note_acted(self._now, actions)
        silent = self._now - self._quiet_since >= self.options.open_limit
        relaxed, finished = self._recovery.step(self._now, trouble is None or silent, lasts)
        for policy in finished:
            self._escalation.forget_policy(policy)
        following = self._recovery.adjust(step, levels) if not actions and not relaxed else []
        verdict = "stable" if settled and trouble is None else "unsettled" if trouble is None else "incident"
        restored = any(isinstance(action, (Rollback, Stop)) for action in actions)
        keep = self.states is not None and not restored and self._now % self.options.states.every == 0
        self._set_gate(restored, keep and verdict == "stable", levels)
        suspect = self._suspected(step, trouble, actions)
        return StepPlan((*done, *actions, *relaxed, *following, *tools), verdict, keep, suspect)

    def apply(self, action: Action) -> None:
        """Do what an action says on this rank; a dry run only forgets states that a rollback passes."""
        if not self.acts or self.controls is None:
            if isinstance(action, Rollback) and self.states is not None:
                self.states.restore(action.to_step, SimulatedControls())
            return
        if isinstance(action, (SetLever, Undo)):
            self._in_force[action.lever, action.slice] = action.after
            self.controls.set(action.lever, action.slice, action.after)
        elif isinstance(action, QuarantineTool):
            self._in_force[action.lever, f"tool/{action.tool}"] = action.after
            self.controls.set(action.lever, f"tool/{action.tool}", action.after)
        elif isinstance(action, Rollback) and self.states is not None:
            self.states.restore(action.to_step, self.controls)
            self._set_levers()
        elif isinstance(action, Stop):
            self.controls.stop()

    def doubt(self, plan: StepPlan) -> None:
        """Have the ring no longer offer states that looked stable when they were kept."""
        if self.states is not None and plan.suspect is not None:
            self.states.suspect(*plan.suspect)

    def keep(self, step: int, plan: StepPlan) -> None:
        """Have the state after `step` written; a dry run only remembers its verdict."""
        if self.states is not None:
            self.states.keep(step, plan.verdict, self.controls or SimulatedControls())

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed process needs, as JSON types (infinities included)."""
        return {
            "now": self._now, "quiet_since": self._quiet_since, "num_alarms": self._num_alarms,
            "gate": self._gate, "suspect_since": self._suspect_since,
            "in_force": [[*key, value] for key, value in self._in_force.items()],
            "requests": self.requests.state_dict(), "escalation": self._escalation.state_dict(),
            "recovery": self._recovery.state_dict(), "updates": self._updates.state_dict(),
            "rewards": self._rewards.state(), "quarantine": self.quarantine.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state, and put the levers of then in force again."""
        self._now, self._quiet_since = state["now"], state["quiet_since"]
        self._num_alarms, self._gate = state["num_alarms"], dict(state["gate"])
        self._suspect_since = state.get("suspect_since")
        self._in_force = {(lever, where): float(value) for lever, where, value in state["in_force"]}
        self.requests.load_state_dict(state["requests"])
        self._escalation.load_state_dict(state["escalation"])
        self._recovery.load_state_dict(state["recovery"])
        self._updates.load_state_dict(state["updates"])
        self._rewards.load(state.get("rewards", []))
        self.quarantine.load_state_dict(state.get("quarantine", {}))
        self.take_over_tools()

    def take_over_tools(self) -> None:
        """Put the fractions of the quarantine in force, after a resume, beside all other levers."""
        known = {key: 1.0 for key in self._in_force if key[0] in TOOL_LEVERS}
        self._in_force |= known | self.quarantine.fractions()
        self._set_levers()

    def _set_levers(self) -> None:
        if self.acts and self.controls is not None:
            for (lever, where), value in self._in_force.items():
                self.controls.set(lever, where, value)

    def _note_alarms(self, incidents: Sequence[Incident]) -> None:
        count = sum(alarm.severity != "info" for incident in incidents for alarm in incident.alarms)
        if count != self._num_alarms:
            self._num_alarms, self._quiet_since = count, self._now

    def _suspected(
        self, step: int, trouble: Incident | None, actions: Sequence[Action]
    ) -> tuple[int, int | None] | None:
        """Return the steps to doubt: from before the onset on once an incident is acted on, until it passes.

        States of then may have been kept as stable. They are of the trouble, and the one before them is what
        the ring must not drop.
        """
        if any(isinstance(action, Rollback) for action in actions):
            self._suspect_since = None  # the ring forgets what lies after the restored state
        elif self._suspect_since is None and trouble is not None and _tightens(actions):
            self._suspect_since = trouble.since - self.options.policies.rollback.margin
            return self._suspect_since, None
        elif self._suspect_since is not None and trouble is None:
            since, self._suspect_since = self._suspect_since, None
            return since, step
        return None

    def _resume_gate(self, step: int, levels: Mapping[str, float]) -> list[Action]:
        """On the first step after a restore: do the engines agree as well as when the state was kept?"""
        limit = self._gate.pop("limit", math.nan)
        level = levels.get("mismatch_kl", math.nan)
        if not level > limit:
            return []
        because = Incident(step, "all", "critical", (), ())
        note = (
            f"the engines disagree after the restore: mismatch KL {level:.3g} nats, "
            f"at most {limit:.3g} expected; "
            "resynchronise the sampler"
        )
        return [self.options.policies.stop.action(because, note)]

    def _set_gate(self, restored: bool, at_stable: bool, levels: Mapping[str, float]) -> None:
        if at_stable:
            self._gate["mismatch_kl"] = levels.get("mismatch_kl", math.nan)
        if restored and "mismatch_kl" in self._gate:
            known = max(self._gate["mismatch_kl"], bound("guard_gate_floor"))
            self._gate["limit"] = self.options.policies.rollback.gate * known


def _tightens(actions: Sequence[Action]) -> bool:
    return any(not isinstance(action, Warn) for action in actions)


def _open_incident(incidents: Sequence[Incident], options: GuardOptions) -> Incident | None:
    """Return the last incident, if an alarm of it is open, severe enough and not left alone."""
    if not incidents:
        return None
    alarms = open_alarms(incidents[-1], options.ignore_rules)
    wanted = ("warning", "critical") if options.min_severity == "warning" else ("critical",)
    return incidents[-1] if any(alarm.severity in wanted for alarm in alarms) else None

"""A run's guard: what it decides is shared with every rank, done in isolation, and written to the run store.

`share` is a collective of the caller's. It is called once a step, and once before each update, on every rank
and whatever failed before, so that no rank waits for another for ever. Without it, where ranks are merged, a
relay takes decisions to all ranks, which apply them some steps later; nobody waits then.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trimtab.errors import GuardError
from trimtab.guard import Controls, Guard, GuardOptions, StableStates, StepPlan
from trimtab.monitor.detection import Situation
from trimtab.monitor.isolation import Isolation
from trimtab.monitor.ranks.relay import DecisionRelay
from trimtab.runs import RunReader, RunWriter
from trimtab.runs.action_rows import action_from_row, action_row
from trimtab.traces.core.tool_call import call_from_row
from trimtab.types import Action, SkipUpdate

log = logging.getLogger("trimtab")

Share = Callable[[str], str]
"""Returns on every rank what rank 0 passed in; the others pass an empty text."""

Row = dict[str, Any]
_COST = "guard"


@dataclass(frozen=True)
class GuardArguments:
    """What `open_run` takes for a guard."""

    options: GuardOptions
    controls: Controls | None = None
    states: StableStates | None = None
    share: Share | None = None

    def __post_init__(self) -> None:
        """Refuse a guard that is to act and has nothing to act on."""
        if self.controls is None and not self.options.observe:
            raise GuardError("guard: controls are missing; give open_run(controls=...), or guard='observe'")


class RunGuard:
    """The guard of one rank. The rank that leads decides; all ranks do the same."""

    def __init__(
        self,
        arguments: GuardArguments,
        writer: RunWriter,
        isolation: Isolation,
        write: Callable[[dict[str, Any]], None],
        relay: Callable[[], DecisionRelay | None] = lambda: None,
    ) -> None:
        self.guard = Guard(arguments.options, arguments.controls, arguments.states)
        self.leads = writer.rank == 0 or arguments.share is None
        self._share, self._isolation, self._write = arguments.share, isolation, write
        self._relay, self._warned = relay, False
        self._folder, self._rank, self._is_first = writer.folder, writer.rank, True
        self._take_over_tools(math.inf)

    def before_update(self, step: int, grad_norm: float | None, ess_frac: float | None) -> bool:
        """Return whether the optimizer step may be made; True where the guard itself fails."""
        if self._relay() is not None:
            self._warn_of_updates()
            return True
        text = ""
        if self.leads:
            with self._isolation.block("decide about an update", _COST):
                text = _packed(StepPlan(tuple(self.guard.decide_update(step, grad_norm, ess_frac))))
        plan, _ = self._shared(text)
        for action in plan.actions:
            with self._isolation.block(f"apply {type(action).__name__}", _COST):
                self.guard.apply(action)
        return not (self.guard.acts and any(isinstance(action, SkipUpdate) for action in plan.actions))

    def after_step(self, step: int, situation: Callable[[], Situation]) -> list[Action]:
        """Decide, share, apply and record. Returns what was done.

        A negative `step` stands for a call of `flush` that closed no step: nothing is decided then.
        """
        if self._is_first and step >= 0:
            self._is_first = False
            if self.guard.quarantine.last_step >= step:  # a checkpoint of before the last recorded step
                self.guard.quarantine.forget()
                self._take_over_tools(step)
        relay = self._relay()
        if relay is not None:
            return [] if step < 0 else self._relayed(relay, step, situation)
        text = ""
        if self.leads and step >= 0:
            with self._isolation.block("decide what the guard does", _COST):
                text = _packed(self.guard.decide(step, *situation()))
        plan, rows = self._shared(text)
        return self._carry_out(step, plan, rows)

    def _take_over_tools(self, before: float) -> None:
        """Judge the tools by the calls that this rank recorded before a step, so that a kill loses nothing.

        Quarantines in force then are in force again. An older state of the guard does not replace them.
        """
        quarantine, relay = self.guard.quarantine, self._relay()
        leads = self.leads if relay is None else relay.leads
        if not (quarantine.options.enabled and leads):  # the others hear of it with the first decision
            return
        with self._isolation.block("take over the quarantine of tools", _COST):
            reader = RunReader(self._folder, complete=True)
            steps = [int(row["step"]) for row in reader.rows("steps", self._rank) if row["step"] < before]
            calls = map(call_from_row, reader.rows("tools", self._rank))
            quarantine.replay(steps, calls)
            self.guard.take_over_tools()

    def _relayed(self, relay: DecisionRelay, step: int, situation: Callable[[], Situation]) -> list[Action]:
        """Decide, where this rank leads, and do what is due at `step` on all ranks."""
        if relay.leads:
            with self._isolation.block("decide what the guard does", _COST):
                plan = self.guard.decide(step, *situation())
                if plan.actions or plan.keep or plan.suspect is not None:
                    relay.publish(step, _packed(plan))
        done: list[Action] = []
        with self._isolation.block("read what the guard decided", _COST):
            for decision in relay.due(step):
                plan, rows = _unpacked(decision.text)
                late = {"late": step - decision.apply_at} if step > decision.apply_at else {}
                of_decision = {"decision": decision.number, "decided": decision.step, **late}
                done += self._carry_out(step, plan, [row | of_decision for row in rows])
        return done

    def _carry_out(self, step: int, plan: StepPlan, rows: list[Row]) -> list[Action]:
        """Apply and record the actions of a plan, and keep the state it asks for."""
        for action, row in zip(plan.actions, rows, strict=True):
            self._do(step, action, row)
        if plan.suspect is not None:
            with self._isolation.block("doubt stable states", _COST):
                self.guard.doubt(plan)
        if plan.keep:
            with self._isolation.block("keep a stable state", _COST):
                self.guard.keep(step, plan)
        return list(plan.actions)

    def _shared(self, text: str) -> tuple[StepPlan, list[Row]]:
        """What rank 0 decided, and the rows of its actions; nothing where that failed."""
        plan, rows = StepPlan(), list[Row]()
        with self._isolation.block("share what the guard decided", _COST):
            if self._share is not None:
                text = self._share(text)
            if text:
                plan, rows = _unpacked(text)
        return plan, rows

    def _warn_of_updates(self) -> None:
        if not self._warned and self.guard.acts:
            log.warning(
                "trimtab: no update is left out: with merge= the guard's decisions come some steps late, and "
                "one about an update cannot. Give open_run(share=...) to have updates judged."
            )
        self._warned = True

    def _do(self, step: int, action: Action, of_action: Row) -> None:
        failures = self._isolation.num_failures
        with self._isolation.block(f"apply {type(action).__name__}", _COST):
            self.guard.apply(action)
        failed = self._isolation.num_failures > failures
        row = {
            "step": step, "time": time.time(), "dry_run": not self.guard.acts, **of_action,
            "failure": self._isolation.last_failure if failed else "",
        }  # fmt: skip
        with self._isolation.block("record an action", _COST):
            self._write(row)


def _packed(plan: StepPlan) -> str:
    rows = [action_row(action) for action in plan.actions]
    return json.dumps({"actions": rows, "verdict": plan.verdict, "keep": plan.keep, "suspect": plan.suspect})


def _unpacked(text: str) -> tuple[StepPlan, list[Row]]:
    data = json.loads(text)
    rows, suspect = data["actions"], data["suspect"]
    actions = tuple(map(action_from_row, rows))
    return StepPlan(actions, data["verdict"], data["keep"], suspect and (suspect[0], suspect[1])), rows

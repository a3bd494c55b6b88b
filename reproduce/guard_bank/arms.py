"""The arms that need no watch: none, a remedy, an oracle, the guard's actions at other steps, and the best checkpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from reproduce.collapse_bank.events import event_of, smoothed
from reproduce.guard_bank.causes import CAUSES, LAST
from reproduce.guard_bank.lever_loop import LeverLoop
from reproduce.guard_bank.remedies import REMEDIES
from reproduce.guard_bank.trail import Trail
from trimtab.types import Lever

__all__ = ["ArmRun", "Branches", "best_checkpoint", "fallen_step", "is_lost", "oracle", "remedied", "replayed", "shifted"]  # fmt: skip

ActionRow = dict[str, Any]
FALLEN = 0.80
"""A person sees the fall when the 8-step mean of the reward has lost a fifth of its best."""
LOST_AFTER, LOST_LEVEL = 45, 0.5


@dataclass
class ArmRun:
    """What an arm left: rewards from the fault on, and what was done."""

    cause: str
    arm: str
    seed: int
    fault_step: int
    rewards: list[float] = field(default_factory=list)
    actions: list[ActionRow] = field(default_factory=list)
    """Rows of actions (`trimtab.runs.action_rows`), each with its `step`."""
    skipped: int = 0
    dropped: int = 0
    stopped: int | None = None
    """Step after which the guard ended the run."""
    ended_early: bool = False
    """The run was ended because it was lost (`is_lost`)."""
    cpu_s: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the record that is stored."""
        return asdict(self) | {"rewards": [round(value, 4) for value in self.rewards], "cpu_s": round(self.cpu_s, 1)}  # fmt: skip


@dataclass(frozen=True)
class Branches:
    """What the arms of one cause and seed begin from."""

    cause: str
    seed: int
    fault_step: int
    last: int
    """The last step of every arm."""
    prefix: Trail
    none: Trail
    """The run with the fault and without any action; its rewards begin at the fault."""

    @property
    def horizon(self) -> int:
        """Steps from the fault on."""
        return self.last - self.fault_step + 1

    @property
    def level(self) -> float:
        """Mean reward of the eight steps before the fault."""
        return float(np.mean(self.prefix.rewards[-8:]))

    def new_run(self, arm: str) -> ArmRun:
        """Return an empty record of an arm."""
        return ArmRun(self.cause, arm, self.seed, self.fault_step)


def is_lost(rewards: Sequence[float], level: float) -> bool:
    """Return whether a run may be ended as lost: 45 steps after the fault its last 30 are under half of `level`.

    To be saved all the same, its next 30 steps would have to be near the best there is. Such runs are counted as lost.
    """
    return len(rewards) >= LOST_AFTER and float(np.mean(rewards[-LAST:])) < LOST_LEVEL * level


def remedied(at: Branches, arm: str, start: LeverLoop) -> ArmRun:
    """Run a published remedy from the fault on; `start` stands at the fault, under its regime."""
    start.setup.remedy = REMEDIES[arm]()
    start.setup.remedy.prepare(at.prefix.losses, at.prefix.norms)
    return _trained(at, at.new_run(arm), start)


def oracle(at: Branches, start: LeverLoop) -> ArmRun:
    """Turn the levers that remove the cause, at the fault itself."""
    start.setup.levers |= CAUSES[at.cause].oracle
    return _trained(at, at.new_run("oracle"), start)


def _trained(at: Branches, run: ArmRun, loop: LeverLoop) -> ArmRun:
    trail = Trail()
    while loop.steps_done < at.last and not is_lost(trail.rewards, at.level):
        trail.rewards.append(loop.train().reward)
    return _closed(at, run, trail.rewards, loop)


def _closed(at: Branches, run: ArmRun, rewards: list[float], loop: LeverLoop) -> ArmRun:
    run.rewards, run.skipped, run.dropped = rewards, loop.setup.skipped, loop.setup.dropped
    run.ended_early = run.stopped is None and len(rewards) < at.horizon
    return run


def shifted(actions: Sequence[ActionRow], first: int) -> list[ActionRow]:
    """Return the actions with the first at step `first`, and their distances as they were.

    Example:
        >>> [row["step"] for row in shifted([{"step": 70}, {"step": 82}], 90)]
        [90, 102]
    """
    return [{**row, "step": row["step"] - actions[0]["step"] + first} for row in actions]


def fallen_step(at: Branches) -> int | None:
    """Return the first step at which the run without action shows its fall: the 8-step mean has lost a fifth of the best so far."""
    means = smoothed([*at.prefix.rewards, *at.none.rewards])
    best = -math.inf
    for step, mean in enumerate(means.tolist(), start=1):
        best = max(best, mean) if not math.isnan(mean) else best
        if step >= at.fault_step and mean < FALLEN * best:
            return step
    return None


def replayed(at: Branches, arm: str, actions: Sequence[ActionRow]) -> ArmRun:
    """Take actions after the steps they name, blindly. Before the first of them the run is the one without action."""
    run = at.new_run(arm)
    run.actions = [row for row in actions if row["step"] <= at.last]
    first = run.actions[0]["step"] if run.actions else at.last
    trained = min(first, at.fault_step - 1 + len(at.none.rewards))
    if trained < first or not run.actions:  # the run without action was lost before
        run.rewards, run.ended_early = list(at.none.rewards), len(at.none.rewards) < at.horizon
        run.actions = []
        return run
    loop, rewards = at.none.loop_at(trained), at.none.rewards[: trained - at.fault_step + 1]
    pending, later = list(run.actions), Trail()
    while True:
        while pending and pending[0]["step"] == loop.steps_done:
            _apply(pending.pop(0), loop, run, [at.prefix, at.none, later])
        lost = not pending and is_lost(rewards, at.level)
        if run.stopped is not None or lost or loop.steps_done >= at.last:
            break
        if loop.steps_done % 20 == 0:
            later.copies[loop.steps_done] = loop.branch(loop.regime)
        rewards.append(loop.train().reward)
    return _closed(at, run, rewards, loop)


def _apply(row: ActionRow, loop: LeverLoop, run: ArmRun, trails: Sequence[Trail]) -> None:
    """Do what a row of an action says."""
    name = row["action"]
    if name in ("set_lever", "undo"):
        lever: Lever = row["lever"]
        loop.setup.levers[lever] = float(row["after"])
    elif name == "rollback":
        copies = {step: copy for trail in trails for step, copy in trail.copies.items()}
        loop.restore(copies[max(step for step in copies if step <= row["to_step"])])
    elif name == "stop":
        run.stopped = loop.steps_done
    elif name == "skip_update":
        loop.setup.before_update = lambda step, loss, norm, skipped=loop.steps_done + 1: step == skipped  # type: ignore[misc]


def best_checkpoint(at: Branches) -> ArmRun:
    """Stop the run without action at its event, and play the last batches with the copy of the best 8-step mean, untrained.

    The copy is played without the fault: it is what one would deploy.
    """
    run = at.new_run("best_checkpoint")
    rewards = [*at.prefix.rewards, *at.none.rewards]
    event = event_of(rewards)
    means = smoothed(rewards)[: None if event is None else event.step]
    copies = at.prefix.copies | at.none.copies
    usable = [step for step in copies if 8 <= step <= means.size] or [0]
    best = max(usable, key=lambda step: float(means[step - 1]))
    loop = at.prefix.loop_at(0)
    loop.weights, run.notes = copies[best].weights, {"checkpoint": best}
    run.rewards = [loop.evaluate(step + 1) for step in range(at.last - min(LAST, at.horizon), at.last)]
    return run

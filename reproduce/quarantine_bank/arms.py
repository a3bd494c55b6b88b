"""The arms of one seed: the shared steps before the outage, then each arm with an outage that lasts and with one that ends."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from reproduce.collapse_bank.regimes import FAULTS, HEALTHY, Regime, fault_step
from reproduce.collapse_bank.training import start_weights
from reproduce.quarantine_bank.tool_loop import TOOLS, ToolControls, ToolLoop
from trimtab.guard import Guard, GuardOptions, guard_options
from trimtab.runs.action_rows import action_row
from trimtab.traces.core.tool_call import ToolCall

__all__ = ["ARMS", "CAUSES", "HORIZON", "OUTAGE", "TEST_SEEDS", "TUNING_SEEDS", "Record", "record_file", "train_seed"]  # fmt: skip

TEST_SEEDS = range(400, 412)
TUNING_SEEDS = range(100, 108)
HORIZON, OUTAGE = 60, 30
"""Steps trained from the fault on, and steps of an outage that ends."""
EVALUATED = 12
"""Batches of 48 episodes that the last policy plays, untrained and without the fault."""
FIRST_EVALUATED = 9_000
"""Number of the first of them; training reaches none of these draws."""
CAUSES = ("tool_fault", "tool_fault_ends")
CHAINED = ("none", "mask", "withhold", "oracle")
"""Arms whose two causes share the steps until an outage ends."""
ARMS: Mapping[str, tuple[str, ...]] = {CAUSES[0]: (*CHAINED, "placebo"), CAUSES[1]: CHAINED}
"""Arms of each cause."""
BROKEN = replace(HEALTHY, **FAULTS["tool_fault"])

Record = dict[str, Any]


@dataclass(frozen=True)
class Steps:
    """When the fault sets in, how long an outage lasts that ends, and the steps trained from the fault on."""

    fault: int
    outage: int = OUTAGE
    horizon: int = HORIZON
    evaluated: int = EVALUATED

    @property
    def last(self) -> int:
        """The last step."""
        return self.fault + self.horizon - 1


@dataclass
class ArmRun:
    """One arm while it is trained."""

    loop: ToolLoop
    guard: Guard | None = None
    rewards: list[float] = field(default_factory=list)
    actions: list[dict[str, Any]] = field(default_factory=list)
    masked: list[int] = field(default_factory=list)
    planned: list[dict[str, Any]] = field(default_factory=list)
    """Actions that are taken blindly after the steps they name."""

    def go_on(self, last: int) -> None:
        """Train up to step `last`."""
        while self.loop.steps_done < last:
            step = self.loop.play_step()
            number = self.loop.steps_done
            self.rewards.append(step.reward)
            self.masked.append(step.masked)
            if self.guard is not None:
                self.actions += shown_to(self.guard, number, step.calls)
            for row in self.planned:
                if row["step"] == number:
                    self.loop.admission.set(row["lever"], f"tool/{row['tool']}", row["after"])
                    self.actions.append(row)

    def branch(self, regime: Regime) -> ArmRun:
        """Return a copy that goes on under another regime, its guard from its state as JSON."""
        loop = self.loop.branch(regime)
        guard = None
        if self.guard is not None:
            guard = Guard(self.guard.options, ToolControls(loop))
            guard.load_state_dict(json.loads(json.dumps(self.guard.state_dict())))
        return ArmRun(loop, guard, list(self.rewards), list(self.actions), list(self.masked), self.planned)


def shown_to(guard: Guard, step: int, calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Give a guard the calls of a step, and return the rows of its actions."""
    for call in calls:
        guard.note_call(call)
    keys = ("action", "tool", "lever", "before", "after", "note")
    rows = [action_row(action) for action in guard.after_step(step, [], True)]
    return [{"step": step, **{key: row[key] for key in keys if key in row}} for row in rows]


def options_of(mode: str) -> GuardOptions:
    """Return the recommended options with a quarantine of that mode."""
    recommended = guard_options("recommended")
    policy = msgspec.structs.replace(recommended.policies.quarantine_tool, enabled=True, mode=mode)
    policies = msgspec.structs.replace(recommended.policies, quarantine_tool=policy)
    return msgspec.structs.replace(recommended, policies=policies)


def record_file(raw: Path, cause: str, seed: int, arm: str) -> Path:
    """Return where the record of an arm is."""
    half = "test" if seed in TEST_SEEDS else "tuning"
    return raw / f"{cause}-{half}-s{seed}" / f"{arm}.json"


def train_seed(raw: Path, seed: int, steps: Steps | None = None) -> Iterator[str]:
    """Train what is missing of a seed, and yield one line an arm."""
    steps = steps or Steps(fault_step(seed))
    wanted = [(cause, arm) for cause in CAUSES for arm in ARMS[cause]]
    if all(record_file(raw, cause, seed, arm).exists() for cause, arm in [*wanted, ("healthy", "none")]):
        return
    seed_run = SeedRun(raw, seed, steps)
    yield from seed_run.healthy()
    for arm in CHAINED:
        yield from seed_run.chained(arm)
    yield from seed_run.placebo(CAUSES[0])


class SeedRun:
    """The steps before the fault, and the arms that branch from there."""

    def __init__(self, raw: Path, seed: int, steps: Steps) -> None:
        self.raw, self.seed, self.steps = raw, seed, steps
        self.start = ToolLoop(start_weights(), HEALTHY, seed)
        self.calls: list[list[ToolCall]] = []
        self.before: list[float] = []
        while self.start.steps_done < steps.fault - 1:
            step = self.start.play_step()
            self.calls.append(step.calls)
            self.before.append(step.reward)

    def healthy(self) -> Iterator[str]:
        """The run without a fault, shown to a guard that only observes."""
        if not self._has("healthy", "none"):
            run = ArmRun(self.start.branch(HEALTHY), self._guard("mask", None))
            yield from self._finish("healthy", "none", run)

    def chained(self, arm: str) -> Iterator[str]:
        """An arm with the outage that lasts, and from the step on at which it would end, with the one that ends."""
        if all(self._has(cause, arm) for cause in CAUSES):
            return
        loop = self.start.branch(BROKEN)
        loop.excludes = arm == "oracle"
        run = ArmRun(loop, self._guard(arm, loop) if arm in ("mask", "withhold") else None)
        run.go_on(self.steps.fault - 1 + self.steps.outage)
        ended = run.branch(HEALTHY)
        yield from self._finish(CAUSES[0], arm, run)
        yield from self._finish(CAUSES[1], arm, ended)

    def placebo(self, cause: str) -> Iterator[str]:
        """The actions of the arm `mask` of this seed, the first at a random step, and their distances as they were."""
        if self._has(cause, "placebo"):
            return
        own = json.loads(record_file(self.raw, cause, self.seed, "mask").read_text())["actions"]
        draw = np.random.default_rng([self.seed, 1313])
        first = int(draw.integers(self.steps.fault, self.steps.last + 1))
        planned = [{**row, "step": row["step"] - own[0]["step"] + first} for row in own]
        yield from self._finish(cause, "placebo", ArmRun(self.start.branch(BROKEN), planned=planned))

    def _guard(self, mode: str, loop: ToolLoop | None) -> Guard:
        """Return a guard that has seen the steps before the fault; without a loop it only observes."""
        guard = Guard(options_of(mode), None if loop is None else ToolControls(loop))
        for number, calls in enumerate(self.calls, start=1):
            shown_to(guard, number, calls)
        return guard

    def _has(self, cause: str, arm: str) -> bool:
        return record_file(self.raw, cause, self.seed, arm).exists()

    def _finish(self, cause: str, arm: str, run: ArmRun) -> Iterator[str]:
        begin = time.process_time()
        run.go_on(self.steps.last)
        record: Record = {
            "cause": cause, "arm": arm, "seed": self.seed, "fault_step": self.steps.fault,
            "before": [round(value, 4) for value in self.before[-8:]],
            "rewards": [round(value, 4) for value in run.rewards],
            "score": round(self._score(run.loop), 5), "masked": run.masked, "actions": run.actions,
            "cpu_s": round(time.process_time() - begin, 1), "tools": list(TOOLS),
        }  # fmt: skip
        path = record_file(self.raw, cause, self.seed, arm)
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(f"{path.name}.part")
        half.write_text(json.dumps(record, separators=(",", ":")) + "\n")
        half.replace(path)
        yield f"{cause} {self.seed} {arm}: score {record['score']:.3f}, {len(run.actions)} actions, {record['cpu_s']:.0f} CPU-s"

    def _score(self, trained: ToolLoop) -> float:
        """Return the mean true reward of the last policy without the fault, with every tool offered."""
        loop = trained.branch(HEALTHY)
        loop.admission.fractions.clear()
        batches = range(FIRST_EVALUATED, FIRST_EVALUATED + self.steps.evaluated)
        return float(np.mean([loop.evaluate(batch) for batch in batches]))

"""All arms of a seed: the shared steps before the fault once, then the run without a fault, then each cause with its arms."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from reproduce.collapse_bank.events import event_of, has_learned, smoothed
from reproduce.collapse_bank.regimes import HEALTHY, fault_step
from reproduce.collapse_bank.training import start_weights
from reproduce.guard_bank.arms import (
    ArmRun,
    Branches,
    best_checkpoint,
    fallen_step,
    is_lost,
    oracle,
    remedied,
    replayed,
    shifted,
)
from reproduce.guard_bank.causes import CAUSES, HORIZON, arms_of, regime_of
from reproduce.guard_bank.guarded import CHANGES, guarded
from reproduce.guard_bank.lever_loop import LeverLoop
from reproduce.guard_bank.records import arm_file, read_arm, write_arm
from reproduce.guard_bank.remedies import REMEDIES
from reproduce.guard_bank.trail import Trail
from trimtab.guard import GuardOptions

__all__ = ["is_finished", "train_seed"]

OTHER_DRAWS = 500_000_003
"""Added to the seed of the draws in the rerun without a fault."""


def is_finished(raw: Path, seed: int, causes: Sequence[str]) -> bool:
    """Return whether all arms of a seed are there; where a fault ended in no collapse, the run without action is all there is to run."""
    return all(not _missing(raw, cause, seed) for cause in ("healthy", *causes))


def _missing(raw: Path, cause: str, seed: int) -> list[str]:
    missing = [arm for arm in arms_of(cause, seed) if not arm_file(raw, cause, seed, arm).exists()]
    if cause == "healthy" or "none" in missing:
        return missing
    return missing if read_arm(arm_file(raw, cause, seed, "none"))["notes"]["collapses"] else []


def train_seed(
    raw: Path, seed: int, causes: Sequence[str], options: GuardOptions, steps: tuple[int, int] | None = None
) -> Iterator[str]:
    """Train what is missing of a seed, and yield one line an arm.

    Args:
        raw: Folder of records, with the guard's run folders beside them.
        seed: Of the run.
        causes: Of `CAUSES`.
        options: Of the guard.
        steps: Fault step and horizon of a shorter run, for tests.
    """
    if is_finished(raw, seed, causes):
        return
    fault, horizon = steps or (fault_step(seed), HORIZON)
    loop, whole = LeverLoop(start_weights(), HEALTHY, seed), Trail()
    loop.watched = True
    whole.go_on(loop, fault - 1)
    prefix = Trail(
        list(whole.rewards), list(whole.losses), list(whole.norms), list(whole.batches), dict(whole.copies)
    )
    bench = Bench(raw, seed, fault, horizon, prefix, options)
    if _missing(raw, "healthy", seed):
        yield from bench.healthy(loop, whole)
    best = read_arm(arm_file(raw, "healthy", seed, "none"))["notes"]["best"]
    for cause in causes:
        if _missing(raw, cause, seed):
            yield from bench.broken(cause, best)


class Bench:
    """The arms of one seed."""

    def __init__(self, raw: Path, seed: int, fault: int, horizon: int, prefix: Trail, options: GuardOptions) -> None:  # fmt: skip
        self.raw, self.seed, self.fault, self.prefix, self.options = raw, seed, fault, prefix, options
        self.last, self.short = fault - 1 + horizon, horizon < HORIZON

    def healthy(self, loop: LeverLoop, whole: Trail) -> Iterator[str]:
        """Train the run without a fault, watched, then show it to the guard, and run it again with other draws."""
        at = Branches("healthy", self.seed, self.fault, self.last, self.prefix, whole)
        run, start = at.new_run("none"), time.process_time()
        whole.go_on(loop, self.last)
        run.rewards = whole.rewards[self.fault - 1 :]
        run.notes = {
            "before": [round(value, 4) for value in whole.rewards[: self.fault - 1]],
            "best": float(np.nanmax(smoothed(whole.rewards))) if len(whole.rewards) >= 8 else 0.0,
        }
        yield self._store(run, start)
        yield self._run(at, "guard", lambda: self._guarded(at, whole))
        yield self._run(at, "rerun", lambda: self._rerun(at))

    def broken(self, cause: str, best: float) -> Iterator[str]:
        """Train the run with the fault and without any action; where it collapses, the other arms."""
        regime = regime_of(cause)
        none = Trail()
        at = Branches(cause, self.seed, self.fault, self.last, self.prefix, none)
        run, start = at.new_run("none"), time.process_time()
        none.go_on(self._start().branch(regime), self.last, lambda rewards: is_lost(rewards, at.level))
        event = event_of([*self.prefix.rewards, *none.rewards])
        collapses = event is not None and event.step >= self.fault and has_learned(event, best)
        run.rewards, run.ended_early = none.rewards, len(none.rewards) < self.last - self.fault + 1
        run.notes = {"event": None if event is None else event.step, "collapses": collapses}
        yield self._store(run, start)
        if not collapses and not self.short:
            return
        yield self._run(at, "guard", lambda: self._guarded(at, self.prefix))
        for arm in arms_of(cause, self.seed)[2:]:
            yield self._run(at, arm, lambda arm=arm: self._arm(at, arm))  # type: ignore[misc]

    def _arm(self, at: Branches, arm: str) -> ArmRun:
        if arm in ("placebo", "delayed"):
            return self._replayed(at, arm)
        if arm == "best_checkpoint":
            return best_checkpoint(at)
        start = self._start().branch(regime_of(at.cause))
        return remedied(at, arm, start) if arm in REMEDIES else oracle(at, start)

    def _replayed(self, at: Branches, arm: str) -> ArmRun:
        """Take the guard's actions at a random step, or when the reward has fallen."""
        actions = read_arm(arm_file(self.raw, at.cause, self.seed, "guard"))["actions"]
        own = [row for row in actions if row["action"] in CHANGES and row["step"] >= self.fault]
        if not own:
            return replayed(at, arm, [])
        if arm == "placebo":
            draw = np.random.default_rng([self.seed, 909, sorted(CAUSES).index(at.cause)])
            return replayed(at, arm, shifted(own, int(draw.integers(self.fault, self.last + 1))))
        fallen = fallen_step(at)
        return replayed(at, arm, [] if fallen is None else shifted(own, max(fallen, own[0]["step"])))

    def _guarded(self, at: Branches, shown: Trail) -> ArmRun:
        folder = arm_file(self.raw, at.cause, self.seed, "guard").with_suffix(".watch")
        return guarded(at.new_run("guard"), shown, self.last, self.options, folder)

    def _rerun(self, at: Branches) -> ArmRun:
        loop, run = self._start(), at.new_run("rerun")
        loop.draws += OTHER_DRAWS
        run.rewards = [loop.train().reward for _ in range(self.fault, self.last + 1)]
        return run

    def _start(self) -> LeverLoop:
        """Return a loop that stands right before the fault."""
        loop = self.prefix.loop_at(self.fault - 1)
        loop.watched = False
        return loop

    def _run(self, at: Branches, arm: str, make: Callable[[], ArmRun]) -> str:
        if arm_file(self.raw, at.cause, self.seed, arm).exists():
            return f"{at.cause} {self.seed} {arm}: there already"
        start = time.process_time()
        return self._store(make(), start)

    def _store(self, run: ArmRun, start: float) -> str:
        run.cpu_s = time.process_time() - start
        write_arm(arm_file(self.raw, run.cause, run.seed, run.arm), run.as_json())
        end = float(np.mean(run.rewards[-30:])) if run.rewards else float("nan")
        done = ", ".join(f"{row['step']} {row['action']}" for row in run.actions[:4])
        return f"{run.cause} {run.seed} {run.arm}: fault {run.fault_step}, end {end:.2f}, {run.cpu_s:.0f} CPU-s; {done} {run.notes.get('event', '')}"

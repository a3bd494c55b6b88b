"""The guard's arm: a watch that sees what a trainer has, the guard on its incidents, and the loop that it acts on.

The steps before the fault were trained already and are shown to the watch again. Where the guard acts on one of them, the run leaves the shared
path there and is trained for itself from that step on: an action before the fault costs what it costs.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import trimtab
from reproduce.collapse_bank.batches import StepBatch
from reproduce.collapse_bank.recording import WINDOW, arrays_of, averages_of, probe_batch
from reproduce.guard_bank.arms import ArmRun
from reproduce.guard_bank.causes import regime_of
from reproduce.guard_bank.lean_controls import LeanControls, MemoryRing
from reproduce.guard_bank.lever_loop import LeverLoop
from reproduce.guard_bank.trail import Trail
from trimtab.guard import GuardOptions
from trimtab.lab.probe_bank import probe_bank
from trimtab.runs import RunReader

__all__ = ["CHANGES", "guarded"]

CHANGES = ("set_lever", "undo", "skip_update", "rollback", "stop")
"""Actions that change training; a warning does not."""
NOT_KEPT = ("dry_run", "failure", "time", "note", "s", "q", "c", "rank")


def guarded(run: ArmRun, shown: Trail, last: int, options: GuardOptions, folder: Path) -> ArmRun:
    """Train a run under a guard up to step `last`, and return its record.

    Args:
        run: The empty record; it names the cause, and the step at which the fault sets in.
        shown: Watched steps before the fault, or all of a run that meets none.
        last: Last step.
        options: Of the guard.
        folder: Run folder of the watch; what is there is replaced.
    """
    shutil.rmtree(folder, ignore_errors=True)
    GuardedRun(run, shown, options, folder).go(last)
    rows = RunReader(folder).rows("actions")
    run.actions = [{key: row[key] for key in row if key not in NOT_KEPT} for row in rows]
    run.notes["alarms"] = [
        [row["step"], row["rule"], row["slice"], row["severity"]]
        for row in RunReader(folder).rows("alarms")
        if row["event"] == "fired" and row["severity"] != "info"
    ]
    return run


class GuardedRun:
    """One run under a guard."""

    def __init__(self, run: ArmRun, shown: Trail, options: GuardOptions, folder: Path) -> None:
        self.run, self.shown, self.now = run, shown, 0
        self.controls = LeanControls(lambda: self._take_over(self.now))
        self.probes = probe_bank()
        self.watch = trimtab.open_run(
            folder, rank=0, strict=True, min_tokens=WINDOW, state_every=10,
            guard=options, controls=self.controls,
            states=MemoryRing(self.controls, options.states.count, shown.copies),
        )  # fmt: skip

    def go(self, last: int) -> None:
        """Show and train up to step `last`, or to the guard's stop."""
        with self.watch:
            for number in range(1, last + 1):
                if self.controls.loop is None and number > len(self.shown.batches):
                    self._take_over(self.now)
                if number == self.run.fault_step and self.controls.loop is not None:
                    self.controls.loop = self._armed(self.controls.loop.branch(regime_of(self.run.cause)))
                batch = self._step(number)
                self.now = number
                if number >= self.run.fault_step:
                    self.run.rewards.append(batch.reward)
                self._watch(batch)
                if self.controls.stopped:
                    self.run.stopped = number
                    break
        if self.controls.loop is not None:
            self.run.skipped, self.run.dropped = (
                self.controls.loop.setup.skipped,
                self.controls.loop.setup.dropped,
            )

    def _step(self, number: int) -> StepBatch:
        """Return the batch of a step: one shown again, or one trained now."""
        if self.controls.loop is None:
            batch = self.shown.batches[number - 1]
            if self.watch.before_update(number, float(batch.numbers["grad_norm"])):
                return batch
            self._take_over(number - 1)
            assert self.controls.loop is not None
            self.controls.loop.setup.before_update = lambda step, loss, norm: True
            batch = self.controls.loop.step()
            self._armed(self.controls.loop)
            return batch
        return self.controls.loop.step()

    def _take_over(self, step: int) -> None:
        """Train for real after `step` steps."""
        self.controls.loop = self._armed(self.shown.loop_at(step))

    def _armed(self, loop: LeverLoop) -> LeverLoop:
        loop.watched = True
        loop.setup.before_update = lambda step, loss, norm: not self.watch.before_update(step, norm)
        return loop

    def _watch(self, batch: StepBatch) -> None:
        if batch.probe_logprobs is not None:
            self.watch.probe(batch.step, probe_batch(self.probes, batch.probe_logprobs))
        self.watch.observe(**arrays_of(batch))
        self.watch.flush(batch.step, averages_of(batch))

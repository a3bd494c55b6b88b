"""The guard of one watched trainer: its controls, its ring of stable states, and what ranks share.

`watch` makes a session before it opens the run and attaches the run to it afterwards.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import trl
from transformers import TrainerCallback

from trimtab.adapters.trl.control.rank_mirror import mirror, share
from trimtab.adapters.trl.guard_controls import TrlControls
from trimtab.errors import RunError, TrimtabError
from trimtab.guard import Controls, GuardOptions, guard_options
from trimtab.guard.stable_states import StateRing
from trimtab.monitor import Run

log = logging.getLogger("trimtab")

FOLDER = "stable_states"
"""Folder of the ring, inside the run folder."""


class GuardSession(TrainerCallback):
    """Connects a guard to a trainer. Raises what `guard_options`, `TrlControls` and `StateRing` raise."""

    def __init__(self, trainer: Any, guard: str | os.PathLike[str] | GuardOptions) -> None:
        self.trainer, self.options = trainer, guard_options(guard)
        self.many = trainer.accelerator.num_processes > 1
        self.controls: TrlControls | None = None
        self.states: RunStates | None = None
        self.run: Run | None = None
        if isinstance(trainer, trl.GRPOTrainer) or not self.options.observe:
            policy = self.options.policies.quarantine_tool
            self.controls = TrlControls(trainer, exclusion=policy.exclusion if policy.enabled else None)
        if self.controls is not None and not self.options.observe:
            if self.controls.cannot_restore:
                log.warning("trimtab: no rollback: %s", self.controls.cannot_restore)
            else:
                self.states = RunStates(self.controls, self.options, many=self.many)
        trainer.add_callback(self)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for `open_run`."""
        return {
            "guard": self.options,
            "controls": self.controls,
            "states": self.states,
            "share": share if self.many else None,
        }

    def attach(self, run: Run) -> None:
        """Open the ring in the run's folder, and ask the guard before each update."""
        self.run = run
        if self.states is not None:
            self.states.open(run)
        if self.controls is not None:
            self.controls.before_update = run.before_update

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """States of steps that are still to come are of another run. A resumed guard goes on where it was."""
        if self.states is None or self.run is None:
            return
        text = ""
        with self.run.isolated("open the stable states", cost="guard"):
            text = self.states.begin(int(state.global_step))
        if self.many:
            text = share(text)
        guard = self.run.guard
        if text and guard is not None and not guard.state_dict()["now"]:
            with self.run.isolated("take over the guard's state", cost="guard"):
                guard.load_state_dict(json.loads(text))


class RunStates:
    """The ring of rank 0, and on the other ranks what follows it."""

    def __init__(self, controls: TrlControls, options: GuardOptions, *, many: bool) -> None:
        self.controls, self.options, self.many = controls, options, many
        self.leads = controls.trainer.accelerator.process_index == 0
        self.ring: StateRing | None = None
        self.run: Run | None = None

    def open(self, run: Run) -> None:
        """Open the ring in the run's folder, where this rank leads."""
        self.run = run
        if not self.leads:
            return
        states = self.options.states
        self.ring = StateRing(
            Path(run.writer.folder) / FOLDER,
            size=states.count,
            max_bytes=None if states.max_gb is None else int(states.max_gb * 1e9),
            state_bytes=self.controls.state_bytes,
            warn=self._warn,
        )

    def begin(self, step: int) -> str:
        """Forget states after `step`; returns the guard's state of the newest, as JSON, empty without one."""
        if self.ring is None:
            return ""
        self.ring.forget_after(step)
        steps = self.ring.steps
        guard = self.ring.guard_state(steps[-1]) if steps else {}
        return json.dumps(guard) if guard else ""

    def keep(self, step: int, verdict: str, controls: Controls) -> None:
        """Write the state of all ranks, which are alike."""
        if self.ring is not None:
            guard = None if self.run is None else self.run.guard
            self.ring.keep(step, verdict, controls, None if guard is None else guard.state_dict())

    def last_stable(self, before_step: int) -> int | None:
        """Return the step to go back to; rank 0 asks."""
        return None if self.ring is None else self.ring.last_stable(before_step)

    def suspect(self, since: int, until: int | None = None) -> None:
        """Do not offer states of these steps; rank 0 has the ring."""
        if self.ring is not None:
            self.ring.suspect(since, until)

    def restore(self, step: int, controls: Controls) -> None:
        """Return every rank to the state of `step`; RunError on every rank where rank 0 cannot read it."""
        if not self.many:
            assert self.ring is not None
            self.ring.restore(step, controls)
            return
        text = ""
        if self.ring is not None:
            try:
                self.ring.restore(step, controls)
            except (TrimtabError, OSError) as error:
                text = f"failed: {error}"
            else:
                text = json.dumps(self.controls.restores[-1])
        text = share(text)
        if text.startswith("failed: "):
            raise RunError(text.removeprefix("failed: "))
        mirror(self.controls.trainer, self.controls.mode)
        if not self.leads:
            self.controls.follow(json.loads(text))

    def _warn(self, text: str) -> None:
        """Into the log and the run: a ring that cannot be written is not silence."""
        if self.run is None:
            log.warning("trimtab: %s", text)
            return
        with self.run.isolated("keep stable states", cost="guard"):
            raise RunError(text)

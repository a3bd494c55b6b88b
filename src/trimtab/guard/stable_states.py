"""StateRing: a ring of checkpoints on disk, each with the verdict it had, for the guard to go back to.

It prevents two mistakes: going back to a state from after the onset of the trouble, and going back to half a
checkpoint. What a checkpoint holds is the trainer's business (`Controls.save`, `Controls.restore`).
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trimtab.errors import RunError
from trimtab.guard.controls import Controls
from trimtab.guard.state_files import (
    STABLE,
    SUSPECT,
    StoredState,
    read_state,
    read_suspect,
    remove_state,
    write_state,
)
from trimtab.runs.rank_lock import RankLock
from trimtab.safe_files import folder_path, replacing

log = logging.getLogger("trimtab")


class StateRing:
    """The last states of a trainer, oldest dropped first, but never the last stable one.

    Args:
        folder: Folder of its own, made where it is missing. One live process writes to it.
        size: States to keep, at least 2.
        max_bytes: Bound on the bytes of the ring and of the state being written; None: the disk alone.
        state_bytes: Size of one state as the trainer estimates it; 0: unknown until the first is written.
        warn: Called with one line when rolling back stops or starts to be possible; the log by default.

    Raises:
        RunError: The ring does not fit the disk or `max_bytes`, or another process has the folder.

    Example:
        >>> import tempfile
        >>> states = StateRing(tempfile.mkdtemp(), size=3, max_bytes=10**6)
        >>> states.last_stable(100) is None
        True
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        size: int = 3,
        max_bytes: int | None = None,
        state_bytes: int = 0,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        if size < 2:
            raise RunError(
                f"a ring of {size} stable states cannot keep one while it writes another; use 2 or more"
            )
        self.folder, self.size, self.max_bytes = folder_path(folder, RunError), size, max_bytes
        self.failure = ""
        """Why the last state could not be written; empty when it was."""
        self._warn = warn or (lambda text: log.warning("trimtab: %s", text))
        self._states: list[StoredState] = []
        self._verified: dict[Path, Any] = {}
        self._open()
        self._require_room(state_bytes)

    def _open(self) -> None:
        """Clear away what a killed process left, and read what is whole."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = RankLock(self.folder, 0)
            if not lock.acquire():
                raise RunError(
                    f"{self.folder} is the ring of stable states of {lock.owner}; use another folder"
                )
            self._lock = lock
            for entry in sorted(self.folder.iterdir()):
                if not entry.is_dir():
                    if entry.suffix == ".tmp":
                        entry.unlink()
                    continue
                state = None if entry.name.startswith(".") else read_state(entry)
                if state is None:
                    remove_state(entry)
                else:
                    self._states.append(state)
        except OSError as error:
            raise RunError(f"{self.folder} cannot hold stable states: {error.strerror or error}") from error
        self._states.sort(key=lambda state: state.serial)
        self._serial = max((state.serial for state in self._states), default=0)
        self._suspect = read_suspect(self.folder / SUSPECT)

    def _require_room(self, state_bytes: int) -> None:
        room = shutil.disk_usage(self.folder).free + self.num_bytes
        if self.max_bytes is not None and self.max_bytes > room:
            raise RunError(
                f"a ring of up to {_gb(self.max_bytes)} does not fit {self.folder}, which has {_gb(room)} "
                "free; lower max_bytes, or name a folder on a larger disk"
            )
        needed, limit = (self.size + 1) * state_bytes, room if self.max_bytes is None else self.max_bytes
        if needed > limit:
            raise RunError(
                f"a ring of {self.size} states of {_gb(state_bytes)} and one being written need "
                f"{_gb(needed)}, and {_gb(limit)} are {'free' if self.max_bytes is None else 'allowed'}; "
                "lower its size, or save less (lora, weights)"
            )

    @property
    def steps(self) -> list[int]:
        """Steps of the whole states, the oldest first."""
        return [state.step for state in self._states]

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole states."""
        return sum(state.num_bytes for state in self._states)

    def keep(
        self,
        step: int,
        verdict: str,
        controls: Controls,
        guard: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the trainer's state after `step`, and drop the oldest that is not needed.

        Args:
            step: Optimizer steps done.
            verdict: "stable" where the guard saw no trouble; states under other words are never offered.
            controls: The trainer's side, which writes.
            guard: State of the guard and of the detectors, as JSON; NaN and infinity may be in it.

        Where it cannot be written, `failure` says why, `warn` is called, and the older states remain.
        """
        try:
            self._make_room()
            written = write_state(self.folder, (step, self._serial + 1), verdict, controls.save, guard or {})
        except OSError as error:
            self._fail(f"the state of step {step} could not be written: {error.strerror or error}")
            return
        self._serial += 1
        replaced = [state for state in self._states if state.step == step]
        self._states.append(written)
        for state in replaced:
            self._drop(state)
        while len(self._states) > self.size:
            self._drop(self._oldest())
        if self.failure:
            self.failure = ""
            self._warn("stable states are written again")

    def last_stable(self, before_step: int) -> int | None:
        """Return the step of the newest whole state from before an onset; None where there is none.

        Args:
            before_step: First step of the trouble. States of this step and later ones are not offered, nor
                are those without the verdict, suspect ones, and those whose files changed since.
        """
        for state in reversed(self._states):
            if state.step < before_step and self._stable(state) and self._whole(state):
                return state.step
        return None

    def suspect(self, since: int, until: int | None = None) -> None:
        """Mark the states of steps `since` to `until` (None: from then on) as not stable.

        A guard calls it when an incident opens, with its onset: states that looked well then are of the
        trouble, and the one before them is what must not be dropped. When the trouble has passed it calls
        it again, with the last step of it.
        """
        first = self._states[0].step if self._states else since
        others = [
            (begin, end) for begin, end in self._suspect if begin != since and (end is None or end >= first)
        ]
        self._store_suspect([*others, (since, until)])

    def guard_state(self, step: int) -> dict[str, Any]:
        """Return what the guard put away with the state of `step`. Raises RunError without such a state."""
        return self._state_of(step).guard()

    def restore(self, step: int, controls: Controls) -> None:
        """Return the trainer to the state of `step`, and drop the states after it.

        Args:
            step: A step that `last_stable` gave.
            controls: The trainer's side, which reads.

        Raises:
            RunError: No state of that step is whole.
        """
        state = self._state_of(step)
        self.suspect(step + 1)  # a process killed from here on does not go back to what is dropped below
        controls.restore(state.trainer)
        for later in [other for other in self._states if other.serial > state.serial]:
            self._drop(later)
        self._store_suspect([(begin, end) for begin, end in self._suspect if begin <= step])

    def forget_after(self, step: int) -> None:
        """Drop the states of later steps than `step`: training begins there, so they are of another run."""
        for state in [state for state in self._states if state.step > step]:
            self._drop(state)
        self._store_suspect([(begin, end) for begin, end in self._suspect if begin <= step])

    def close(self) -> None:
        """Give the folder free for another process; the states remain."""
        self._lock.release()

    def _state_of(self, step: int) -> StoredState:
        for state in self._states:
            if state.step == step and self._whole(state):
                return state
        raise RunError(f"{self.folder} has no whole state of step {step}; it has {self.steps or 'none'}")

    def _stable(self, state: StoredState) -> bool:
        bad = any(
            since <= state.step and (until is None or state.step <= until) for since, until in self._suspect
        )
        return not bad and state.verdict == STABLE

    def _whole(self, state: StoredState) -> bool:
        """Are the files those that were written? They are read once, and again when one has changed."""
        stamp = state.stamp()
        if stamp is not None and self._verified.get(state.folder) == stamp:
            return True
        if stamp is not None and state.intact():
            self._verified[state.folder] = stamp
            return True
        self._drop(state)
        self._warn(f"the stable state of step {state.step} is damaged and was dropped")
        return False

    def _oldest(self) -> StoredState:
        """The state to drop next: the oldest, but for the last stable one and the newest."""
        stable = [state for state in self._states if self._stable(state)]
        protected = {id(self._states[-1]), *(id(state) for state in stable[-1:])}
        return next(state for state in self._states if id(state) not in protected)

    def _make_room(self) -> None:
        """Drop the oldest before writing where the disk or the bound would not take one more."""
        expected = max((state.num_bytes for state in self._states), default=0)
        while len(self._states) >= max(self.size, 3) and self._room() < expected:
            self._drop(self._oldest())
        if self._room() < expected:
            raise OSError(f"{_gb(expected)} are needed and {_gb(self._room())} are free")

    def _room(self) -> int:
        free = shutil.disk_usage(self.folder).free
        return free if self.max_bytes is None else min(free, self.max_bytes - self.num_bytes)

    def _drop(self, state: StoredState) -> None:
        self._states = [other for other in self._states if other is not state]
        self._verified.pop(state.folder, None)
        try:
            remove_state(state.folder)
        except OSError as error:
            log.warning("trimtab: %s cannot be deleted: %s", state.folder, error)

    def _fail(self, why: str) -> None:
        first, self.failure = not self.failure, why
        if first:
            stable = [state.step for state in self._states if self._stable(state)]
            can = f"go back no later than to step {stable[-1]}" if stable else "NOT roll back"
            self._warn(f"{why}: training goes on, and the guard can {can}")

    def _store_suspect(self, suspect: list[tuple[int, int | None]]) -> None:
        self._suspect = suspect
        try:
            with replacing(self.folder / SUSPECT) as temporary:
                temporary.write_text(json.dumps(self._suspect), encoding="utf-8")
        except OSError as error:
            self._fail(f"suspect states could not be noted: {error.strerror or error}")


def _gb(count: float) -> str:
    return f"{count / 1e9:,.3g} GB" if count >= 1e8 else f"{count / 1e6:,.3g} MB"

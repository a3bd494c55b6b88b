"""When each task is due again: the longest undrawn, and failures after growing intervals. M tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import bound


class Revisits:
    """Last draw of M tasks, and when failed ones are due.

    A task whose whole group failed is due after `first` batches, after 2 `first` when it fails again, and so
    on up to a limit; one success ends it.
    """

    def __init__(self, num_tasks: int, first: int, seed: int) -> None:
        self.first = first
        order = np.random.default_rng([seed, 907]).permutation(num_tasks)
        self.last_draw = -1 - order.astype(np.int64)
        """Number of the last draw of each task; below 0: not drawn yet, in random order."""
        self.failures = np.zeros(num_tasks, np.int64)  # groups in a row that failed as a whole
        self.due = np.full(num_tasks, -1, np.int64)  # batch; -1: not due
        self._unseen = self.last_draw.copy()

    def drawn(self, task: int, number: int) -> None:
        """A task was drawn; what was due of it is done."""
        self.last_draw[task], self.due[task] = number, -1

    def outcome(self, task: int, batch: int, *, failed: bool) -> None:
        """Count a group that failed as a whole, or one with a success."""
        self.failures[task] = self.failures[task] + 1 if failed else 0
        doublings = min(int(self.failures[task]) - 1, int(bound("curriculum_doublings")))
        self.due[task] = batch + self.first * 2**doublings if failed else -1

    def oldest(self, free: NDArray[np.bool_]) -> int:
        """Return the free task that was drawn longest ago, or never."""
        return int(np.where(free, self.last_draw, np.iinfo(np.int64).max).argmin())

    def overdue(self, free: NDArray[np.bool_], batch: int) -> int | None:
        """Return the free failed task that is due longest; None without any."""
        tasks = np.flatnonzero(free & (self.due >= 0) & (self.due <= batch))
        if not tasks.size:
            return None
        return int(min(tasks, key=lambda task: (self.due[task], self.last_draw[task])))

    def state(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """Return the times of some tasks, as plain lists."""
        return {name: getattr(self, name)[rows].tolist() for name in ("last_draw", "failures", "due")}

    def restore(self, rows: NDArray[np.int64], state: dict[str, Any]) -> None:
        """Take over what `state` returned for the same rows; other tasks were not drawn yet."""
        self.last_draw[:], self.failures[:], self.due[:] = self._unseen, 0, -1
        for name in ("last_draw", "failures", "due"):
            getattr(self, name)[rows] = state[name]

"""How a curriculum divides its draws and how fast it forgets; labels of tasks as numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import CurriculumError


@dataclass(frozen=True)
class CurriculumOptions:
    """How draws are divided and how fast outcomes fade.

    Of every `floor_every` draws, the first goes to the task that was drawn longest ago. The second goes to a
    failed task that is due, where one is. The others are drawn by weight.
    """

    floor_every: int = 8
    """At least 2. Every task is drawn at least once in any `floor_every` * M consecutive draws."""
    half_life: float = 50.0
    """Batches after which an outcome counts half."""
    sharpness: float = 2.0
    """Power of the expected p (1 - p) in a task's weight: 0 draws by floor and throttle alone."""
    revisit_after: int = 8
    """Batches until a task whose whole group failed is due again; doubled with every failure in a row."""
    success: float = 0.5
    """A reward at or above this is a success."""

    def __post_init__(self) -> None:
        rules = (
            (self.floor_every >= 2, "floor_every must be at least 2"),
            (self.half_life > 0, "half_life must be above 0"),
            (self.sharpness >= 0, "sharpness must be at least 0"),
            (self.revisit_after >= 1, "revisit_after must be at least 1"),
            (math.isfinite(self.success), "success must be a finite reward"),
        )
        for holds, message in rules:
            if not holds:
                raise CurriculumError(f"curriculum: {message}, got {self}")


def stratum_numbers(strata: Sequence[int | str] | None, num_tasks: int) -> NDArray[np.int64]:
    """Return the number of each task's stratum."""
    if strata is None:
        return np.zeros(num_tasks, np.int64)
    if len(strata) != num_tasks:
        raise CurriculumError(f"strata has one label a task: {num_tasks}, not {len(strata)}")
    numbers: dict[int | str, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in strata], np.int64)

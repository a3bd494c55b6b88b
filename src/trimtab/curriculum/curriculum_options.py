"""How a curriculum divides its draws and how fast it forgets; labels of tasks as numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
            (
                isinstance(self.floor_every, int) and self.floor_every >= 2,
                "floor_every must be at least 2, and whole",
            ),
            (self.half_life > 0, "half_life must be above 0"),
            (0 <= self.sharpness < math.inf, "sharpness must be at least 0, and finite"),
            (self.revisit_after >= 1, "revisit_after must be at least 1"),
            (math.isfinite(self.success), "success must be a finite reward"),
        )
        for holds, message in rules:
            if not holds:
                raise CurriculumError(f"curriculum: {message}, got {self}")


def whole_number(value: object, name: str) -> int:
    """Return a number of at least 0 as an int, NumPy's too. Raises CurriculumError for anything else."""
    if isinstance(value, (int, np.integer)) and value >= 0:
        return int(value)
    raise CurriculumError(f"{name} is a whole number of at least 0, not {value!r}")


def task_ids_of(tasks: int | np.integer[Any] | Sequence[int | str]) -> list[int | str]:
    """Return the ids of the tasks, each a type that JSON keeps: what is saved must be the same when read."""
    if isinstance(tasks, (int, np.integer)):
        return list(range(int(tasks)))
    ids: list[int | str] = []
    for task in tasks:
        number: object = task
        if not isinstance(number, (int, str, np.integer)):
            raise CurriculumError(f"a task's id is a whole number or a text, not {task!r}")
        ids.append(int(number) if isinstance(number, np.integer) else task)
    return ids


def stratum_numbers(strata: Sequence[int | str] | None, num_tasks: int) -> NDArray[np.int64]:
    """Return the number of each task's stratum."""
    if strata is None:
        return np.zeros(num_tasks, np.int64)
    if len(strata) != num_tasks:
        raise CurriculumError(f"strata has one label a task: {num_tasks}, not {len(strata)}")
    numbers: dict[int | str, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in strata], np.int64)

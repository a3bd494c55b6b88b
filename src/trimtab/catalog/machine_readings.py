"""Readings of the machine: phases of a step on each rank, memory, and the episode that ends last.

They are made from the rows of steps (`distributed/stragglers`) and say nothing of the training itself, so no
verdict of calm rests on them.
"""

from __future__ import annotations

from trimtab.catalog.definitions import UNCALIBRATED, Definition, Direction

_NVIDIA = "nvidia_resiliency_ext straggler detection; Page 1954, Biometrika 41, 100"

_ROWS: dict[str, tuple[str, str, Direction, str]] = {
    "phase/slow_ratio": ("seconds of a phase on a rank (slice `rank/<rank>/<phase>`) over the median of the other ranks', since it is slow; at most 1 where it is not, or not shown to be", "ratio", "up is bad", _NVIDIA),
    "straggler/lost_frac": ("share of the step's time that all ranks wait for a slow one (slice `rank/<rank>`), the sum of its slow phases; 0 where none is", "share", "up is bad", UNCALIBRATED),
    "memory/steps_left": ("steps until memory (slice `rank/<rank>/host` or `/device`) reaches its limit if it grows on; infinite without a trend", "count", "down is bad", "Sen 1968, J. Am. Stat. Assoc. 63, 1379"),
    "memory/imbalance": ("memory of a rank over the median of the other ranks'", "ratio", "up is bad", UNCALIBRATED),
    "episode/held_frac": ("share of the step between the ends of its last episode but one and of its last, median of eight steps", "share", "up is bad", UNCALIBRATED),
}  # fmt: skip

MACHINE: dict[str, Definition] = {key: Definition(*row) for key, row in _ROWS.items()}

MACHINE_FAMILIES = frozenset(key.partition("/")[0] for key in MACHINE)
"""What the keys of these readings begin with."""


def of_machine(key: str) -> bool:
    """Return whether a reading is one of the machine, made again from rows of steps and not stored.

    >>> of_machine("phase/slow_ratio"), of_machine("drift/p95")
    (True, False)
    """
    return key.partition("/")[0] in MACHINE_FAMILIES

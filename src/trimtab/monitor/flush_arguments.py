"""Arguments of `Run.flush` as the monitor takes them: a whole step number, and metrics that are one number each."""

from __future__ import annotations

import logging
import operator
from collections.abc import Mapping
from typing import Any

from trimtab.errors import RunError
from trimtab.measure.sequences.aggregates import TRAINER_KEYS, as_numbers

log = logging.getLogger("trimtab")

_MAX_STEP = 2**63 - 1


def step_number(step: Any) -> int:
    """Return `step` as a whole number from 0. Raises RunError for anything else: 1.5 is not step 1.

    >>> step_number(3), step_number(4.0)
    (3, 4)
    """
    try:
        value = step.item() if hasattr(step, "item") else step  # of NumPy or torch
        number = operator.index(int(value) if isinstance(value, float) and value.is_integer() else value)
    except (TypeError, ValueError, RuntimeError):
        number = -1
    if isinstance(step, bool) or not 0 <= number <= _MAX_STEP:
        shown = repr(step)[:40]
        raise RunError(f"flush(step={shown}): a step is a whole number from 0; this call was not recorded")
    return number


class MetricReader:
    """Takes the numbers out of a step's metrics; names each value that is not one number, in the log once a key.

    `rejected`: key -> what the last `read` got instead of a number.
    """

    def __init__(self) -> None:
        self.rejected: dict[str, str] = {}
        self._logged: set[str] = set()

    def read(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics that are one number each (`as_numbers`)."""
        numbers = as_numbers(metrics)
        self.rejected = {
            str(name): f"given as {kind_of(value)}, not as one number: not recorded"
            for name, value in metrics.items()
            if str(name) not in numbers and value is not None
        }
        for name in sorted(self.rejected.keys() - self._logged):
            self._logged.add(name)
            log.warning("trimtab: metric %r was %s", name, self.rejected[name])
        return numbers

    def absent(self) -> dict[str, str]:
        """Return `metrics/<key>` -> why it was not recorded, of the last `read`."""
        return {f"metrics/{name}": why for name, why in self.rejected.items()}

    def why_no_reward(self) -> str:
        """Return why no metric of the last `read` is the reward."""
        for key in TRAINER_KEYS["reward"]:
            if key in self.rejected:
                return f"metric {key!r} was {self.rejected[key]}; no reward column"
        names = " or ".join(TRAINER_KEYS["reward"][:3])
        return f"no metric named {names} (nor by another trainer's name), no reward column"


def kind_of(value: Any) -> str:
    """Return the type of a value in words, with the shape of an array; never its content.

    >>> kind_of("secret"), kind_of(1j), kind_of([1])
    ('str', 'complex', 'list of 1')
    """
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    if isinstance(value, (list, tuple, set, dict)):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__

"""Arguments of `Run.flush` as the monitor takes them: a whole step number, and metrics that are one number
each."""

from __future__ import annotations

import logging
import operator
from collections.abc import Collection, Mapping
from typing import Any

from trimtab.capture.clean_values import clean_name, clean_text
from trimtab.errors import RunError
from trimtab.measure.sequences.aggregates import MAX_METRIC, TRAINER_KEYS, as_numbers
from trimtab.measure.state.log_ratios import omitted_columns
from trimtab.runs.schema import MAX_STEP

log = logging.getLogger("trimtab")

_MAX_LOGGED = 256  # metrics that the log names as rejected


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
    if isinstance(step, bool) or not 0 <= number <= MAX_STEP:
        shown = repr(step)[:40]
        raise RunError(f"flush(step={shown}): a step is a whole number from 0; this call was not recorded")
    return number


class MetricReader:
    """Takes the numbers out of a step's metrics; names each value that is not one number, in the log once a
    key.

    `rejected`: key -> what the last `read` got instead of a number.
    """

    def __init__(self) -> None:
        self.rejected: dict[str, str] = {}
        self._logged: set[str] = set()

    def read(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics that are one number each (`as_numbers`)."""
        named = {clean_text(name, MAX_METRIC): value for name, value in metrics.items()}
        numbers = as_numbers(named)
        self.rejected = {
            name: f"given as {kind_of(value)}, not as one number: not recorded"
            for name, value in named.items()
            if name not in numbers and value is not None
        }
        for name in sorted(self.rejected.keys() - self._logged):
            if len(self._logged) >= _MAX_LOGGED:
                break
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


class OmissionLog:
    """Says once what the columns will cost that the first step with tokens lacks."""

    def __init__(self) -> None:
        self._done = False

    def note(self, columns: Collection[str], explained: Collection[str]) -> None:
        """Log what is lost without the columns that are neither among `columns` nor `explained`."""
        if self._done or not set(columns) - {"reward"}:
            return
        self._done = True
        costs = omitted_columns({*columns, *explained})
        if costs:
            text = "; ".join(f"without {column}: no {', no '.join(what)}" for column, what in costs.items())
            log.warning("trimtab: columns that observe() was not given: %s", text)


def reasons(absent: Mapping[str, str] | None) -> dict[str, str]:
    """Return `absent` as texts that can be stored."""
    return {clean_name(what): clean_text(why, 1_024) for what, why in (absent or {}).items()}


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

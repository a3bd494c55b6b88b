"""Arguments of `Run.flush` as the monitor takes them: a whole step number, and metrics that are one number
each."""

from __future__ import annotations

import logging
import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trimtab.capture.clean_values import clean_name, clean_text
from trimtab.errors import RunError
from trimtab.measure.all_measures import NOTED
from trimtab.measure.sequences.aggregates import MAX_METRIC, TRAINER_KEYS, as_numbers
from trimtab.measure.state.log_ratios import RATIOS, omitted_columns
from trimtab.monitor.run_options import UNFED
from trimtab.report.unobserved import REPEATED, TOKENS
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

    `rejected`: key -> what the last `read` got instead of a number. `malformed`: argument of the last `flush`
    -> what it was instead of a dictionary.
    """

    def __init__(self) -> None:
        self.rejected: dict[str, str] = {}
        self.malformed: dict[str, str] = {}
        self._logged: set[str] = set()

    def read(self, metrics: Any) -> dict[str, float]:
        """Return the metrics that are one number each (`as_numbers`)."""
        self.malformed = {}
        named = {
            clean_text(name, MAX_METRIC): value for name, value in self._items("metrics", metrics, "numbers")
        }
        numbers = as_numbers(named)
        self.rejected = {
            name: f"given as {kind_of(value)}, not as one number: not recorded"
            for name, value in named.items()
            if name not in numbers and value is not None
        }
        for name in sorted(self.rejected.keys() - self._logged):
            self._warn(name, f"metric {name!r} was {self.rejected[name]}")
        return numbers

    def reasons(self, absent: Any) -> dict[str, str]:
        """Return what the trainer cannot give, with its reasons, as texts that can be stored."""
        pairs = self._items("absent", absent, "reasons")
        return {clean_name(what): clean_text(why, 1_024) for what, why in pairs}

    def absent(self) -> dict[str, str]:
        """Return `metrics/<key>` -> why it was not recorded, of the last `read`, and arguments that were
        malformed."""
        return self.malformed | {f"metrics/{name}": why for name, why in self.rejected.items()}

    def _items(self, argument: str, value: Any, of: str) -> list[tuple[Any, Any]]:
        """Return the items of a dictionary; none of anything else, which is said."""
        try:
            return [] if value is None else list(dict(value.items()).items())
        except (AttributeError, TypeError, ValueError, LookupError, RuntimeError):
            self.malformed[argument] = f"given as {kind_of(value)}, not as names with {of}: not recorded"
            self._warn(argument, f"flush({argument}=...) was {self.malformed[argument]}")
            return []

    def _warn(self, name: str, text: str) -> None:
        if name not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add(name)
            log.warning("trimtab: %s", text)

    def why_no_reward(self) -> str:
        """Return why no metric of the last `read` is the reward."""
        if "metrics" in self.malformed:
            return f"metrics were {self.malformed['metrics']}; no reward column"
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


class StepOrder:
    """Refuses steps that do not increase. `note`: what a step then lacks, for its row."""

    def __init__(self) -> None:
        self.note: dict[str, str] = {}
        self._repeated = -1
        self._done = False

    def check(self, step: int, last: int | None, lenient: bool) -> int:
        """Return `step`, or -1 where the last one is flushed again and nothing but metrics is lost.

        Raises RunError for another step up to `last`, and for any without `lenient`.
        """
        if last is None or step > last:
            return step
        text = (
            f"flush(step={step}) after step {last}, which is written: steps must increase, and this call was "
            f"not recorded. Call flush once a step; to go back, call run.begin({step}) before"
        )
        if not lenient or step < last or self._repeated == step:
            raise RunError(text)
        if not self._done:
            log.warning("trimtab: %s", text)
        self._done, self._repeated = True, step
        self.note = {REPEATED: "flush was called again for a written step: its metrics were not recorded"}
        return -1


_OF_BATCHES = (*(name for name in RATIOS if name != "lagged_drift"), *NOTED)
"""What batches alone can show."""


def unseen(
    metrics: MetricReader,
    note: Mapping[str, str],
    fed: Collection[str],
    numbers: Collection[str],
    columns: Collection[str],
) -> dict[str, str]:
    """Return what a step cannot show, whatever the trainer says -> why.

    Args:
        metrics: reader of the step's metrics.
        note: what the order of steps says of it.
        fed: inputs that the loop has given, ever.
        numbers: names of the step's aggregates.
        columns: names of the columns that arrived.
    """
    absent = metrics.absent() | dict(note) | {k: why for k, why in UNFED.items() if k not in fed}
    if "reward" not in numbers and "reward" not in columns:
        absent["reward"] = metrics.why_no_reward()
    return absent


def no_batch(failures: Sequence[str], absent: Collection[str]) -> dict[str, str]:
    """Return what a step without a batch cannot show -> why; nothing where its trainer has no tokens."""
    why = f"no batch could be taken: {failures[0]}" if failures else "no batch was observed"
    return {} if TOKENS in absent else dict.fromkeys(_OF_BATCHES, why)


def kind_of(value: Any) -> str:
    """Return the type of a value in words, with the shape of an array; never its content.

    >>> kind_of("secret"), kind_of(1j), kind_of([1])
    ('str', 'complex', 'list of 1')
    """
    try:
        shape = getattr(value, "shape", None)
    except RuntimeError:  # a nested tensor has none
        shape = None
    if isinstance(shape, tuple):
        return f"{type(value).__name__} of shape {tuple(shape)}"
    if isinstance(value, (list, tuple, set, dict)):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__

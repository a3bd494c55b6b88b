"""Isolation of the monitor's own failures: the user's training never dies of our bug.

The monitor and the adapters run their code in `Isolation.block`. A failure is counted, logged with its
traceback, written to the run and shown by every view; with `strict=True` it is raised. A dead monitor must
never look like "all clear". Code outside of a run has broad handlers of its own; tests/house/allowed.py lists
each with its reason.
"""

from __future__ import annotations

import logging
import re
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from trimtab.errors import TrimtabError

log = logging.getLogger("trimtab")

_MAX_ERROR_ROWS = 100
_DIGITS = re.compile(r"\d+")


class Isolation:
    """Books what the monitor costs and where it failed.

    `write` puts one row of an error into the run. `is_logged`: has the log said of an error already?
    """

    def __init__(
        self,
        strict: bool,
        write: Callable[[dict[str, Any]], None],
        is_logged: Callable[[BaseException], bool],
    ) -> None:
        self.strict, self.write, self.is_logged = strict, write, is_logged
        self.num_failures = 0
        self.last_failure = ""
        self._logged: set[tuple[str, str]] = set()
        self.failures_now: list[str] = []  # since the caller last emptied it
        self._costs: dict[str, float] = {}
        self._inner_s: list[float] = []

    @contextmanager
    def block(self, where: str, cost: str) -> Iterator[None]:
        """Book the block's time under `cost`, book any failure, let training go on.

        Nested blocks charge their time once, to the innermost cost.
        """
        start = time.perf_counter()
        self._inner_s.append(0.0)
        try:
            yield
        except Exception as error:
            self._book(where, error)
            if self.strict:
                raise
        finally:
            elapsed = time.perf_counter() - start
            self.charge(cost, elapsed - self._inner_s.pop())
            if self._inner_s:
                self._inner_s[-1] += elapsed

    @property
    def is_busy(self) -> bool:
        """Is a block of the monitor running now?"""
        return bool(self._inner_s)

    def charge(self, cost: str, seconds: float) -> None:
        """Add to what `cost` took."""
        self._costs[cost] = self._costs.get(cost, 0.0) + seconds

    def take_costs(self) -> dict[str, float]:
        """Seconds by cost since this was last asked; what follows is booked anew."""
        costs, self._costs = self._costs, {}
        return costs

    def _book(self, where: str, error: BaseException) -> None:
        self.num_failures += 1
        text = self.last_failure = error_text(error)
        self.failures_now.append(text)
        if self.num_failures > _MAX_ERROR_ROWS:
            return
        fault = where, _DIGITS.sub("", text)  # one fault at many steps is said once
        if fault not in self._logged and not self.is_logged(error):
            log.error("trimtab could not %s (failure %d): %s", where, self.num_failures, text)
        self._logged.add(fault)
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        with suppress(OSError, TrimtabError):  # the writer says in the log that it cannot write
            self.write({"where": where, "error": text, "traceback": trace, "time": time.time()})


def error_text(error: BaseException) -> str:
    """Return the type and the text of an exception, also where its own `__str__` fails.

    >>> error_text(ValueError("x"))
    'ValueError: x'
    """
    return f"{type(error).__name__}: {traceback.TracebackException(type(error), error, None)}"


def warn_dead(folder: Path, why: str) -> None:
    """Warn the loop that nothing it shows the monitor is recorded; where warnings are errors the log alone
    says it."""
    with suppress(RuntimeWarning):
        warnings.warn(
            f"trimtab cannot write to {folder} ({why}): training is NOT watched until writes work again",
            RuntimeWarning,
            stacklevel=3,
        )

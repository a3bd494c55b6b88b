"""Search of a text by a user's patterns, with a deadline: backtracking over one text may take longer than the
universe has."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from trimtab.catalog import bound
from trimtab.errors import TraceError

_HAS_TIMER = hasattr(signal, "setitimer") and hasattr(signal, "SIGVTALRM")


def matches_any(patterns: Iterable[re.Pattern[str]], text: str) -> bool:
    """Return whether a pattern occurs in the text. TraceError for one that takes longer than
    `pattern_seconds` of CPU.

    The deadline is a timer of this process's main thread, where a command reads and its workers do. Another
    thread, and Windows, have none.
    """
    return any(_search(pattern, text) for pattern in patterns)


def _search(pattern: re.Pattern[str], text: str) -> bool:
    with _deadline(pattern):
        return pattern.search(text) is not None


@contextmanager
def _deadline(pattern: re.Pattern[str]) -> Iterator[None]:
    if not _HAS_TIMER or threading.current_thread() is not threading.main_thread():
        yield
        return
    seconds = bound("pattern_seconds")

    def stop(*_: Any) -> None:
        raise TraceError(
            f"--error-pattern {pattern.pattern!r} took longer than {seconds:g} s over one result; "
            "write it without a repetition inside a repetition, as (a+)+"
        )

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)

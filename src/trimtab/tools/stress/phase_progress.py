"""Lines about the phases of a stress test, so that a long one does not look like a hanging command."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from trimtab.catalog import bound


class Progress:
    """Takes a line about each phase. Use it as a context manager.

    Args:
        write: takes a line for a person.
        live: write each line at once; otherwise, and also then, a phase that takes long is named again and
            again while it lasts.
        silence_s: seconds of a phase, after which it is named.
    """

    def __init__(
        self, write: Callable[[str], None], live: bool, silence_s: float = bound("stress_silence")
    ) -> None:
        self.live, self.silence_s = live, silence_s
        self._write = write
        self._line, self._since = "starting", time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def __call__(self, line: str) -> None:
        """Note a phase that begins, or what one showed."""
        self._line, self._since = line, time.monotonic()
        if self.live:
            self._write(line)

    def _watch(self) -> None:
        while not self._ended.wait(self.silence_s):
            seconds = time.monotonic() - self._since
            if seconds >= 0.5 * self.silence_s:
                self._write(f"still at work; {seconds:.0f} s since: {self._line}")

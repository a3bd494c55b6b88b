"""SIGTERM: the post-mortem is written, and the process dies of the signal as it would have.

Python runs a handler only when the main thread comes back from C. A rank that hangs in a collective does not,
and would live until it is killed. So a second thread watches the process record, to which `faulthandler`
writes from C when the signal arrives: when the main thread has not answered within `signal_grace` seconds,
that thread writes the post-mortem and ends the process with code 143 (128 + SIGTERM).

A handler that the user installed stays: what it raises ends the run as any exception does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from pathlib import Path
from types import FrameType

from trimtab.catalog import bound
from trimtab.monitor.ending.post_mortem_writer import PostMortemWriter

_POLL_S = 1.0
_ANSWER_GRACES = 3
"""Times `signal_grace` that the main thread may take over its post-mortem."""
_EXIT_CODE = 128 + signal.SIGTERM


class _Watch:
    """The handler of this process, and the writers of its open runs."""

    def __init__(self) -> None:
        self.writers: weakref.WeakKeyDictionary[PostMortemWriter, tuple[Path, int]] = (
            weakref.WeakKeyDictionary()
        )
        self.is_answered = False
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._mask: set[int | signal.Signals] = set()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._block, after_in_parent=self._unblock, after_in_child=self._begin_child
            )

    def install(self) -> bool:
        """Return whether SIGTERM is ours. A main thread alone may ask; no handler of others is replaced."""
        if threading.current_thread() is not threading.main_thread():
            return False
        now = signal.getsignal(signal.SIGTERM)
        if now == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._answer)
            return True
        return now == self._answer

    def add(self, writer: PostMortemWriter, note: Path) -> None:
        """Write the post-mortem of `writer` at SIGTERM; `note` is the file that grows when it comes."""
        if signal.getsignal(signal.SIGTERM) != self._answer:
            return
        self.writers[writer] = (note, _size(note))
        if self._thread is None or not self._thread.is_alive():
            self._closed = threading.Event()
            name = "trimtab-sigterm"
            self._thread = threading.Thread(target=self._watch, args=(self._closed,), name=name, daemon=True)
            self._thread.start()

    def remove(self, writer: PostMortemWriter) -> None:
        """Leave a run alone; the last one gives the signal back."""
        self.writers.pop(writer, None)
        if not self.writers:
            self._closed.set()
            self._thread = None
            self._give_back()

    def _give_back(self) -> None:
        ours = signal.getsignal(signal.SIGTERM) == self._answer
        if ours and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _block(self) -> None:
        """A signal to a child that is being forked waits until the child has a handler of its own."""
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def _unblock(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _begin_child(self) -> None:
        """A forked child dies of SIGTERM as any process, and notes nothing in the record of its parent."""
        self._give_back()  # which takes the note of `faulthandler` away too
        self.writers.clear()
        self._thread = None
        self._unblock()

    def _answer(self, number: int, _frame: FrameType | None) -> None:
        """Run in the main thread; a second signal ends the process at once."""
        signal.signal(number, signal.SIG_DFL)
        self.is_answered = True
        for writer in list(self.writers):
            writer.write("signal")
        os.kill(os.getpid(), number)

    def _watch(self, closed: threading.Event) -> None:
        while not closed.wait(_POLL_S) and self.writers:
            if not self._arrived():
                continue
            before = _main_position()
            if closed.wait(bound("signal_grace")):
                return
            if self.is_answered:
                if closed.wait(_ANSWER_GRACES * bound("signal_grace")):
                    return
            elif _main_position() != before:  # Python ran, and would have answered: it was not ours
                self.writers.update({one: (note, _size(note)) for one, (note, _) in self.writers.items()})
                continue
            else:
                for writer in list(self.writers):
                    writer.write("signal")
            os._exit(_EXIT_CODE)

    def _arrived(self) -> bool:
        return any(_size(note) > before for note, before in list(self.writers.values()))


def _main_position() -> tuple[int, int]:
    """Where the main thread is: it has run no Python while this stays the same."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return (0, 0) if frame is None else (id(frame), frame.f_lasti)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


_WATCH = _Watch()


def take_termination() -> None:
    """Answer SIGTERM from now on, where nobody else does; call it before `faulthandler` is asked for it."""
    _WATCH.install()


def watch_termination(writer: PostMortemWriter, note: Path) -> None:
    """Have a run's post-mortem written when this process gets SIGTERM.

    Args:
        writer: of the run.
        note: the run's process record.
    """
    _WATCH.add(writer, note)


def leave_termination(writer: PostMortemWriter) -> None:
    """Forget a run that is closed."""
    _WATCH.remove(writer)

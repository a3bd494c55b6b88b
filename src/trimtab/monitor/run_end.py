"""How a run ended: by what its block or its trainer raised, and at the exit of a process that closed
nothing."""

from __future__ import annotations

import atexit
import os
import sys
import sysconfig
import weakref
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from trimtab.monitor.ending.checkpoint_recorder import CheckpointRecorder
from trimtab.monitor.ending.post_mortem_writer import PostMortemWriter
from trimtab.monitor.ending.termination import leave_termination, take_termination, watch_termination
from trimtab.monitor.isolation import error_text
from trimtab.monitor.run_identity import session_facts
from trimtab.runs import RunWriter
from trimtab.runs.process_record import close_process_record, open_process_record, process_path

if TYPE_CHECKING:
    from trimtab.monitor.run import Run

_LIBRARIES = ("site-packages", f"{os.sep}trimtab{os.sep}", sysconfig.get_paths()["stdlib"])
_MAX_TEXT = 500


def end_of(error: BaseException | None) -> tuple[str, dict[str, str]]:
    """Return how a run ended whose block left with `error`: the reason and its detail, as `Run.end` takes
    them.

    >>> end_of(None), end_of(ValueError("x")), end_of(SystemExit(0))
    (('finished', {}), ('exception', {'error': 'ValueError: x'}), ('finished', {}))
    """
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return "finished", {}
    line = line_of(error.__traceback__)
    detail = {"line": line} if line else {}
    if isinstance(error, KeyboardInterrupt):
        return "signal", {"signal": "SIGINT", **detail}
    return "exception", {"error": error_text(error)[:_MAX_TEXT], **detail}


def line_of(trace: TracebackType | None) -> str:
    """Return file, line and function of the innermost frame of the user's code; of any code where none is the
    user's."""
    shown, own = "", ""
    while trace is not None:
        code = trace.tb_frame.f_code
        shown = f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} in {code.co_name}"
        if not any(part in code.co_filename for part in _LIBRARIES):
            own = shown
        trace = trace.tb_next
    return own or shown


class EndRecorder:
    """Writes down the process of each session of a run, and ends a run that is open when the process
    exits."""

    def __init__(self, run: Run) -> None:
        self._run, self._pid = weakref.ref(run), os.getpid()
        self._file: TextIO | None = None
        self._wanted = run.options.post_mortem
        self._post_mortem: PostMortemWriter | None = None
        self.checkpoints = CheckpointRecorder(lambda row: self._writer.write("checkpoints", [row]))
        atexit.register(self._at_exit)

    def begin(self, writer: RunWriter) -> None:
        """Write down this process for the session that `writer` has just opened."""
        self._close_file()
        self._writer = writer
        path = process_path(writer.folder, writer.rank, writer.session)
        if self._wanted:
            take_termination()
        self._file = open_process_record(path, session_facts())
        if self._wanted:
            self._post_mortem = PostMortemWriter(writer.folder, writer.rank, writer.session)
            watch_termination(self._post_mortem, path)

    def record(self, reason: str) -> None:
        """Write the post-mortem of a run whose end was just written for this reason, unless it ended well."""
        if self._post_mortem is not None:
            self._post_mortem.write(reason)

    def close(self) -> None:
        """The run is closed: nothing is left to be recorded."""
        self._close_file()
        atexit.unregister(self._at_exit)

    def _close_file(self) -> None:
        if self._file is not None:
            close_process_record(self._file)
        self._file = None
        if self._post_mortem is not None:
            leave_termination(self._post_mortem)
        self._post_mortem = None

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:  # a forked child ends nothing
            return
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)  # what nobody caught
        ending = end_of(error) if error is not None else ("exited", {})
        run = self._run()
        if run is not None:
            run.end_unraised(*ending)
            return
        with suppress(OSError):  # the writer says in the log that it cannot write
            self._writer.end(*ending)
        self.record(ending[0])

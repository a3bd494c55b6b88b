"""One section in a process of its own: a tool or a reward that ends its process ends no launch check.

`python -m trimtab.preflight.section_worker RESULT`, in the folder of the check's file, reads a request from
standard input and writes the check to the file RESULT. An error that nobody foresaw leaves no result; the
caller then says that the section is undecided. What tools print goes to standard error. The process ends
without waiting for threads: one that hangs would keep it for ever.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from trimtab.errors import TrimtabError
from trimtab.preflight.bounded_process import Ending
from trimtab.preflight.preflight_file import KINDS, DryRunSection, ToolsSection
from trimtab.preflight.section_checks import CHECKS, CheckResult, tools_check, unknown
from trimtab.tools.stress.phase_progress import Progress


def check_of(request: dict[str, Any]) -> CheckResult:
    """Make the check that a request asks for."""
    section = msgspec.convert(request["section"], KINDS[request["name"]])
    try:
        if isinstance(section, DryRunSection):
            from trimtab.preflight.dry_run import dry_run_check

            return dry_run_check(section, Path(request["run"]), Ending(**request["ending"]))
        if isinstance(section, ToolsSection) and request["progress"]:
            with Progress(_write, request["progress"] == "live") as say:
                return tools_check(section, say)
        return CHECKS[request["name"]](section)
    except TrimtabError as error:
        return unknown(str(error))


def main() -> None:
    """Read a request, make its check, write the result."""
    check = check_of(json.load(sys.stdin))
    partial = Path(sys.argv[1] + ".part")
    partial.write_text(json.dumps(check.row()), encoding="utf-8")
    partial.replace(sys.argv[1])


def _end_with(parent: int) -> None:
    """End when the command that asked is gone, as after SIGKILL: nobody would stop the load."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _write(line: str) -> None:
    print(f"trimtab: {line}", file=sys.stderr, flush=True)


def _run() -> int:
    """The exit code, with the traceback of what nobody foresaw on standard error."""
    os.dup2(2, 1)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    logging.getLogger("mcp").addHandler(logging.NullHandler())  # its failures are in the verdict
    try:
        main()
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        elif not isinstance(error, SystemExit):
            sys.excepthook(type(error), error, error.__traceback__)
        return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
    return 0


if __name__ == "__main__":
    code = _run()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)

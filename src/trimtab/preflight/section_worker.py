"""One section in a process of its own: a tool or a reward that ends its process ends no launch check.

`python -m trimtab.preflight.section_worker RESULT`, in the folder of the check's file, reads a request from
standard input and writes the check to the file RESULT. An error that nobody foresaw leaves no result; the
caller then says that the section is undecided.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from trimtab.errors import TrimtabError
from trimtab.preflight.bounded_process import Ending
from trimtab.preflight.dry_run import dry_run_check
from trimtab.preflight.preflight_file import KINDS, DryRunSection
from trimtab.preflight.section_checks import CHECKS, CheckResult, unknown


def check_of(request: dict[str, Any]) -> CheckResult:
    """Make the check that a request asks for."""
    section = msgspec.convert(request["section"], KINDS[request["name"]])
    try:
        if isinstance(section, DryRunSection):
            return dry_run_check(section, Path(request["run"]), Ending(**request["ending"]))
        return CHECKS[request["name"]](section)
    except TrimtabError as error:
        return unknown(str(error))


def main() -> None:
    """Read a request, make its check, write the result."""
    check = check_of(json.load(sys.stdin))
    Path(sys.argv[1]).write_text(json.dumps(check.row()), encoding="utf-8")


if __name__ == "__main__":
    main()

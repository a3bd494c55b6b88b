"""One section of a check in a process of its own, for `trimtab preflight` and `trimtab stress tools`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from trimtab.preflight.bounded_process import Ending, run_bounded
from trimtab.preflight.preflight_file import Section, ToolsSection
from trimtab.preflight.section_checks import CheckResult, unknown


@dataclass(frozen=True)
class SectionRequest:
    """What the worker (`section_worker`) is to check."""

    name: str  # of `preflight_file.KINDS`
    section: Section
    run: Path | None = None  # of a dry run: its folder
    ending: Ending | None = None  # of a dry run: how its command ended
    progress: str = ""  # "live": a line about each phase; "slow": about phases that take long; "": none

    def encoded(self) -> str:
        """The request as the worker reads it."""
        row = {
            "name": self.name, "section": msgspec.to_builtins(self.section),
            "run": None if self.run is None else str(self.run),
            "ending": None if self.ending is None else asdict(self.ending), "progress": self.progress,
        }  # fmt: skip
        return json.dumps(row)


def checked_section(
    request: SectionRequest,
    folder: Path,
    limit_s: float | None,
    echo: Callable[[str], None] | None = None,
) -> CheckResult:
    """Let the worker make a check.

    Args:
        request: what to check.
        folder: where it runs.
        limit_s: seconds, after which it is ended; None: no limit.
        echo: takes what the worker, and whatever runs inside it, prints to either stream.

    Returns:
        The check; undecided, without a result, where the worker gave no answer.
    """
    source = str(Path(__file__).resolve().parents[2])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH", "")])]
    with tempfile.TemporaryDirectory(prefix="trimtab-check-") as scratch:
        answer = Path(scratch) / "check.json"
        ending = run_bounded(
            [sys.executable, "-m", "trimtab.preflight.section_worker", str(answer)], folder=folder,
            limit_s=limit_s, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            text=request.encoded(), echo=echo,
        )  # fmt: skip
        if ending.timed_out:
            return unknown(
                f"It did not end in {limit_s:g} s and was ended.", "Find what hangs, or raise limit_s."
            )
        try:
            return CheckResult(**json.loads(answer.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return unknown(_crash(ending, request.section))


def _crash(ending: Ending, section: Section) -> str:
    how = f"exit code {ending.code}" if ending.code >= 0 else f"signal {-ending.code}"
    last = f": {ending.last_line}" if ending.last_line else ""
    if isinstance(section, ToolsSection):
        return f"{section.target} ended the process of the check ({how}){last}"
    return f"The check crashed with {how}{last}"

"""Run the sections of a launch check one after the other, and say go, no-go or undecided."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trimtab.detect.user_rules.yaml_source import close
from trimtab.errors import PreflightError, RunError
from trimtab.preflight.dry_run import missing_run, run_command
from trimtab.preflight.preflight_file import (
    KINDS,
    DryRunSection,
    EnvironmentSection,
    ParitySection,
    Preflight,
    RewardSection,
    Section,
    ToolsSection,
)  # fmt: skip
from trimtab.preflight.section_checks import TITLES, CheckResult
from trimtab.preflight.section_process import SectionRequest, checked_section
from trimtab.traces.core.plural import counted

EXIT_CODES = {"go": 0, "no-go": 1, "undecided": 2, "unfinished": 2}
_NOT_RUN = CheckResult("not run", "It was not run.", "Run it before the launch.")
_DIAGNOSIS_S = 600.0
"""Seconds that reading a dry run's folder may take."""


def run_preflight(
    plan: Preflight, only: Sequence[str] = (), say: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Make a launch check.

    Each section runs in a process of its own, in the folder of the check's file. One that crashes or does not
    end in time is undecided, and the others still run. An interrupt (Ctrl-C) ends the section that runs;
    the result is then unfinished.

    Args:
        plan: what to check (`load_preflight`).
        only: names of the sections to run; all that are stated without any.
        say: takes a line about each section.

    Returns:
        `verdict` (go, no-go, undecided, unfinished), `headline`, `checks` (a row each), `not_run`,
        `exit_code` (0 go, 1 no-go, 2 otherwise). It is go only if every section that was run is.

    Raises:
        PreflightError: `only` names a section that the file does not state.

    Example:
        result = run_preflight(load_preflight("preflight.yaml"))
        if result["verdict"] != "go":
            raise SystemExit(result["headline"])
    """
    for name in only:
        if name not in plan.sections:
            hint = close(name, plan.sections) if name not in KINDS else f"; it has {', '.join(plan.sections)}"
            raise PreflightError(f"{plan.path.name} has no section {name!r:.60}{hint}")
    wanted = [name for name in plan.sections if not only or name in only]
    sections = [(name, section) for name in wanted for section in plan.sections[name]]
    rows, start, finished = [], time.time(), True
    for number, (name, section) in enumerate(sections, 1):
        if say is not None and finished:
            say(f"{number} of {len(sections)}: {name}, {target_of(section)} ...")
        begin, check = time.monotonic(), _NOT_RUN
        if finished:
            try:
                check = _check(plan.folder, name, section)
            except KeyboardInterrupt:
                finished, check = False, CheckResult("not run", "It was interrupted.", _NOT_RUN.advice)
        seconds = time.monotonic() - begin
        about = {"section": name, "title": TITLES[name], "target": target_of(section), "seconds": seconds}
        rows.append({**about, **check.row()})
    verdict, headline = _verdict(rows, finished)
    return {
        "config": str(plan.path), "verdict": verdict, "headline": headline, "unfinished": not finished,
        "checks": rows, "not_run": [name for name in plan.sections if name not in wanted],
        "started": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(start)),
        "seconds": time.time() - start, "exit_code": EXIT_CODES[verdict],
    }  # fmt: skip


def target_of(section: Section) -> str:
    """Return what a section is about, in a few words."""
    match section:
        case ToolsSection():
            return section.target
        case RewardSection():
            return section.function
        case EnvironmentSection():
            return section.spec
        case ParitySection():
            return f"{section.train} and {section.eval}"
        case DryRunSection():
            return " ".join(section.command)
    return ""


def _check(folder: Path, name: str, section: Section) -> CheckResult:
    """Make one check: of a dry run after its command has run."""
    if not isinstance(section, DryRunSection):
        return checked_section(SectionRequest(name, section), folder, section.limit_s)
    try:
        run, ending = run_command(section, folder)
    except RunError as error:
        return missing_run(error)
    return checked_section(SectionRequest(name, section, run, ending), folder, _DIAGNOSIS_S)


def _verdict(rows: Sequence[dict[str, Any]], finished: bool) -> tuple[str, str]:
    """The word, and one sentence."""
    counts = Counter(row["state"] for row in rows)
    total = counted(len(rows), "check")
    names: dict[str, str] = {
        state: ", ".join(dict.fromkeys(row["section"] for row in rows if row["state"] == state))
        for state in counts
    }
    if counts["no-go"]:
        text = f"{counts['no-go']} of {total} no-go: {names['no-go']}."
        if counts["undecided"]:
            text += f" Undecided: {names['undecided']}."
        return "no-go", text + (f" Unfinished, not run: {names['not run']}." if not finished else "")
    if not finished:
        return "unfinished", f"Interrupted: {counts['go']} of {total} go, not run: {names['not run']}."
    words = {state: f"{counts[state]} of {total}" for state in counts}
    if counts["undecided"]:
        return "undecided", f"{words['undecided']} undecided: {names['undecided']}."
    if len(rows) == 1:
        return "go", f"The one check is go: {names['go']}."
    return "go", f"All of {total} go: {names['go']}."

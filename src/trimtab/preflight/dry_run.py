"""A watched dry run: a command trains a few steps, then its run folder is diagnosed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trimtab.errors import RunError
from trimtab.preflight.bounded_process import Ending, run_bounded
from trimtab.preflight.dry_run_items import Item, run_items
from trimtab.preflight.preflight_file import DryRunSection
from trimtab.preflight.section_checks import BAD_STATES, CheckResult, unknown
from trimtab.report.run_diagnosis import diagnosis
from trimtab.report.run_view import RunView, load_view

RUNS = "preflight-runs"
"""Folder, beside the file of the check, of the run folders that {run} stands for."""
_TAIL_LINES = 20


def run_command(section: DryRunSection, folder: Path) -> tuple[Path, Ending]:
    """Run the command.

    Args:
        section: what to run; `python` as its first word is this interpreter.
        folder: where it runs.

    Returns:
        Its run folder, and how it ended.

    Raises:
        RunError: the run folder holds a run already, or the command cannot be started.
    """
    if section.run:
        run = folder / section.run
        if (run / "run.json").exists():
            raise RunError(f"{run} holds an earlier run; delete it, or write {{run}} in the command")
    else:
        run = _fresh(folder / RUNS)
    words = [word.replace("{run}", str(run)) for word in section.command]
    if words[0] == "python":
        words[0] = sys.executable
    try:
        ending = run_bounded(words, folder=folder, limit_s=section.limit_s, env={**os.environ, **section.env})
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise RunError(f"{words[0]} cannot be started: {why}; give words of a command") from error
    return run, ending


def _fresh(runs: Path) -> Path:
    """A folder that is not there yet, in a folder that is."""
    try:
        runs.mkdir(exist_ok=True)
    except OSError as error:
        raise RunError(f"{runs} cannot be made: {error.strerror or error}") from error
    name = time.strftime("%Y%m%d-%H%M%S")
    names = (name, *(f"{name}-{number}" for number in range(2, 1000)))
    return next(runs / one for one in names if not (runs / one).exists())


def dry_run_check(section: DryRunSection, run: Path, ending: Ending) -> CheckResult:
    """Judge a run that was watched.

    Args:
        section: what it must show.
        run: its folder.
        ending: how its command ended.
    """
    tail = ending.output.splitlines()[-_TAIL_LINES:]
    about: dict[str, Any] = {
        "run": str(run), "ending": asdict(ending) | {"output": "\n".join(tail)}, "items": [],
        "diagnosis": None,
    }  # fmt: skip
    try:
        view = load_view(run)
    except RunError as error:
        if ending.code or ending.timed_out:
            first = _ended(section, ending)
            return CheckResult("no-go", first.text, first.advice, about | {"items": [asdict(first)]})
        text = f"The command ended with exit code 0 and wrote no run: {error}"
        advice = (
            "Let the command watch the run: trimtab.adapters.trl.watch or trimtab.open_run, with this folder."
        )
        return CheckResult("no-go", text, advice, about)
    items = [_ended(section, ending), *run_items(section, view)]
    summary = _shown(view)
    about |= {"items": [asdict(item) for item in items], "diagnosis": summary}
    return _weighed(items, about, summary)


def _shown(view: RunView) -> dict[str, Any]:
    """What the page shows of the diagnosis."""
    keys = ("verdict", "headline", "alarms", "tools", "not_observed", "num_steps", "identity_line")
    whole: Mapping[str, Any] = diagnosis(view)
    return {key: whole[key] for key in keys}


def _ended(section: DryRunSection, ending: Ending) -> Item:
    """How the command ended."""
    seconds = f"{ending.seconds:.1f} s"
    if ending.timed_out:
        text = f"The command did not end in {section.limit_s:g} s and was ended."
        last = f" Its last line: {ending.last_line}" if ending.last_line else ""
        return Item("command", "no-go", text + last, "Find where it hangs, or raise limit_s.")
    if ending.code:
        how = f"exit code {ending.code}" if ending.code > 0 else f"signal {-ending.code}"
        last = f": {ending.last_line}" if ending.last_line else ", and printed nothing"
        return Item("command", "no-go", f"The command ended with {how} after {seconds}{last}",
                    "Repair the command; its last lines are below.")  # fmt: skip
    return Item("command", "go", f"exit code 0 after {seconds}")


def _weighed(items: list[Item], about: dict[str, Any], summary: Mapping[str, Any]) -> CheckResult:
    """The worst item decides; the evidence names it, and how many more there are."""
    for state in BAD_STATES:
        bad = [item for item in items if item.state == state]
        if bad:
            more = f" Also: {', '.join(item.name for item in bad[1:])}." if len(bad) > 1 else ""
            return CheckResult(state, bad[0].text.rstrip(".") + "." + more, bad[0].advice, about)
    shown = [item.text for item in items if item.name in ("steps", "readings", "tools", "time")]
    evidence = "; ".join(shown)
    if summary["verdict"] == "not judged yet":
        evidence += "; too short for the rules to judge, so watch the real run"
    return CheckResult("go", evidence, "", about)


def missing_run(error: RunError) -> CheckResult:
    """Return the check of a dry run that could not be started."""
    return unknown(str(error))

"""The one page of a launch check: the verdict on top, a row for each section, then what each one showed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trimtab.errors import PreflightError
from trimtab.report.control_characters import escape_controls
from trimtab.report.html.offline_page import offline_page, write_offline
from trimtab.report.launch.environment_page import environment_view
from trimtab.report.launch.parity_page import parity_view
from trimtab.report.rewards.reward_page import reward_stress_view
from trimtab.report.tools.tool_stress_page import tool_stress_view

VIEWS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "tools": tool_stress_view, "reward": reward_stress_view, "environment": environment_view,
    "parity": parity_view, "dry_run": dict,
}  # fmt: skip
"""Section -> what its template reads of the result of its command."""
ICONS = {"go": "healthy", "no-go": "unhealthy", "undecided": "blind", "not run": "not judged yet",
         "unfinished": "not judged yet"}  # fmt: skip


def render_preflight(result: Mapping[str, Any]) -> str:
    """Return the page of `run_preflight`'s result.

    Args:
        result: verdict, headline and a row for each check.

    Returns:
        The page, as text; it refers to nothing outside itself.
    """
    checks = [_check(row, number) for number, row in enumerate(result["checks"], 1)]
    counts = Counter(row["state"] for row in result["checks"])
    stats = [(state, counts[state]) for state in ("go", "no-go", "undecided", "not run") if counts[state]]
    provenance = [
        ("File", result["config"]), ("Started", result["started"]), ("Took", f"{result['seconds']:.1f} s"),
        ("Stated, not run", ", ".join(result["not_run"]) or "nothing"),
    ]  # fmt: skip
    values = {
        "result": {key: value for key, value in result.items() if key != "checks"}, "checks": checks,
        "stats_of": stats, "icon_kind": ICONS[result["verdict"]], "provenance": provenance,
    }  # fmt: skip
    name = Path(str(result["config"])).name
    return offline_page("preflight.html", "launch check", f"{verdict_words(result)}: {name}", values)


def _check(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    view = None if row["result"] is None else VIEWS[row["section"]](row["result"])
    about = {key: value for key, value in row.items() if key != "result"}
    return {**about, "at": f"c{number}-", "view": view, "icon_kind": ICONS[row["state"]]}


def verdict_words(result: Mapping[str, Any]) -> str:
    """Return the verdict as it is shown: in capitals, and partial where sections were left out."""
    words = str(result["verdict"]).upper()
    if result["unfinished"] and words != "UNFINISHED":
        words += " (UNFINISHED)"
    return f"{words} (PARTIAL)" if result["not_run"] else words


def write_preflight(result: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write the page and return its path; PreflightError where that fails."""
    return write_offline(render_preflight(result), path, PreflightError)


def preflight_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the verdict in lines: one for each check, with what to do where it is not go."""
    lines = [f"{verdict_words(result)}: {result['config']}", f"  {result['headline']}", ""]
    for row in result["checks"]:
        state = row["state"] if row["state"] == "go" else row["state"].upper()
        lines.append(f"  [{state}] {row['section']}, {row['target']} ({row['seconds']:.1f} s)")
        lines.append(f"      {row['evidence']}")
        if row["advice"]:
            lines.append(f"      do: {row['advice']}")
        if row["section"] == "dry_run" and row["result"] and row["result"]["diagnosis"]:
            lines.append(f"      its run: trimtab report {row['result']['run']} -o dry_run.html")
    if result["not_run"]:
        lines += ["", f"  Stated and not run: {', '.join(result['not_run'])}; the verdict is on the others."]
    return [escape_controls(line) for line in lines]

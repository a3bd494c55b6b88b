"""One offline page of agent logs in the style of the run report: verdict, findings, tools, contrasts, and an
episode viewer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trimtab._version import __version__
from trimtab.report.control_characters import escape_controls_json
from trimtab.report.html.templating import render, write_page
from trimtab.report.screen import figure
from trimtab.report.traces.shown_episodes import shown_episodes
from trimtab.report.traces.trace_diagnosis import TraceDiagnosis, trace_diagnosis
from trimtab.report.traces.trace_lines import BY_TEXT, pass_line, unjudged_tools
from trimtab.traces.core.plural import counted


def write_traces_html(
    judged: TraceDiagnosis,
    path: str | os.PathLike[str],
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    decode: Callable[[int], str] | None = None,
) -> Path:
    """Write the page of a diagnosis, and return its path.

    `format` and `mapping`: as its logs were read with. `decode`: token ids to text (`token_colors.decoder`),
    where the log has no text of them.
    """
    shown = shown_episodes(judged, format, mapping, decode)
    return write_page(render_traces(trace_diagnosis(judged), shown), path)


def render_traces(diagnosis: dict[str, Any], episodes: list[dict[str, Any]]) -> str:
    """Return the page of `trace_diagnosis`'s result and `shown_episodes`'s list; it refers to nothing outside
    itself."""
    safe: Any = escape_controls_json({"found": diagnosis, "episodes": episodes})
    result, shown = safe["found"], safe["episodes"]
    by_text = result["failures_told_by"] == "text"
    notes = [BY_TEXT if by_text else "", unjudged_tools(result["tools"])]
    context = {
        "kind": "agent logs", "title": ", ".join(result["logs"]),
        "generated": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "trimtab_version": __version__, "num_runs": 1, "found": result,
        "keys": {episode["id"]: episode["key"] for episode in shown},
        "num_shown": len(shown), "by_text": by_text,
        "tool_notes": ". ".join(note[0].upper() + note[1:] for note in notes if note),
        "pass_k": "".join(f" {line.strip()}." for line in pass_line(result["pass_k"])),
        "missing": {row["key"]: row["reason"] for row in result["readings"] if row["status"] != "ok"},
        "provenance": [
            ("Logs", ", ".join(result["logs"])), ("Formats",
            ", ".join(sorted(set(result["formats"].values())))),
            ("Seconds", figure(result["seconds"])),
            *((f"Note, {counted(count, 'time')}", note) for note, count in result["notes"].items()),
        ],
    }  # fmt: skip
    return render("traces.html", {"episodes": shown}, ("traces.js",), ("report.css", "traces.css"), context)

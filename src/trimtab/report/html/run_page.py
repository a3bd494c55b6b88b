"""One offline HTML page of one or more runs: what an engineer pastes into an incident review."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.report.control_characters import escape_controls_json
from trimtab.report.html.templating import asset, render, write_page

_SCRIPTS = ("uPlot.iife.min.js", "charts.js", "page.js")
_STYLES = ("uPlot.min.css", "report.css")


def render_html(payload: Mapping[str, Any]) -> str:
    """Render a report payload as one self-contained HTML document.

    Non-finite numbers become null: charts mark them as a hole with a cross, never as a zero.

    Args:
        payload: What `run_payload.build_payload` returns.

    Returns:
        The page, as text.

    Raises:
        TypeError: The payload holds something JSON cannot.

    Example:
    >>> page = render_html({"title": "<b>night 3</b>", "runs": []})
    >>> page.startswith("<!doctype html>"), "&lt;b&gt;night 3" in page, "<b>night" in page
    (True, True, False)
    """
    safe: Any = escape_controls_json(dict(payload))
    runs = safe.get("runs") or []
    context = {
        "kind": "run report", "title": safe.get("title") or "trimtab report",
        "generated": safe.get("generated") or "",
        "trimtab_version": safe.get("trimtab_version") or "", "num_runs": len(runs), "runs": runs,
        "uplot_license": asset("uPlot.LICENSE").strip(),
    }  # fmt: skip
    return render("run.html", safe, _SCRIPTS, _STYLES, context)


def write_html(payload: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Render and write atomically: a reader sees the old page or the new one, never half of one. Returns the
    path."""
    return write_page(render_html(payload), path)

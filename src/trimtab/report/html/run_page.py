"""One offline HTML page of one or more runs: what an engineer pastes into an incident review.

The page refers to nothing outside itself: script, style and data are inline, and its Content-Security-Policy admits
exactly that one script and that one style by their hash. Text from the payload is data twice over: escaped here, and
set with textContent in the browser.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from trimtab.report.control_characters import escape_controls_json
from trimtab.report.html import sections as html_text
from trimtab.report.html import tables as html_tables
from trimtab.report.html.elements import escape

PAYLOAD_VERSION = 1

_SCRIPTS = ("assets/uPlot.iife.min.js", "assets/charts.js", "assets/page.js")
_STYLES = ("assets/uPlot.min.css", "assets/report.css")
_UNSAFE_IN_SCRIPT = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def render_html(payload: Mapping[str, Any]) -> str:
    """Render a report payload (version 1, see `trimtab.report.html.run_payload`) as one self-contained HTML document.

    Non-finite numbers become null: charts mark them as a hole with a cross, never as a zero. Raises `TypeError` when
    the payload holds something JSON cannot.

    >>> page = render_html({"title": "<b>night 3</b>", "runs": []})
    >>> page.startswith("<!doctype html>"), "&lt;b&gt;night 3" in page, "<b>night" in page
    (True, True, False)
    """
    safe: Any = escape_controls_json(dict(payload))
    runs: list[dict[str, Any]] = safe.get("runs") or []
    script = "\n".join(asset(name) for name in _SCRIPTS)
    style = "\n".join(asset(name) for name in _STYLES)
    parts = {
        "title": escape(safe.get("title") or "trimtab report"),
        "generated": escape(safe.get("generated") or ""),
        "trimtab_version": escape(safe.get("trimtab_version") or ""),
        "csp": f"default-src 'none'; script-src '{source_hash(script)}'; style-src '{source_hash(style)}'; "
        "base-uri 'none'; form-action 'none'",
        "style": style,
        "script": script,
        "uplot_license": escape(asset("assets/uPlot.LICENSE").strip()),
        "payload": embed_json(safe),
        "num_runs": str(len(runs)),
        "verdicts": html_text.verdicts(runs),
        "warnings": html_text.warnings(runs),
        "tools": html_tables.tools(runs),
        "exemplars": html_tables.exemplars(runs),
        "alarms": html_text.alarms(runs),
        "alarmed": html_text.alarmed(runs),
        "not_observed": html_tables.not_observed(runs),
        "judged": html_tables.judged(runs),
        "facts": html_tables.facts(runs),
    }
    # One pass: a placeholder inside the payload stays text.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], asset("template.html"))


def write_html(payload: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Render and write atomically: a reader sees the old page or the new one, never half of one. Returns the path."""
    return write_page(render_html(payload), path)


def write_page(page: str, path: str | os.PathLike[str]) -> Path:
    """Write a page atomically; see `write_html`."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(page)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644 if not target.exists() else target.stat().st_mode & 0o777)
        os.replace(temporary, target)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return target


def embed_json(value: object) -> str:
    r"""JSON that cannot end the script element that holds it.

    >>> embed_json({"tool": "</script><b>&"})
    '{"tool":"\\u003c/script\\u003e\\u003cb\\u003e\\u0026"}'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_UNSAFE_IN_SCRIPT)


def asset(name: str) -> str:
    """A file of this package as text, as a browser would hash it."""
    text = resources.files("trimtab.report").joinpath(*name.split("/")).read_text(encoding="utf-8")
    return text.replace("\r\n", "\n")  # a browser hashes the script with newlines normalised


def source_hash(text: str) -> str:
    """The Content-Security-Policy's source for an inline script or style that stands on lines of its own."""
    digest = hashlib.sha256(f"\n{text}\n".encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"

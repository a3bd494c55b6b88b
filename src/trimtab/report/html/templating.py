"""Offline HTML pages from Jinja2 templates that escape every value.

A page refers to nothing outside itself: script, style and data are inline, and its Content-Security-Policy
admits exactly that one script and that one style by their hash. Text of a run is data twice over: escaped by
the template, and set with textContent in the browser.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, Undefined
from markupsafe import Markup, escape

from trimtab.report.alarms import alarm_counts, severity_word
from trimtab.report.screen import figure, short
from trimtab.safe_files import replacing
from trimtab.traces.core.plural import counted

_UNSAFE_IN_SCRIPT = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def render(
    template: str, payload: object, scripts: Sequence[str], styles: Sequence[str], context: dict[str, Any]
) -> str:
    """Return the page of a template of this package; `payload` is the data its scripts read, `scripts` and
    `styles` are assets."""
    script, style = ("\n".join(asset(name) for name in names) for names in (scripts, styles))
    return _environment().get_template(template).render(
        context, payload=Markup(embed_json(payload)), script=Markup(script), style=Markup(style),
        script_hash=_source_hash(script), style_hash=_source_hash(style),
    )  # fmt: skip


def write_page(page: str, path: str | os.PathLike[str]) -> Path:
    """Write a page atomically: a reader sees the old page or the new one. Returns the path."""
    target = Path(path)
    with replacing(target) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.write(page)
        file.flush()
        os.fsync(file.fileno())
    return target


def embed_json(value: object) -> str:
    r"""Return JSON that cannot end the script element that holds it.

    >>> embed_json({"tool": "</script><b>&"})
    '{"tool":"\\u003c/script\\u003e\\u003cb\\u003e\\u0026"}'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_UNSAFE_IN_SCRIPT)


def asset(name: str) -> str:
    """Return a file of the assets as text, as a browser would hash it."""
    text = resources.files("trimtab.report").joinpath("assets").joinpath(name).read_text(encoding="utf-8")
    return text.replace("\r\n", "\n")  # a browser hashes the script with newlines normalised


def _source_hash(text: str) -> Markup:
    """The Content-Security-Policy's source for an inline script or style that stands on lines of its own."""
    digest = hashlib.sha256(f"\n{text}\n".encode()).digest()
    return Markup(f"sha256-{base64.b64encode(digest).decode()}")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("trimtab.report", "templates"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: "–" if value is None else value,
    )  # fmt: skip
    environment.filters |= {
        "alarm_counts": alarm_counts, "severity_word": severity_word, "counted": counted, "code": _code,
        "run_letter": _run_letter,
        "integer": _integer, "number": _number, "percent": _percent, "seconds": _seconds, "nats": _nats,
        "figure": _figure, "short": _short,
    }  # fmt: skip
    return environment


def _missing(value: object) -> bool:
    return value is None or isinstance(value, Undefined)


def _code(text: object) -> Markup:
    """Escaped, and what stands between backticks set as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _run_letter(index: int) -> str:
    """A, B, ..., Z, R27, R28, ..."""
    return chr(ord("A") + index) if index < 26 else f"R{index + 1}·"


def _integer(value: Any) -> str:
    return "–" if _missing(value) else f"{value:,}" if isinstance(value, (int, float)) else str(value)


def _number(value: Any) -> str:
    return "–" if _missing(value) else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _percent(value: Any) -> str:
    return "–" if _missing(value) else f"{100 * value:.1f} %"


def _seconds(value: Any) -> str:
    if _missing(value):
        return "–"
    if value < 0.001:
        return f"{1e6 * value:.0f} µs"
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def _nats(value: Any) -> str:
    return "not finite" if _missing(value) else f"{value:.3g}"


def _figure(value: Any, sign: str = "-", unit: str = "") -> str:
    return "–" if _missing(value) else figure(value, sign) + unit


def _short(value: Any) -> str:
    return "–" if _missing(value) else short(value)

"""What offline pages of checks have in common: their head, numbers that are not finite, how they are written.

Texts of tools, completions and settings are hostile: templates escape them, and their control characters are
shown.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab._version import __version__
from trimtab.errors import TrimtabError
from trimtab.report.control_characters import escape_controls_json
from trimtab.report.html.templating import render, write_page

STYLES = ("report.css", "traces.css", "checks.css")


def offline_page(template: str, kind: str, title: str, values: Mapping[str, Any]) -> str:
    """Return a page of this package's templates; it refers to nothing outside itself.

    Args:
        template: its file.
        kind: what the page is of, in two to four words.
        title: its headline.
        values: what the template reads; numbers that are not finite become dashes.
    """
    context = {
        "kind": kind, "title": title, "num_runs": 1, "trimtab_version": __version__,
        "generated": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), **values,
    }  # fmt: skip
    safe: Any = escape_controls_json(finite(context))
    return render(template, {}, (), STYLES, safe)


def write_offline(page: str, path: str | os.PathLike[str], error: type[TrimtabError]) -> Path:
    """Write a page and return its path; `error` where that fails."""
    require_page_path(path, error)
    try:
        return write_page(page, path)
    except OSError as failure:
        raise error(f"{path} cannot be written: {failure.strerror or failure}") from failure


def require_page_path(path: str | os.PathLike[str], error: type[TrimtabError]) -> None:
    """Raise `error` where no page can be written to a path; before a check of minutes, not after it."""
    target = Path(path)
    if target.is_dir():
        raise error(f"{path} is a folder; name the page, as in --html page.html")
    if not target.parent.is_dir():
        raise error(f"{path} cannot be written: the folder {target.parent} is missing; make it first")


def finite(value: Any) -> Any:
    """Return the value with None in place of NaN and infinity.

    >>> finite({"gain": float("nan"), "rewards": (1.0, float("inf"))})
    {'gain': None, 'rewards': [1.0, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, (list, tuple)) else value

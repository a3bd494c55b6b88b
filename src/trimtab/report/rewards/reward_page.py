"""Offline pages of a reward's verdicts, in the style of the run report.

Texts of completions are hostile: they are escaped by the template, and their control characters are shown.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab._version import __version__
from trimtab.errors import RewardError
from trimtab.report.control_characters import escape_controls_json
from trimtab.report.html.templating import render, write_page
from trimtab.report.screen import figure


def render_stress_page(result: Mapping[str, Any]) -> str:
    """Return the page of `stress_verdict`'s result; it refers to nothing outside itself."""
    provenance = [
        ("Reward", str(result["target"])),
        ("Calls", f"{result['num_calls']:,}"),
        ("Median time of a call, by completion", f"{1000 * result['median_s']:.3g} ms"),
        ("Largest difference between repeats", figure(result["noise"])),
        ("Left out", result["unfinished"] or "nothing"),
    ]
    return reward_page("reward_stress.html", "reward under probes", str(result["target"]), result, provenance)


def write_reward_page(page: str, path: str | os.PathLike[str]) -> Path:
    """Write a page and return its path; RewardError where that fails."""
    if Path(path).is_dir():
        raise RewardError(f"{path} is a folder; name the page, as in --html reward.html")
    try:
        return write_page(page, path)
    except OSError as error:
        raise RewardError(f"{path} cannot be written: {error.strerror or error}") from error


def reward_page(
    template: str, kind: str, title: str, result: Mapping[str, Any], provenance: list[tuple[str, str]]
) -> str:
    """Return a page of this package's templates; numbers that are not finite become dashes."""
    safe: Any = escape_controls_json(_finite(dict(result)))
    facts: Any = escape_controls_json(provenance)
    context = {
        "kind": kind, "title": escape_controls_json(title), "trimtab_version": __version__, "num_runs": 1,
        "found": safe,
        "generated": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "provenance": facts,
    }  # fmt: skip
    return render(template, {}, (), ("report.css", "traces.css"), context)


def _finite(value: Any) -> Any:
    """The value with None in place of NaN and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value

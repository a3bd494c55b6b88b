"""Offline pages of a reward's verdicts, in the style of the run report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.errors import RewardError
from trimtab.report.html.offline_page import offline_page, write_offline
from trimtab.report.screen import figure


def render_stress_page(result: Mapping[str, Any]) -> str:
    """Return the page of `stress_verdict`'s result; it refers to nothing outside itself."""
    view = reward_stress_view(result)
    return offline_page("reward_stress.html", "reward under probes", str(result["target"]), {"view": view})


def reward_stress_view(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the template of a reward under probes reads, for a page of its own or a part of one."""
    provenance = [
        ("Reward", str(result["target"])),
        ("Calls", f"{result['num_calls']:,}"),
        ("Median time of a call, by completion", f"{1000 * result['median_s']:.3g} ms"),
        ("Largest difference between repeats", figure(result["noise"])),
        ("Left out", result["unfinished"] or "nothing"),
    ]
    return {"found": dict(result), "provenance": provenance}


def write_reward_page(page: str, path: str | os.PathLike[str]) -> Path:
    """Write a page and return its path; RewardError where that fails."""
    return write_offline(page, path, RewardError)


def reward_page(
    template: str, kind: str, title: str, result: Mapping[str, Any], provenance: list[tuple[str, str]]
) -> str:
    """Return a page of this package's templates; numbers that are not finite become dashes."""
    return offline_page(template, kind, title, {"found": dict(result), "provenance": provenance})

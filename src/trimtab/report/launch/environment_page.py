"""Offline page of `trimtab stress env`: which exploits an environment's verifier pays."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.errors import RewardError
from trimtab.report.html.offline_page import offline_page, write_offline
from trimtab.report.rewards.stress_verdict import CAVEAT, exploits_by_outcome


def render_environment(result: Mapping[str, Any]) -> str:
    """Return the page of `stress_environment`'s result.

    Args:
        result: verdict, honest rewards and a row for each exploit.

    Returns:
        The page, as text; it refers to nothing outside itself.
    """
    title = str(result["environment"])
    return offline_page(
        "environment.html", "environment under exploits", title, {"view": environment_view(result)}
    )


def environment_view(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the template of an environment reads, for a page of its own or a part of one."""
    paid, refused, failed = exploits_by_outcome(result)
    tried = any(math.isfinite(row["gain"]) for row in result["exploits"])
    view = {"result": dict(result), "paid": paid, "refused": refused, "failed": failed, "tried": tried}
    return {**view, "caveat": CAVEAT}


def write_environment(result: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write the page and return its path; RewardError where that fails."""
    return write_offline(render_environment(result), path, RewardError)

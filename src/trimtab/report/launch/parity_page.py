"""Offline page of `trimtab parity`: what differs between training and evaluation, and the paired scores."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.errors import ParityError
from trimtab.report.html.offline_page import offline_page, write_offline


def render_parity(result: Mapping[str, Any]) -> str:
    """Return the page of `parity_of`'s result.

    Args:
        result: verdict, differences, scores, stop reasons and notes of two sides.

    Returns:
        The page, as text; it refers to nothing outside itself.

    Example:
        >>> row = {"field": "stop", "severity": "critical", "train": "<b>", "eval": "", "why": ""}
        >>> page = render_parity({"train": "a.yaml", "eval": "b.yaml", "verdict": "not comparable",
        ...     "headline": "One difference.", "differences": [row], "scores": None, "stop_reasons": [],
        ...     "notes": [], "num_train_episodes": 0, "num_eval_episodes": 0})
        >>> "&lt;b&gt;" in page, "<bdi><b>" in page
        (True, False)
    """
    title = f"{result['train']} and {result['eval']}"
    view = parity_view(result)
    return offline_page("parity.html", "parity of training and evaluation", title, {"view": view})


def parity_view(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the template of parity reads, for a page of its own or a part of one."""
    counts = Counter(row["severity"] for row in result["differences"])
    severities = ("critical", "warning", "info")
    return {"result": dict(result), "counts": {name: counts[name] for name in severities}}


def write_parity(result: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write the page and return its path; ParityError where that fails."""
    return write_offline(render_parity(result), path, ParityError)

"""What all commands share: options of the form NAME=VALUE, and JSON without NaN."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from trimtab.errors import MetricLogError


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """`ours=theirs` texts as a mapping; MetricLogError for one without both, and where one of ours is given twice."""
    found: dict[str, str] = {}
    for text in texts:
        ours, _, theirs = text.partition("=")
        if not ours or not theirs:
            raise MetricLogError(
                f"--map {text!r} is not of the form ours=theirs, as in --map reward=my/score"
            )
        ours, theirs = ours.strip(), theirs.strip()
        if ours in found:
            raise MetricLogError(
                f"--map {ours} is given twice, for {found[ours]} and for {theirs}; give the key it is to be read off"
            )
        found[ours] = theirs
    return found


def plain(value: Any) -> Any:
    """Strict JSON: what is not finite becomes null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value

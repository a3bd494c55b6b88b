"""Readings made by the detectors themselves from several others: `joint/<family>`."""

from __future__ import annotations

from trimtab.catalog.definitions import UNCALIBRATED, Definition

JOINT: dict[str, Definition] = {
    f"joint/{family}": Definition(
        f"sum of the standardised members of the family {family}, up is bad, over sqrt(k)", "deviations", "up is bad", UNCALIBRATED
    )
    for family in (
        "post_tool", "support", "mismatch", "staleness", "groups", "outcome", "likelihood", "gradient", "vanishing", "tools", "tool_use", "text", "hacking",
        "template", "entropy", "looping", "value", "preference", "throughput",
    )
}  # fmt: skip

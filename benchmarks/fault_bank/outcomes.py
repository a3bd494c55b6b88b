"""What the results of streams add up to: found in time, the cause that came first, the slice that was named, warnings while healthy."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.fault_bank.faults import FAULTS

__all__ = ["LIMIT", "Outcome", "confusion", "figures_of", "table"]

LIMIT = {"full": 15, "third": 40, "": 0}
"""Strength -> steps from the onset in which a fault must be found."""
NONE = "no cause"


@dataclass(frozen=True)
class Outcome:
    """One stream with what the diagnosis said of it."""

    kind: str
    strength: str  # "full", "third", or "" for a healthy stream
    seed: int
    steps: int
    onset: int  # -1: healthy
    sits_in: str  # slice that should be named; empty: the fault sits in none
    alarms: tuple[tuple[int, str, str], ...]  # above info: step, rule, slice
    causes: tuple[str, ...]  # those of the highest score, of the incident that the fault began
    slice: str

    @classmethod
    def of(cls, name: str, row: dict[str, Any]) -> Outcome:
        """From a row of the results."""
        kind, *middle, seed = name.split("/")
        onset = row["onset"]
        met = [one for one in row["incidents"] if one["last"] >= onset] if onset >= 0 else []
        causes = met[0]["causes"] if met else []
        place = row["place"]
        return cls(
            kind, middle[0] if middle else "", int(seed), row["steps"], onset,
            f"post_tool/{place}" if place and not place.startswith("rank") else place,
            tuple((int(step), rule, where) for step, rule, where in row["alarms"]),
            tuple(cause for cause, score in causes if score == causes[0][1] and score > 0), met[0]["slice"] if met else "",
        )  # fmt: skip

    @property
    def delay(self) -> float:
        """Steps from the onset to the first alarm; infinity where there is none."""
        return min((step - self.onset for step, _, _ in self.alarms if step >= self.onset), default=math.inf)

    @property
    def found(self) -> bool:
        """Was there an alarm in time?"""
        return self.onset >= 0 and self.delay <= LIMIT[self.strength]

    @property
    def cause_first(self) -> bool:
        """Did the right cause come first, alone?"""
        return self.causes == (FAULTS[self.kind].cause,)

    @property
    def named(self) -> bool:
        """Was the right tool or rank named?"""
        return self.slice == self.sits_in


def figures_of(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """The figures of the issue. A fault without an alarm has no cause and no slice: it counts as wrong in the `_of_all_` figures only."""
    sick = [one for one in outcomes if one.onset >= 0]
    seen = [one for one in sick if math.isfinite(one.delay)]
    in_slice = [one for one in seen if one.sits_in]
    healthy = [one for one in outcomes if one.onset < 0]
    steps = sum(one.steps for one in healthy)
    warnings = sum(len(one.alarms) for one in healthy)
    before = sum(step < one.onset for one in sick for step, _, _ in one.alarms)
    return {
        "fault_streams": len(sick),
        "found_full_frac": share([one.found for one in sick if one.strength == "full"]),
        "found_third_frac": share([one.found for one in sick if one.strength == "third"]),
        "cause_first_frac": share([one.cause_first for one in seen]),
        "cause_first_of_all_frac": share([one.cause_first for one in sick]),
        "cause_first_full_frac": share([one.cause_first for one in seen if one.strength == "full"]),
        "slice_named_frac": share([one.named for one in in_slice]),
        "slice_named_of_all_frac": share([one.named for one in sick if one.sits_in]),
        "healthy_steps": steps,
        "healthy_warnings": warnings,
        "healthy_warnings_per_10k": round(1e4 * warnings / steps, 2) if steps else math.nan,
        "healthy_streams_warned": sum(bool(one.alarms) for one in healthy),
        "warnings_before_onset": before,
        "steps_before_onset": sum(one.onset for one in sick),
    }


def share(values: Sequence[bool]) -> float:
    """Fraction of True, to four digits; NaN of none."""
    return round(sum(values) / len(values), 4) if values else math.nan


def table(outcomes: Sequence[Outcome]) -> str:
    """A row a fault and strength, as Markdown."""
    lines = [
        "| fault | strength | found in time | median delay | right cause first | slice named |",
        "|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for one in outcomes:
        if one.onset >= 0:
            groups[one.kind, one.strength].append(one)
    for (kind, strength), of in sorted(
        groups.items(), key=lambda item: ([*FAULTS].index(item[0][0]), item[0][1])
    ):
        delays = [one.delay for one in of if math.isfinite(one.delay)]
        named = f"{sum(one.named for one in of)}/{len(of)}" if of[0].sits_in else "-"
        lines.append(
            f"| {kind} | {strength} | {sum(one.found for one in of)}/{len(of)} | {median(delays) if delays else math.nan:.0f} "
            f"| {sum(one.cause_first for one in of)}/{len(of)} | {named} |"
        )
    return "\n".join(lines)


def confusion(outcomes: Sequence[Outcome]) -> str:
    """Fault -> what came first, with counts; ties are joined by `or`."""
    lines = ["| fault | first causes |", "|---|---|"]
    for kind in FAULTS:
        counts = Counter(
            " or ".join(sorted(one.causes)) or (NONE if math.isfinite(one.delay) else "not found")
            for one in outcomes if one.kind == kind
        )  # fmt: skip
        if counts:
            lines.append(
                f"| {kind} | {', '.join(f'{cause} {count}' for cause, count in counts.most_common())} |"
            )
    return "\n".join(lines)

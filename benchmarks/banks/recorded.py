"""The pilot's recorded runs as the bench sees them: healthy learning runs, and collapses with the step at which reward had halved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reproduce.archives import unpacked
from reproduce.pilot.reading import Outcome, load_bank

from trimtab.types import Alarm

__all__ = ["BANK", "Recorded", "recorded"]

BANK = Path(__file__).parents[2] / "reproduce" / "bank"


@dataclass(frozen=True)
class Recorded:
    """One run: its alarms replayed with today's rules, and its verdict. `collapsed` is None where the reward never halved.

    `growing`: tool outputs were open, and the post-tool tail grew tenfold as docs/explanation/pilot.md shows: whether such a run is healthy is
    what the pilot could not decide, so it counts neither as a healthy run nor as a collapse.
    """

    id: str
    arm: str
    num_steps: int
    collapsed: int | None
    growing: bool
    alarms: tuple[Alarm, ...]
    verdict: str


def recorded(half: str | None = None) -> list[Recorded]:
    """Every run of a half of the bank (both when None) that learnt something, replayed."""
    found = []
    for outcome in load_bank(unpacked(BANK)):
        where = "test" if outcome.seed % 2 else "tuning"
        if half in (None, where) and outcome.learning:
            found.append(_one(outcome))
    return found


def _one(outcome: Outcome) -> Recorded:
    view = outcome.view
    return Recorded(
        f"{outcome.arm}-s{outcome.seed}", outcome.arm, len(view.steps), outcome.collapsed,
        outcome.arm.startswith(("open", "drift")), tuple(view.pipeline.alarms),
        view.verdict.word,
    )  # fmt: skip

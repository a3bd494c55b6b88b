"""Step-level bookkeeping: which columns arrived, and the trainer's own aggregates averaged over a window's
steps.

Preference and supervised training, from the trainer's own numbers: is the loss better than chance, does it
generalise?

DPO's loss at a policy equal to its reference is log 2 (arXiv 2305.18290, equation 7); a loss that stays there
learns nothing, and one that falls while chosen log-probabilities fall too only pushes both down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab.measure.sequences.aggregates import comparable, trainer_aggregates
from trimtab.types import LOGPROB_COLUMNS, Reading, TokenBatch, Window

STEP_WINDOW = 10
"""Steps of a window of readings on tools (default, not calibrated)."""

_OWN = "the trainer's own, mean over the window's steps"
_MAX_STEPS = 4_096  # a window longer than this averages its last steps only


def observed_columns(batch: TokenBatch) -> set[str]:
    """Names of the token columns a batch brought.

    A reference that scored no sequence of it did not arrive; nor did anything without a token that receives
    gradient.
    """
    if not batch.loss_mask.any():
        return set()  # nothing the run could be judged by
    columns = {
        name for name in (*LOGPROB_COLUMNS, "advantages", "entropy") if getattr(batch, name) is not None
    }
    if batch.ref_scored is not None and not batch.ref_scored.any():
        columns.discard("ref_logprobs")
    if batch.reward is not None:
        columns.add("reward")
    return columns


@dataclass
class StepAggregates:
    """Keeps the trainer's aggregates of the steps of the open `all` window; they override the token-based
    ones."""

    steps: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    logged: set[str] = field(default_factory=set)  # keys of the readings that are the trainer's own
    chance: float | None = None  # what the trainer said its loss is at chance

    def add(self, step: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """Take a step's metrics; returns the aggregates found among them."""
        numbers = trainer_aggregates(metrics)
        self.logged |= {f"aggregate/{name}" for name in numbers}
        self.chance = metrics.get(CHANCE_KEY, self.chance)
        self.steps.append((step, numbers))
        del self.steps[:-_MAX_STEPS]
        return numbers

    def without_tokens(self) -> list[Reading]:
        """Aggregate readings of a trainer that brings no tokens: each step's own, and every `STEP_WINDOW`
        steps what rests on their means."""
        if not self.steps:
            return []
        step, numbers = self.steps[-1]
        readings = [_own(name, [numbers], Window(step, step), 0) for name in sorted(numbers)]
        if len(self.steps) < STEP_WINDOW:
            return readings
        inside, window = [one for _, one in self.steps], Window(self.steps[0][0], step)
        self.steps = []
        means = {name: _own(name, inside, window, 0).value for numbers in inside for name in numbers}
        return readings + self._derived(means, len(inside), window, 0)

    def apply(self, readings: list[Reading], window: Window) -> list[Reading]:
        """Replace or add `aggregate/*` readings of the window by the trainer's mean over its steps; drops
        those steps.

        Values that are not finite are left out of the mean and counted in `excluded`; they alarm on their
        own.
        """
        inside = [numbers for step, numbers in self.steps if window.first <= step <= window.last]
        self.steps = [(step, numbers) for step, numbers in self.steps if step > window.last]
        trajectories = readings[0].n_trajectories if readings else 0
        table = {reading.key: reading for reading in readings if reading.slice == "all"}
        others = [
            reading for reading in readings if reading.slice != "all"
        ]  # parts of the reward share a key
        for name in sorted({name for numbers in inside for name in numbers}):
            table[f"aggregate/{name}"] = _own(name, inside, window, trajectories)
        means = {name: table[f"aggregate/{name}"].value for numbers in inside for name in numbers}
        table |= {one.key: one for one in self._derived(means, len(inside), window, trajectories)}
        return [*table.values(), *others]

    def _derived(
        self, means: Mapping[str, float], num_steps: int, window: Window, trajectories: int
    ) -> list[Reading]:
        """What rests on several aggregates' means."""
        readings = []
        for key, value in derived(means, self.chance).items():
            missing = (
                ""
                if math.isfinite(value)
                else "the trainer's loss has no known value at chance, or is not finite"
            )
            readings.append(Reading(
                key, window.last, window, "all", value, num_steps, trajectories, reference=_OWN,
                status="not observed" if missing else "ok", reason=missing,
            ))  # fmt: skip
        return readings


def _own(name: str, inside: list[dict[str, float]], window: Window, trajectories: int) -> Reading:
    """The mean of one of the trainer's aggregates over the steps that have it."""
    steps = [numbers for numbers in inside if name in numbers]
    values = [numbers[name] for numbers in steps if comparable(name, numbers)]
    finite = [value for value in values if math.isfinite(value)]
    mean = math.fsum(finite) / len(finite) if finite else math.nan
    skipped = {
        "not finite": len(values) - len(finite),
        "no group of rewards varied": len(steps) - len(values),
    }
    return Reading(
        f"aggregate/{name}", window.last, window, "all", mean, len(finite), trajectories, reference=_OWN,
        excluded={reason: count for reason, count in skipped.items() if count},
    )  # fmt: skip


CHANCE_KEY = "chance_loss"
"""Metric by which a trainer says what its loss is at a policy equal to the reference; nan: not known."""


def derived(numbers: Mapping[str, float], chance: float | None = None) -> dict[str, float]:
    """Readings by key from a window's means by our names; a key is absent when what it needs is.

    `preference/loss_over_chance` = loss - `chance` (nats; below 0 is better than chance), for a trainer that
    gave `chance_loss`, or that logs an accuracy of pairs, whose loss at chance is then taken as log 2.
    `preference/margin` = the trainer's margin, else chosen less rejected implicit reward. `supervised/gap` =
    held_out_loss - loss in nats.

    >>> derived({"loss": 0.5, "held_out_loss": 0.75})
    {'supervised/gap': 0.25}
    """
    readings: dict[str, float] = {}
    loss = numbers.get("loss")
    if loss is not None and "held_out_loss" in numbers:
        readings["supervised/gap"] = numbers["held_out_loss"] - loss
    if chance is None and "preference_accuracy" in numbers:
        chance = math.log(2.0)
    if loss is not None and chance is not None:
        readings["preference/loss_over_chance"] = loss - chance
    if "margin" in numbers:
        readings["preference/margin"] = numbers["margin"]
    elif "chosen_reward" in numbers and "rejected_reward" in numbers:
        readings["preference/margin"] = numbers["chosen_reward"] - numbers["rejected_reward"]
    return readings

"""Preference and supervised training, from the trainer's own numbers: is the loss better than chance, does it generalise?

DPO's loss at a policy equal to its reference is log 2 (arXiv 2305.18290, equation 7); a loss that stays there learns
nothing, and one that falls while chosen log-probabilities fall too only pushes both down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

CHANCE_KEY = "chance_loss"
"""Metric by which a trainer says what its loss is at a policy equal to the reference; nan: not known."""


def derived(numbers: Mapping[str, float], chance: float | None = None) -> dict[str, float]:
    """Readings by key from a window's means by our names; a key is absent when what it needs is.

    `preference/loss_over_chance` = loss - `chance` (nats; below 0 is better than chance), for a trainer that gave
    `chance_loss`, or that logs an accuracy of pairs, whose loss at chance is then taken as log 2.
    `preference/margin` = the trainer's margin, else chosen less rejected implicit reward.
    `supervised/gap` = held_out_loss - loss in nats.

    >>> derived({"loss": 0.5, "held_out_loss": 0.75})
    {'supervised/gap': 0.25}
    """
    found: dict[str, float] = {}
    loss = numbers.get("loss")
    if loss is not None and "held_out_loss" in numbers:
        found["supervised/gap"] = numbers["held_out_loss"] - loss
    if chance is None and "preference_accuracy" in numbers:
        chance = math.log(2.0)
    if loss is not None and chance is not None:
        found["preference/loss_over_chance"] = loss - chance
    if "margin" in numbers:
        found["preference/margin"] = numbers["margin"]
    elif "chosen_reward" in numbers and "rejected_reward" in numbers:
        found["preference/margin"] = numbers["chosen_reward"] - numbers["rejected_reward"]
    return found

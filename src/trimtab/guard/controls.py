"""The levers that a trainer offers to a guard.

    Incident -> [guard] Action -> Controls -> trainer

An adapter implements `Controls` for its trainer; a loop of one's own needs some 40 lines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from trimtab.types import Lever


class LeverRange(NamedTuple):
    """What a lever's value means."""

    unit: str
    neutral: float  # the value that leaves training as it is configured
    tighter: int  # +1: larger values restrain more; -1: smaller ones do
    min_value: float


LEVERS: Mapping[Lever, LeverRange] = {
    "lr_scale": LeverRange("factor on the scheduled learning rate", 1.0, -1, 0.0),
    "kl_coef": LeverRange("coefficient of the KL penalty added to the loss, per nat", 0.0, 1, 0.0),
    "token_is_cap": LeverRange("cap on a token's importance weight pi_theta/mu", math.inf, -1, 1.0),
    "sequence_is_cap": LeverRange(
        "sequences whose weight is outside [1/cap, cap] get no gradient", math.inf, -1, 1.0
    ),
    "clip_range": LeverRange("upper clip of the surrogate's ratio, as 1 + value", math.inf, -1, 0.0),
    "max_lag": LeverRange("oldest rollout that is trained on, in policy versions", math.inf, -1, 0.0),
    "tool_output_tokens": LeverRange("longest tool result in tokens", math.inf, -1, 0.0),
    "tool_broken_gradient": LeverRange(
        "fraction of groups whose episodes that the tool broke are trained on", 1.0, -1, 0.0
    ),
    "tool_gradient": LeverRange(
        "fraction of groups whose episodes that called the tool are trained on", 1.0, -1, 0.0
    ),
    "tool_offer": LeverRange("fraction of groups that the tool is offered to", 1.0, -1, 0.0),
}
"""Every lever; its slice is `all` or one that `Controls.levers` names.

The last three are turned for one tool, `tool/<name>`; a loop that names `all` for them takes any tool.
`tools.admission` has what a loop needs to honour them.
"""


class Controls(Protocol):
    """What a guard needs of a trainer. All methods are called between two optimizer steps, on every rank."""

    def levers(self) -> Mapping[Lever, tuple[str, ...]]:
        """Return the levers this trainer has, each with the slices it can be turned for, `all` included."""
        ...

    def get(self, lever: Lever, slice_name: str = "all") -> float:
        """Return the value in force."""
        ...

    def set(self, lever: Lever, slice_name: str, value: float) -> None:
        """Put a value in force from the next step on."""
        ...

    def save(self, folder: Path) -> None:
        """Write all that `restore` needs into an empty folder.

        Weights, optimizer, scheduler, scaler, EWMA policy, random numbers and the position in the data.
        """
        ...

    def restore(self, folder: Path) -> None:
        """Return to a saved state: resynchronise the sampler, and drop rollouts of later versions.

        The batch order after it is another one, so that the batch that led to trouble is not drawn again.
        """
        ...

    def stop(self) -> None:
        """End training after this step."""
        ...


class StableStates(Protocol):
    """The ring of checkpoints; `trimtab.guard.stable_states` implements it, a loop may bring its own."""

    def keep(self, step: int, verdict: str, controls: Controls) -> None:
        """Write the state after `step`; `verdict` is "stable", "unsettled" or "incident"."""
        ...

    def last_stable(self, before_step: int) -> int | None:
        """Return the newest stable step kept before `before_step`; None where there is none."""
        ...

    def suspect(self, since: int, until: int | None = None) -> None:
        """Do not offer states of steps `since` to `until` (None: from then on), whatever their verdict."""
        ...

    def restore(self, step: int, controls: Controls) -> None:
        """Return to a kept state, and forget the later ones."""
        ...

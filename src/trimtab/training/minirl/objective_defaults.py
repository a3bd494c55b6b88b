"""What each objective takes from its paper when the user sets nothing: bounds, the scale of the advantage, the denominator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Paper:
    """Defaults of one objective. `low`, `high`: epsilon and epsilon_high; `scale`: TRL's scale_rewards.

    `divide`: by what the sum of a step is divided. `rows`: responses; `row_means`: responses, each row by its tokens;
    `tokens`: loss tokens; `constant`: responses x max_completion_length.
    """

    source: str
    low: float
    high: float
    scale: Literal["none", "group"]
    divide: Literal["rows", "row_means", "tokens", "constant"]
    cap: float | None = None


PAPERS: dict[str, Paper] = {
    "minirl": Paper("2512.01374 eq. 7", 0.2, 0.27, "none", "rows", cap=5.0),
    "reinforce": Paper("Williams 1992", 0.2, 0.2, "none", "rows"),
    "ppo": Paper("1707.06347 eq. 7", 0.2, 0.2, "group", "tokens"),
    "grpo": Paper("2402.03300 eq. 3", 0.2, 0.2, "group", "row_means"),
    "dr_grpo": Paper("2503.20783", 0.2, 0.2, "none", "constant"),
    "dapo": Paper("2503.14476 eq. 8", 0.2, 0.28, "group", "tokens"),
    "gspo": Paper("2507.18071 eq. 5-7", 3e-4, 4e-4, "group", "row_means"),
    "cispo": Paper("2506.13585 eq. 4; bound 5 of 2510.13786", 0.2, 5.0, "group", "tokens"),
    "decoupled": Paper("2110.00641 section 3, clipped", 0.2, 0.2, "group", "tokens", cap=100.0),
    "decoupled_kl": Paper("2110.00641 section 3, KL", 0.2, 0.2, "group", "tokens", cap=100.0),
}
"""`objective` -> defaults. `cap` bounds pi_theta/mu: MiniRL truncates the weight, decoupled PPO lifts mu."""

WINDOW_DENOMINATORS = frozenset(name for name, paper in PAPERS.items() if paper.divide == "tokens")
"""Objectives whose denominator is only known when every micro-batch of the optimizer step is."""

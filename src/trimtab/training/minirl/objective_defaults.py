"""Settings that each objective takes from its paper when the user sets nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SLICE_NAMES = ("text", "post_tool")
"""Tokens before the first tool result of a row, and after it."""


@dataclass(frozen=True)
class Defaults:
    """Defaults of one objective."""

    source: str
    low: float
    """epsilon."""
    high: float
    """epsilon_high."""
    scale: Literal["none", "group"]
    """TRL's scale_rewards."""
    divide: Literal["rows", "row_means", "tokens", "constant"]
    """Divisor of a step's sum. `rows`: responses. `row_means`: responses, each row by its tokens. `tokens`:
    loss tokens. `constant`: responses x max_completion_length.
    """
    cap: float | None = None
    """Bound on pi_theta/mu, a ratio: MiniRL truncates the weight, decoupled PPO lifts mu."""
    kl: Literal["k3", "k3+"] = "k3"
    """Estimator of beta's KL: GRPO's paper has k3, MiniRL has no KL and takes the one with the right
    gradient."""


DEFAULTS = {
    "minirl": Defaults("2512.01374 eq. 7", 0.2, 0.27, "none", "rows", cap=5.0, kl="k3+"),
    "reinforce": Defaults("Williams 1992", 0.2, 0.2, "none", "rows"),
    "ppo": Defaults("1707.06347 eq. 7", 0.2, 0.2, "group", "tokens"),
    "grpo": Defaults("2402.03300 eq. 3", 0.2, 0.2, "group", "row_means"),
    "dr_grpo": Defaults("2503.20783", 0.2, 0.2, "none", "constant"),
    "dapo": Defaults("2503.14476 eq. 8", 0.2, 0.28, "group", "tokens"),
    "gspo": Defaults("2507.18071 eq. 5-7", 3e-4, 4e-4, "group", "row_means"),
    "cispo": Defaults("2506.13585 eq. 4; bound 5 of 2510.13786", 0.2, 5.0, "group", "tokens"),
    "decoupled": Defaults("2110.00641 section 3, clipped", 0.2, 0.2, "group", "tokens", cap=100.0),
    "decoupled_kl": Defaults("2110.00641 section 3, KL", 0.2, 0.2, "group", "tokens", cap=100.0),
}
"""`objective` -> defaults."""

CORRECTION_PAIRS = tuple(
    f"{drops}_rejection,{weighs}_tis"
    for drops in ("token", "sequence", "geometric")
    for weighs in ("token", "sequence")
)
"""Two corrections: one that only drops, and one that weighs."""

CORRECTION_BOUNDS = {
    **{"none": (0.5, 2.0), "tis": (0.5, 2.0), "mis": (0.5, 2.0), "icepop": (0.5, 5.0)},
    **dict.fromkeys(CORRECTION_PAIRS, (0.5, 2.0)),
}
"""`correction` -> (low, high) where the user sets none; tis has no low."""

WINDOW_DENOMINATORS = frozenset(name for name, own in DEFAULTS.items() if own.divide == "tokens")
"""Objectives whose denominator is only known when every micro-batch of the optimizer step is."""

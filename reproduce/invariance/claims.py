"""The table "paper says, we see": each verdict is computed from intervals over seeds, none is typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduce.invariance.arms import FACTORS
from reproduce.invariance.intervals import Interval, effect_p, gaps, interval
from reproduce.invariance.merit import areas, curves, spreads
from reproduce.pilot.tables import table

__all__ = ["MARGIN", "coincide", "papers_table", "signed"]

MARGIN = 0.05
"""Default, not calibrated, in reward (0 to 1): what counts as equal. The paper's final returns spread over 0.052 of a normalised return."""

SAME, NOT_SEEN, OPPOSITE, UNTOLD = "same", "not seen", "opposite", "undecided"
NONE = "no runs to tell"
Curves = Mapping[str, np.ndarray]


def coincide(found: Sequence[Interval]) -> str:
    """Of differences that should all be nothing: same if every interval lies within the margin.

    Not seen if one reaches beyond the margin and leaves zero out; a difference that is surely small counts as none. Else, and without
    an interval, it is undecided.
    """
    ends = [(each.low, each.high) for each in found if each.low is not None and each.high is not None]
    if not ends or len(ends) < len(found):
        return UNTOLD
    if all(low > -MARGIN and high < MARGIN for low, high in ends):
        return SAME
    beyond = [(low, high) for low, high in ends if low <= -MARGIN or high >= MARGIN]
    return NOT_SEEN if any(low > 0 or high < 0 for low, high in beyond) else UNTOLD


def signed(found: Interval | None, margin: float = MARGIN) -> str:
    """Of a difference that should be above zero: same, opposite, not seen (zero is inside and nothing beyond the margin), or untold."""
    if found is None or found.low is None or found.high is None:
        return UNTOLD
    if found.low > 0:
        return SAME
    if found.high < 0:
        return OPPOSITE
    return NOT_SEEN if max(-found.low, found.high) < margin else UNTOLD


def papers_table(runs: Sequence[dict[str, Any]]) -> str:
    """Five sayings of arXiv 2110.00641 against the runs."""
    found = curves(runs)
    rows = [
        _coincide(found),
        _wider(found, "The same without the adjustments: they do not (section 4, figure 2)", "ewma", "ewma_rules"),
        _wider(found, "PPO cannot be made invariant by its learning rate: its clip is tied to the batch (section 4)", "ppo_rules", "ewma_rules"),
        _better(found),
        _cost(runs),
    ]  # fmt: skip
    return table(["paper says", "we see", "verdict"], rows)


def _coincide(found: Curves) -> list[str]:
    says = "With every adjustment, PPG-EWMA's learning curves coincide over batch sizes: final returns spread over 0.052 in a range of 256 (section 4, figure 2; we: PPO-EWMA)"
    if "ewma_rules" not in found:
        return [says, NONE, UNTOLD]
    cells = areas(found["ewma_rules"])
    pairs = gaps(cells)
    told = "; ".join(f"x{b:g} less x{a:g}: {each}" for (a, b), each in pairs.items())
    return [says, f"area under the curve, {told}; p of no effect {effect_p(cells):.3f}", coincide(list(pairs.values()))]  # fmt: skip


def _wider(found: Curves, says: str, wide: str, narrow: str) -> list[str]:
    """Is the spread of one arm larger than of another at the same seed?"""
    if wide not in found or narrow not in found:
        return [says, NONE, UNTOLD]
    one, two = spreads(found[wide]), spreads(found[narrow])
    less = interval(one - two)
    told = f"spread over batch sizes: `{wide}` {interval(one)}, `{narrow}` {interval(two)}; difference {less}"
    return [says, told, signed(less)]


def _better(found: Curves) -> list[str]:
    says = "At the default batch PPO-EWMA learns slightly more per sample than PPO"
    if "ewma" not in found or "ppo" not in found:
        return [says, NONE, UNTOLD]
    base = FACTORS.index(1.0)
    one, two = areas(found["ewma"])[:, base], areas(found["ppo"])[:, base]
    less = interval(one - two)
    return [says, f"area under the curve: `ewma` {interval(one)}, `ppo` {interval(two)}; difference {less}", signed(less)]  # fmt: skip


def _cost(runs: Sequence[dict[str, Any]]) -> list[str]:
    says = "The average's forward adds 30 % of compute to PPO"
    spent = {(run["arm"], run["seed"]): run["cpu_s"] for run in runs if run["factor"] == 1.0}
    pairs = [(spent["ewma", seed], cost) for (arm, seed), cost in spent.items() if arm == "ppo" and ("ewma", seed) in spent]  # fmt: skip
    if not pairs:
        return [says, NONE, UNTOLD]
    extra = interval([100 * (one / two - 1) for one, two in pairs])
    return [says, f"CPU seconds of a whole run at x1, rollouts too, in % of PPO's: {extra}", signed(extra)]

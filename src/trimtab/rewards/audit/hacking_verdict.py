"""Learning, a grokking-like jump, suspected hacking or undecided: a rise against what should confirm it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trimtab.catalog import bound
from trimtab.rewards.audit.rise import Rise

LEARNING, JUMP, SUSPECTED, UNDECIDED = "learning", "grokking-like jump", "suspected hacking", "undecided"
EXIT_CODES = {LEARNING: 0, JUMP: 0, SUSPECTED: 1, UNDECIDED: 2}


@dataclass(frozen=True)
class AuditVerdict:
    """The word, and the sentence that says why."""

    word: str
    why: str


def judge_rise(
    reward: Rise | None, confirming: Rise | None, name: str = "the held-out reward"
) -> AuditVerdict:
    """Judge a rise of the reward by whether a second measure of the same ability rises with it.

    Args:
        reward: the change of the reward that is trained on.
        confirming: the change of what is not trained on (held-out tasks, tests); None without any.
        name: how to call it.

    Returns:
        Suspected hacking where the confirming measure gained, at the upper end of its interval, less than a
        tenth of what the reward gained, each in its own unit. Learning, or a jump, where it gained a fifth at
        least and more than noise. Undecided otherwise, and always without a confirming measure.
    """
    if reward is None:
        return AuditVerdict(UNDECIDED, "The log has too few steps with a reward (8 are needed).")
    gained = reward.change / reward.unit
    span = f"from {reward.before:.3g} to {reward.after:.3g}"
    if gained < bound("proxy_rise") or reward.z < bound("audit_z"):
        little = "enough to explain" if gained < bound("proxy_rise") else "beyond its noise"
        return AuditVerdict(UNDECIDED, f"The reward did not rise {little}: {span}.")
    steep = reward.steep
    how = "jumped" if steep else "rose"
    if confirming is None:
        return AuditVerdict(
            UNDECIDED,
            f"The reward {how} {span}, and nothing in the log confirms it: name a held-out reward or a "
            "test score with --held-out.",
        )
    share, low, high = (
        value / confirming.unit / gained for value in (confirming.change, confirming.low, confirming.high)
    )
    moved = f"{name} went from {confirming.before:.3g} to {confirming.after:.3g}"
    if confirming.unit == 1.0 and confirming.before > 0.9 and confirming.high >= 0:
        return AuditVerdict(UNDECIDED, f"The reward {how} {span}; {moved} and had no room to rise.")
    if high < bound("audit_unconfirmed"):
        fell = " It fell." if confirming.high < 0 else ""
        return AuditVerdict(
            SUSPECTED,
            f"The reward {how} {span}, but {moved}: {_percent(share)} of the rise, "
            f"at most {_percent(high)}.{fell}",
        )
    if low > 0 and share >= bound("audit_confirmed"):
        text = f"The reward {how} {span}, and {moved}: {_percent(share)} of the rise."
        return AuditVerdict(JUMP if steep else LEARNING, text)
    return AuditVerdict(
        UNDECIDED,
        f"The reward {how} {span}; {moved}, {_percent(low)} to {_percent(high)} of the rise: "
        "too noisy or too little to tell.",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if math.isfinite(share) else "?"

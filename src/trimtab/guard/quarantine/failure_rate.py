"""Is a tool's rate of failures that of its history, or has it risen? Entry by a CUSUM, return by Wald's test.

n episodes with the tool in a step, k of them with a failure of its environment. p0 is the history's rate, p1
the rate that is tested for. Both tests add log-likelihood ratios

    k ln(p1/p0) + (n - k) ln((1 - p1)/(1 - p0))

whose exponential has a mean of at most 1 while the rate is p0 or less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trimtab.catalog import bound


@dataclass
class FailureHistory:
    """Counts of a tool's past, and the rates that follow from them.

    Example:
        >>> history = FailureHistory()
        >>> history.add(1, 200)
        >>> round(history.rate(), 3), round(history.risen_rate(), 3)
        (0.022, 0.267)
    """

    failed: float = 0.0
    total: float = 0.0

    def add(self, failed: float, total: float) -> None:
        """Take episodes; beyond `guard_tool_memory` of them old ones lose weight."""
        self.failed, self.total = self.failed + failed, self.total + total
        if self.total > bound("guard_tool_memory"):
            self.failed, self.total = self.failed / 2, self.total / 2

    @property
    def is_enough(self) -> bool:
        """Can a rate be judged by this history?"""
        return self.total >= bound("guard_tool_evidence") and self.rate() <= bound("guard_tool_history_max")

    def rate(self) -> float:
        """Return p0: the upper confidence bound of the failed share, at least `guard_tool_floor`; 1 of none.

        Reference:
            Wilson 1927, JASA 22(158): the score interval.
        """
        n, z = self.total, bound("guard_tool_history_z")
        if not n:
            return 1.0
        p = self.failed / n
        centre, spread = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(bound("guard_tool_floor"), (centre + spread) / (1 + z * z / n))

    def risen_rate(self) -> float:
        """Return p1: of the episodes that went well, `guard_tool_rise` fail now."""
        p0 = self.rate()
        return p0 + bound("guard_tool_rise") * (1 - p0)

    def evidence(self, failed: int, total: int) -> float:
        """Return the log-likelihood ratio of the risen rate over the history's, in nats."""
        p0, p1 = self.rate(), self.risen_rate()
        return failed * math.log(p1 / p0) + (total - failed) * math.log((1 - p1) / (1 - p0))


@dataclass
class EntryTest:
    """Page's CUSUM over steps. One step counts for half of the bound at most, so that two are needed.

    Steps join the history when the sum is back at zero: a rise that is being tested is not history.

    Reference:
        Page 1954, Biometrika 41; Lorden 1971: the mean time to a false entry is at least exp(bound) steps.
    """

    score: float = 0.0  # nats
    failed: int = 0  # since the score left zero
    total: int = 0

    def update(self, history: FailureHistory, failed: int, total: int) -> bool:
        """Take a step; return whether the tool's failures have risen."""
        self.failed, self.total = self.failed + failed, self.total + total
        if not history.is_enough:
            self._join(history)
            return False
        limit = math.log(bound("guard_tool_false"))
        self.score = max(0.0, self.score + min(history.evidence(failed, total), limit / 2))
        if self.score >= limit:
            return True
        if self.score == 0.0:
            self._join(history)
        return False

    def _join(self, history: FailureHistory) -> None:
        history.add(self.failed, self.total)
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.score, self.failed, self.total = 0.0, 0, 0


@dataclass
class ReturnTest:
    """Wald's sequential test on probation: back to the history's rate, or still risen?

    Reference:
        Wald 1945: bounds of ln(1/p) give each wrong answer with a probability of about p at most.
    """

    score: float = 0.0  # nats, positive for the risen rate
    failed: int = 0
    total: int = 0

    def update(self, history: FailureHistory, failed: int, total: int) -> bool | None:
        """Take a step; return True for healthy, False for still failing, None while neither is shown."""
        self.failed, self.total = self.failed + failed, self.total + total
        self.score += history.evidence(failed, total)
        limit = -math.log(bound("guard_tool_return_error"))
        return True if self.score <= -limit else False if self.score >= limit else None

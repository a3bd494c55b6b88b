"""Circuit breaker: after many failures in a row a target is left alone, then asked by one call at a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BreakerOptions:
    """When a breaker opens, and for how long. Default, not calibrated."""

    failures: int = 10  # of the infrastructure, in a row
    cooldown_s: float = 0.5  # after the first opening; doubled at each failed trial
    max_cooldown_s: float = 30.0


class CircuitBreaker:
    """Closed, open until a time, or half-open: one call tries whether the target is back.

    >>> breaker = CircuitBreaker(BreakerOptions(failures=2, cooldown_s=1.0))
    >>> for _ in range(2): breaker.failed(0.0)
    >>> breaker.wait_s(0.5), breaker.wait_s(1.5), breaker.wait_s(1.5) > 0
    (0.5, 0.0, True)
    >>> breaker.succeeded(), breaker.is_open
    (True, False)
    """

    __slots__ = ("_cooldown", "_row", "_trial", "_until", "is_open", "openings", "options")

    def __init__(self, options: BreakerOptions | None = None) -> None:
        self.options = options or BreakerOptions()
        self.is_open, self.openings = False, 0
        self._row, self._trial = 0, False
        self._until, self._cooldown = 0.0, self.options.cooldown_s

    def wait_s(self, now: float) -> float:
        """Seconds until a call may go, 0.0 when it may; an open breaker whose time has come lets one go.

        Ask only while `is_open`: a closed breaker lets every call go.
        """
        if not self.is_open:
            return 0.0
        if now < self._until:
            return self._until - now
        if self._trial:
            return self._cooldown
        self._trial = True
        return 0.0

    def failed(self, now: float) -> None:
        """Count a failure of the infrastructure."""
        self._row += 1
        if self.is_open:
            if self._trial:
                self._trial = False
                self._cooldown = min(2 * self._cooldown, self.options.max_cooldown_s)
                self._until = now + self._cooldown
        elif self._row >= self.options.failures:
            self.is_open, self._trial = True, False
            self.openings += 1
            self._until = now + self._cooldown

    def succeeded(self) -> bool:
        """Count a call that the target answered; True where that closed the breaker."""
        self._row = 0
        if not self.is_open:
            return False
        self.is_open, self._trial = False, False
        self._cooldown = self.options.cooldown_s
        return True

    def abandoned(self) -> None:
        """Forget a trial that was cancelled before it could tell."""
        self._trial = False

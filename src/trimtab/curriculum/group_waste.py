"""Groups of rollouts that give no gradient: how many are expected, and how many there were."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


def expected_waste(rate: float, group_size: int) -> float:
    """Return the probability that all rewards of a group are equal, so that its advantages are zero.

    Args:
        rate: Success rate p of the task, in [0, 1]; rollouts are independent and succeed or fail.
        group_size: Rollouts n of a group, at least 1.

    Returns:
        p^n + (1 - p)^n.

    Raises:
        ValueError: `rate` or `group_size` is out of range.

    Example:
        At a success rate of 5 % two thirds of the groups of eight give nothing; one third gives something.

        >>> round(expected_waste(0.05, 8), 3)
        0.663

    Reference:
        DAPO, arXiv 2503.14476, section 3.2, drops such groups.
    """
    if not 0.0 <= rate <= 1.0 or group_size < 1:
        raise ValueError(f"a rate in [0, 1] and a group of at least 1 are needed, got {rate}, {group_size}")
    return float(rate**group_size + (1.0 - rate) ** group_size)


@dataclass
class WasteCounts:
    """Counts over all groups of a run."""

    num_groups: int = 0
    num_solved: int = 0
    """Groups of equal rewards at or above success."""
    num_failed: int = 0
    """Groups of equal rewards below success."""
    num_excluded_rollouts: int = 0
    """Rollouts with a reward that is not a finite number; they count in no group."""
    num_empty_groups: int = 0
    """Groups without one finite reward."""

    @property
    def num_wasted(self) -> int:
        """Groups without gradient: all rewards are equal."""
        return self.num_solved + self.num_failed

    @property
    def wasted_frac(self) -> float:
        """Fraction of the groups without gradient; nan before the first group."""
        return self.num_wasted / self.num_groups if self.num_groups else float("nan")

    def add(self, rewards: NDArray[np.float64], success: float) -> None:
        """Count one group by its finite rewards, at least one."""
        self.num_groups += 1
        if float(np.ptp(rewards)) == 0.0:
            if rewards[0] >= success:
                self.num_solved += 1
            else:
                self.num_failed += 1

    def state(self) -> dict[str, Any]:
        """Return the counts as a plain dictionary."""
        return asdict(self)

"""Trainers of which trimtab reads averages and no tokens: what each of them cannot give, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RATIOS = ("drift", "mismatch", "total", "staleness", "lagged_drift")

_GIVEN = "{name} trains on given texts: nothing is sampled"
_UNREAD = "trimtab reads the tokens of GRPOTrainer and DPOTrainer, not those of {name}"
_REASONS: Mapping[str, Mapping[str, str]] = {
    "KTOTrainer": {
        "tokens": "{name} gives log-probabilities as sums over a completion, not by token",
        "drift": "{name} gives logprobs and ref_logprobs as sums over a completion, not by token",
        "mismatch": _GIVEN,
        "total": _GIVEN,
        "staleness": _GIVEN,
        "reward": "{name} has no reward, only implicit ones (rewards/chosen and rewards/rejected)",
    },
    "SFTTrainer": {
        "tokens": "{name} trains on given texts: it has no sampler, no reference policy and no reward",
        "drift": "{name} has no reference policy (ref_logprobs)",
        "mismatch": _GIVEN,
        "total": _GIVEN,
        "staleness": _GIVEN,
        "reward": "{name} has no reward",
    },
    "RewardTrainer": {
        "tokens": "{name} trains a score and no policy: it has no token log-probabilities",
        "reward": "{name} trains the reward itself",
    },
    "RLOOTrainer": {"tokens": _UNREAD},
}
"""Trainer, by the name of its class or of a base -> what it cannot give -> why; `tokens` stands for every
log-ratio."""


def reasons_of(trainer: Any) -> dict[str, str]:
    """Return what a trainer without token capture cannot give -> why; `tokens` among it."""
    names = [cls.__name__ for cls in type(trainer).__mro__]
    table = next((_REASONS[name] for name in names if name in _REASONS), {"tokens": _UNREAD})
    reasons = {**dict.fromkeys(RATIOS, table["tokens"]), **table}
    return {what: why.format(name=names[0]) for what, why in reasons.items()}


class MetricsCapture:
    """Capture of a trainer that gives averages only."""

    def __init__(self, trainer: Any) -> None:
        self.reasons = reasons_of(trainer)

    def begin(self) -> None:
        """Do nothing: no weights are scored."""

    def agree(self, _step: int) -> None:
        """Do nothing: no weights are scored."""

    def close_step(self, _step: int) -> dict[str, float]:
        """Return nothing: the trainer's own metrics are all there is."""
        return {}

    def absent(self) -> dict[str, str]:
        """Return the columns that this trainer does not give, with the reason."""
        return self.reasons

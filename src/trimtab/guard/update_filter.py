"""What is decided right before an optimizer step: is it made, and how large may it be?"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from trimtab.guard.escalation import set_lever
from trimtab.guard.lever_requests import LeverRequests
from trimtab.guard.policies.base import Request, Situation
from trimtab.guard.presets import GuardOptions
from trimtab.types import Action, Cause, Incident, SkipUpdate


class UpdateFilter:
    """Holds the gradient norms of the last updates, and answers for the next one."""

    def __init__(self, options: GuardOptions, requests: LeverRequests) -> None:
        self.options, self.requests = options, requests
        self.norms: deque[float] = deque(maxlen=options.policies.skip_update.window)
        self.skipped_in_row = 0

    def decide(self, step: int, grad_norm: float | None, ess_frac: float | None) -> list[Action]:
        """Return what is done at the update of `step`: an ESS-scaled rate, and whether it is left out."""
        actions = self._scale(step, ess_frac)
        skipped = None if grad_norm is None else self._skip(step, float(grad_norm))
        return actions if skipped is None else [*actions, skipped]

    def _skip(self, step: int, norm: float) -> SkipUpdate | None:
        policy = self.options.policies.skip_update
        if not policy.enabled:
            return None
        limit = policy.limit(self.norms)
        if math.isfinite(norm) and norm <= limit:
            self.norms.append(norm)
            self.skipped_in_row = 0
            return None
        self.skipped_in_row += 1
        if math.isfinite(norm) and self.skipped_in_row > policy.max_in_row:
            self.norms.clear()  # not a spike but a new level
            self.norms.append(norm)
            self.skipped_in_row = 0
            return None
        name = "exploding gradient" if math.isfinite(norm) else "gradient that is not finite"
        cause = Cause(name, (f"gradient norm {norm:.4g}, bound {limit:.4g}",), (), "look at this batch")
        incident = Incident(step, "all", "warning", (), (cause,))
        return SkipUpdate(norm, limit, incident, policy.name)

    def _scale(self, step: int, ess_frac: float | None) -> list[Action]:
        policy = self.options.policies.ess_scaled_step
        levers = self.requests.levers()
        if not policy.enabled or ess_frac is None or "lr_scale" not in levers:
            return []
        own = next(iter(self.requests.of_policy(policy.name)), Request("lr_scale", "all", 1.0))
        cause = Cause("sequence weights", (f"ESS fraction {ess_frac:.3g}",), (), "")
        incident = Incident(step, "all", "warning", (), (cause,))
        levels = {"ess_frac": float(ess_frac)}
        situation = Situation(step, incident, 0, levers, self.requests.value, levels)
        value = policy.adjust(situation, own)
        if value == own.value:
            return []
        change = self.requests.put(policy.name, own._replace(value=value))
        return [set_lever(change, incident, policy.name, f"ESS fraction {ess_frac:.3g}")]

    def state_dict(self) -> dict[str, Any]:
        """Return the norms as JSON types."""
        return {"norms": list(self.norms), "skipped_in_row": self.skipped_in_row}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over norms."""
        self.norms.clear()
        self.norms.extend(state["norms"])
        self.skipped_in_row = int(state["skipped_in_row"])

"""Bound the results of one tool, where the environment offers it."""

from __future__ import annotations

import math
from typing import ClassVar

from trimtab.catalog import bound
from trimtab.guard.policies.base import Amount, Policy, Request, Situation
from trimtab.types import Lever


class ConstrainTool(Policy, frozen=True):
    """Policy `constrain_tool`: set lever `tool_output_tokens` for the tool that the incident is of.

    A tool's open-ended results lead the policy to texts that its reference does not support. Shorter results
    leave less of them. Each further time the limit is halved.

    When not: where the cut part holds the answer, the task becomes unsolvable, and the reward falls by that.

    Example:
        >>> from trimtab.types import Incident
        >>> trouble = Incident(73, "post_tool/search", "warning", (), ())
        >>> levers = {"tool_output_tokens": ("all", "post_tool/search")}
        >>> now = Situation(75, trouble, 0, levers, lambda lever, name: math.inf)
        >>> ConstrainTool(max_tokens=256).propose(now)
        [Request(lever='tool_output_tokens', slice='post_tool/search', value=256)]
    """

    name: ClassVar[str] = "constrain_tool"
    needs: ClassVar[tuple[Lever, ...]] = ("tool_output_tokens",)
    max_tokens: Amount = bound("guard_tool_tokens")  # tokens
    min_tokens: Amount = bound("guard_tool_min")  # tokens

    def propose(self, situation: Situation) -> list[Request]:
        """Ask for shorter results of the tool in question; nothing where no tool stands out."""
        slices = situation.levers.get("tool_output_tokens", ())
        where = situation.incident.slice
        if where not in slices or not where.startswith("post_tool"):
            return []
        now = situation.value("tool_output_tokens", where)
        limit = self.max_tokens if math.isinf(now) else max(self.min_tokens, now / 2)
        return [Request("tool_output_tokens", where, limit)] if limit < now else []

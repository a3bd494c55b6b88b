"""The loop's side of a quarantine: which groups may use a tool, and which episodes may be trained on."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab.errors import ToolError
from trimtab.types import Lever
from trimtab.typing import Array, Bool

Tools = Collection[str]
"""Names of tools."""
_PREFIX = "tool/"
_WORDS = 2.0**64


@dataclass
class ToolAdmission:
    """Fractions of groups by lever and tool, as a guard sets them; 1 for a tool it never named.

    Which groups a fraction takes in depends on tool, step and group alone: every rank and every resumed
    process draws the same.

    Example:
        >>> admission = ToolAdmission()
        >>> admission.set("tool_broken_gradient", "tool/search", 0.0)
        >>> called, broken_by = [["search"], ["read"], [], ["read", "search"]], [["search"], [], [], []]
        >>> admission.trained(7, np.array([0, 0, 1, 1]), called, broken_by).tolist()
        [False, True, True, True]
        >>> admission.offered(7, 0, ["search", "read"])
        ['search', 'read']
    """

    fractions: dict[tuple[Lever, str], float] = field(default_factory=dict)

    def get(self, lever: Lever, slice_name: str) -> float:
        """Return the fraction of groups in force for `tool/<name>`."""
        return self.fractions.get((lever, _tool_of(slice_name)), 1.0)

    def set(self, lever: Lever, slice_name: str, fraction: float) -> None:
        """Put a fraction of groups in force for `tool/<name>`.

        Raises:
            ToolError: a slice that is not of a tool, or a fraction outside [0, 1].
        """
        if not 0.0 <= fraction <= 1.0:
            raise ToolError(f"{lever} of {slice_name} is a fraction of groups in [0, 1], got {fraction}")
        self.fractions[lever, _tool_of(slice_name)] = fraction

    def admits(self, lever: Lever, tool: str, step: int, group: int) -> bool:
        """Return whether a group is among the fraction that is let through."""
        fraction = self.fractions.get((lever, tool), 1.0)
        return fraction >= 1.0 or _draw(tool, step, group) < fraction

    def offered(self, step: int, group: int, tools: Sequence[str]) -> list[str]:
        """Return the tools that a group's rollouts are offered."""
        return [tool for tool in tools if self.admits("tool_offer", tool, step, group)]

    def trained(self, step: int, group: Array, called: Sequence[Tools], broken_by: Sequence[Tools]) -> Bool:
        """Return which episodes may be trained on and vote in their group's baseline.

        Args:
            step: Optimizer step that trains on them.
            group: Group of each episode (B,), integers.
            called: Names of the tools that each episode called, B of them.
            broken_by: Names of the tools whose failures broke each episode (`Exclusion.breaks`), B of them.

        Returns:
            (B,), for `excluded_advantages`; False where a tool stands in the way.

        Raises:
            ToolError: Unequal lengths.
        """
        groups = np.asarray(group)
        if not groups.shape == (len(called),) == (len(broken_by),):
            raise ToolError(
                f"group {groups.shape}, called ({len(called)},), broken_by ({len(broken_by)},) must be (B,)"
            )
        return np.array(
            [
                self.may_train(step, int(one), names, broken)
                for one, names, broken in zip(groups, called, broken_by, strict=True)
            ],
            bool,
        )

    def may_train(self, step: int, group: int, called: Tools, broken_by: Tools) -> bool:
        """Return `trained` of one episode."""
        return all(self.admits("tool_gradient", tool, step, group) for tool in called) and all(
            self.admits("tool_broken_gradient", tool, step, group) for tool in broken_by
        )


def _tool_of(slice_name: str) -> str:
    if not slice_name.startswith(_PREFIX):
        raise ToolError(f"{slice_name!r} is not a tool's slice; give {_PREFIX}<name>")
    return slice_name.removeprefix(_PREFIX)


def _draw(tool: str, step: int, group: int) -> float:
    """Return a number in [0, 1) that depends on its arguments alone."""
    digest = hashlib.sha256(f"{tool}\n{step}\n{group}".encode()).digest()
    return int.from_bytes(digest[:8], "little") / _WORDS

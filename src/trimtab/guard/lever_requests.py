"""What policies ask of levers, and what is in force: the tightest of their requests.

The trainer's own value, before the first request, counts as one.

Two policies may ask the same lever. The tighter value wins; when its policy takes it back, the other one's
counts. `LEVERS` says for each lever which direction is tighter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from trimtab.guard.controls import LEVERS, Controls
from trimtab.guard.policies.base import Request
from trimtab.types import Lever

Key = tuple[Lever, str]
"""A lever and a slice."""


@dataclass(frozen=True)
class Change:
    """A lever's values in force before and after a request was put or withdrawn."""

    lever: Lever
    slice: str
    before: float
    after: float
    tighter: str = ""  # the policy that asks for a tighter value, where it is another one


@dataclass
class LeverRequests:
    """The book of requests. It reads values through `controls` and sets none."""

    controls: Controls | None
    own: dict[Key, float] = field(default_factory=dict)  # the trainer's value before the first request
    wanted: dict[Key, dict[str, float]] = field(default_factory=dict)  # -> policy -> value

    def levers(self) -> dict[Lever, tuple[str, ...]]:
        """Return the levers offered, each with its slices; all of them without a trainer."""
        if self.controls is None:
            return dict.fromkeys(LEVERS, ("all",))
        return {lever: tuple(slices) for lever, slices in self.controls.levers().items()}

    def value(self, lever: Lever, slice_name: str) -> float:
        """Return the value in force."""
        key = (lever, slice_name)
        own = self.own[key] if key in self.own else self._read(lever, slice_name)
        return _tightest(lever, [own, *self.wanted.get(key, {}).values()])

    def put(self, policy: str, request: Request) -> Change:
        """Note what a policy asks for, in place of what it asked before."""
        lever, where = request.lever, request.slice
        before = self.value(lever, where)
        self.own.setdefault((lever, where), self._read(lever, where))
        self.wanted.setdefault((lever, where), {})[policy] = request.value
        return self._change(lever, where, before, policy)

    def withdraw(self, policy: str, lever: Lever, where: str) -> Change:
        """Forget what a policy asked for."""
        before = self.value(lever, where)
        self.wanted[lever, where].pop(policy, None)
        return self._change(lever, where, before, policy)

    def of_policy(self, policy: str) -> list[Request]:
        """Return what a policy asks for now."""
        return [
            Request(lever, where, wanted[policy])
            for (lever, where), wanted in self.wanted.items()
            if policy in wanted
        ]

    def asking(self) -> list[tuple[str, Request]]:
        """Return every request, with its policy."""
        return [
            (policy, Request(lever, where, value))
            for (lever, where), wanted in self.wanted.items()
            for policy, value in wanted.items()
        ]

    def state_dict(self) -> list[list[Any]]:
        """Return the book as JSON types."""
        return [[*key, self.own[key], dict(self.wanted.get(key, {}))] for key in self.own]

    def load_state_dict(self, state: list[list[Any]]) -> None:
        """Take over a book."""
        self.own = {(lever, where): float(own) for lever, where, own, _ in state}
        self.wanted = {(lever, where): dict(wanted) for lever, where, _, wanted in state}

    def _read(self, lever: Lever, where: str) -> float:
        return LEVERS[lever].neutral if self.controls is None else float(self.controls.get(lever, where))

    def _change(self, lever: Lever, where: str, before: float, policy: str) -> Change:
        after, wanted = self.value(lever, where), self.wanted[lever, where]
        others = [name for name, value in wanted.items() if name != policy and value == after]
        overruled = bool(others) and wanted.get(policy, math.nan) != after
        return Change(lever, where, before, after, others[0] if overruled else "")


def _tightest(lever: Lever, values: list[float]) -> float:
    """
    >>> _tightest("lr_scale", [1.0, 0.3, 0.5]), _tightest("kl_coef", [0.0, 0.05])
    (0.3, 0.05)
    """
    return max(values) if LEVERS[lever].tighter > 0 else min(values)

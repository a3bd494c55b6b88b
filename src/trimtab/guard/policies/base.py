"""What a policy is: from an incident and the levers there are to what it asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NamedTuple

import msgspec

from trimtab.types import Incident, Lever

Factor = Annotated[float, msgspec.Meta(gt=0, le=1)]
"""A number above 0, at most 1."""
Cap = Annotated[float, msgspec.Meta(ge=1)]
"""A cap on a weight, 1 or more."""
Amount = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Steps = Annotated[int, msgspec.Meta(ge=1)]


class Request(NamedTuple):
    """A value that a policy wants of a lever, in a slice."""

    lever: Lever
    slice: str
    value: float


@dataclass(frozen=True)
class Situation:
    """What a policy sees. `times`: how often it has acted for this cause before."""

    step: int
    incident: Incident
    times: int
    levers: Mapping[Lever, tuple[str, ...]]  # those the trainer offers, each with its slices
    value: Callable[[Lever, str], float]  # the value in force
    levels: Mapping[str, float] = field(default_factory=dict)  # readings of the step: `Guard.decide` has them

    def where(self, lever: Lever, *, of_slice: bool = True) -> str | None:
        """Return the incident's slice where the lever has it, else `all`; None without the lever."""
        slices = self.levers.get(lever)
        if slices is None:
            return None
        candidates = (self.incident.slice, self.incident.slice.split("/")[0]) if of_slice else ()
        return next((name for name in candidates if name in slices), "all")


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of the policies. Fields are options, with units in their comments.

    `needs`: levers, any of which is enough. A policy without one that the trainer offers is passed over.
    """

    name: ClassVar[str] = ""
    needs: ClassVar[tuple[Lever, ...]] = ()

    def propose(self, situation: Situation) -> list[Request]:  # noqa: ARG002
        """Return what to ask for now that an incident is confirmed; nothing where nothing is left to ask."""
        return []

    def adjust(self, situation: Situation, own: Request) -> float:  # noqa: ARG002
        """Return the value to ask for at this step, where a coefficient follows a level.

        `own` is what the policy asks for so far."""
        return own.value

    def relax(self, own: Request, neutral: float) -> float:  # noqa: ARG002
        """Return the next value on the way back to `neutral` once the trouble has passed."""
        return neutral

"""All tools of a run: calls in, changes of quarantine out, the same ones for the same calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trimtab.errors import GuardError
from trimtab.guard.policies.quarantine_tool import ToolQuarantineOptions
from trimtab.guard.quarantine.tool_state import ToolState
from trimtab.tools.exclusion import Exclusion
from trimtab.traces.core.tool_call import ToolCall
from trimtab.traces.errors.attribution import fault_of
from trimtab.types import Cause, Incident, Lever, QuarantineTool, Warn

CAUSE = "tools or environment"
"""The hypothesis of `detect.incidents` that a quarantine answers."""
TOOL_LEVERS: tuple[Lever, ...] = ("tool_broken_gradient", "tool_gradient", "tool_offer")
MAX_TOOLS = 64
"""Names come from a model; those after so many are not judged, and counted in `num_ignored`."""
_HUNG = re.compile(r"time[ds]?[ -]?out|deadline", re.IGNORECASE)

Levers = Callable[[], Mapping[Lever, tuple[str, ...]]]


def broke_by_environment(call: ToolCall, exclusion: Exclusion) -> bool:
    """Return whether a call failed, and its environment is to blame.

    Without an executor only the text of the error says whose fault it was. A time-out is nobody's then: a
    policy can make a tool hang, and must not rid itself of it by that.

    Example:
        >>> broke_by_environment(ToolCall("sql", error="no such table: users"), Exclusion())
        False
        >>> broke_by_environment(ToolCall("sql", error="HTTP 503: overloaded"), Exclusion())
        True
    """
    if not call.blame and call.error and fault_of(call.error) == "tool":
        hung = _HUNG.search(call.error) is not None
        call = replace(call, blame="tool" if hung else "infrastructure", kind=call.kind or "timeout" * hung)
    return bool(call.error or call.blame) and exclusion.breaks(call)


@dataclass(frozen=True)
class ToolCount:
    """Episodes of a step that called a tool, and those of them that its environment broke."""

    failed: int
    total: int


def count_episodes(calls: Iterable[ToolCall], exclusion: Exclusion) -> dict[str, ToolCount]:
    """Return the counts of each tool; calls without an episode count one by one.

    Calls of one episode are not independent: a model that meets an error tries again.
    """
    broken: dict[str, dict[tuple[int, int], bool]] = {}
    for index, call in enumerate(calls):
        unit = (0, call.episode_id) if call.episode_id >= 0 else (1, index)
        episodes = broken.setdefault(call.name, {})
        episodes[unit] = episodes.get(unit, False) or broke_by_environment(call, exclusion)
    return {name: ToolCount(sum(rows.values()), len(rows)) for name, rows in broken.items()}


class ToolQuarantine:
    """Judges every tool by its own history at each step.

    Args:
        options: Of the policy; nothing is done where it is not enabled.
        levers: Returns the levers that the trainer offers, each with its slices.

    Raises:
        GuardError: It is enabled, and the trainer does not offer the lever of its mode.
    """

    def __init__(self, options: ToolQuarantineOptions, levers: Levers) -> None:
        self.options, self._levers = options, levers
        self.tools: dict[str, ToolState] = {}
        self.last_step = -1
        """The last step that was closed, by the trainer's number."""
        self.num_ignored = 0
        self._now = 0
        self._calls: list[ToolCall] = []
        self._warned: set[str] = set()
        self._again = False  # fractions were taken over, and other ranks have to hear of them
        offered = levers() if options.enabled else {options.lever: ()}
        if options.lever not in offered:
            names = ", ".join(offered) or "none"
            raise GuardError(
                f"guard: quarantine_tool with mode {options.mode} needs the lever {options.lever}, which "
                f"this trainer does not offer (it has {names}); offer it, or choose another mode"
            )

    @property
    def is_active(self) -> bool:
        """Is a tool in quarantine or on probation?"""
        return any(state.phase != "open" for state in self.tools.values())

    def note_call(self, call: ToolCall) -> None:
        """Take a call of the open step."""
        if self.options.enabled:
            self._calls.append(call)

    def close(self, step: int) -> list[QuarantineTool | Warn]:
        """Judge the calls since the last close; returns what changes from the next step on."""
        calls, self._calls = self._calls, []
        if not self.options.enabled:
            return []
        actions: list[QuarantineTool | Warn] = self._repeated(step) if self._again else []
        self._again = False
        counts = count_episodes(calls, self.options.exclusion)
        for name in counts:
            if name not in self.tools and len(self.tools) >= MAX_TOOLS:
                self.num_ignored += 1
            else:
                self.tools.setdefault(name, ToolState())
        for name, state in self.tools.items():
            count = counts.get(name, ToolCount(0, 0))
            before, phase = state.fraction(self.options), state.phase
            if state.step(self._now, count.failed, count.total, self.options) != phase:
                actions += self._changed(step, name, before)
        self._now, self.last_step = self._now + 1, step
        return actions

    def _changed(self, step: int, name: str, before: float) -> list[QuarantineTool | Warn]:
        """Return the action of a tool whose phase changed; a warning where it cannot be carried out."""
        state = self.tools[name]
        note = state.reason
        if not state.lever:
            lever, why = self._lever_for(name)
            if lever is None:
                self.tools[name] = ToolState(history=state.history)
                if why in self._warned:
                    return []
                self._warned.add(why)
                return [Warn(_incident(step, name, note), self.options.name, why)]
            state.lever, note = lever, "; ".join(filter(None, (note, why)))
        used: Any = state.lever
        if state.phase == "open":
            state.lever = ""
        after = state.fraction(self.options)
        return [
            QuarantineTool(name, used, before, after, _incident(step, name, note), self.options.name, note)
        ]

    def _lever_for(self, name: str) -> tuple[Lever | None, str]:
        """Return the lever that is turned for a tool, and why it is not that of the mode, or none."""
        offered = self._levers()
        masks: Lever = "tool_broken_gradient"
        wanted, why = self.options.lever, ""
        if wanted == "tool_offer" and not self._others_are_offered(name, offered.get(wanted, ())):
            why = f"{name} is the last tool that is offered: it is masked, not withheld"
            wanted = masks
        if wanted in offered and {"all", f"tool/{name}"} & set(offered[wanted]):
            return wanted, why
        if why:
            return (
                None,
                f"{name} is the last tool that is offered, and {masks} is not a lever of this trainer",
            )
        return None, f"{wanted} cannot be turned for tool/{name}, only for {', '.join(offered[wanted])}"

    def _others_are_offered(self, name: str, slices: Iterable[str]) -> bool:
        """Return whether another tool is offered: one that the trainer names, or else one that is in use.

        A name that a model made up is not a tool, though calls of it are counted.
        """
        declared = {one.removeprefix("tool/") for one in slices if one.startswith("tool/")}
        used = {other for other, state in self.tools.items() if state.history.is_enough}
        return any(
            other != name and self.tools.get(other, ToolState()).lever != "tool_offer"
            for other in declared or used
        )

    def fractions(self) -> dict[tuple[Lever, str], float]:
        """Return what is in force by lever and slice, for tools that are not open."""
        closed: Any = {
            (state.lever, f"tool/{name}"): state.fraction(self.options)
            for name, state in self.tools.items()
            if state.lever
        }
        return dict(closed)

    def _repeated(self, step: int) -> list[QuarantineTool | Warn]:
        """Return the fractions in force as actions, after a resume."""
        note = "in force again after a resume"
        return [
            QuarantineTool(
                where.removeprefix("tool/"), lever, fraction, fraction,
                _incident(step, where.removeprefix("tool/"), note), self.options.name, note,
            )
            for (lever, where), fraction in self.fractions().items()
        ]  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON types."""
        return {
            "now": self._now, "last_step": self.last_step, "num_ignored": self.num_ignored,
            "warned": sorted(self._warned),
            "tools": {name: state.state_dict() for name, state in self.tools.items()},
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state, unless what was replayed from the run's rows is later."""
        if not state or state["last_step"] < self.last_step:
            return
        self._now, self.last_step = state["now"], state["last_step"]
        self.num_ignored, self._warned = state["num_ignored"], set(state["warned"])
        self.tools = {name: ToolState.from_state(of_tool) for name, of_tool in state["tools"].items()}
        self._again = self.is_active

    def replay(self, steps: Iterable[int], calls: Iterable[ToolCall]) -> None:
        """Take recorded steps with their calls, from the first one after `last_step`; nothing is returned."""
        by_step: dict[int, list[ToolCall]] = {}
        for call in calls:
            by_step.setdefault(call.step, []).append(call)
        waiting, self._calls = self._calls, []
        for step in steps:
            if step > self.last_step:
                self._calls = by_step.get(step, [])
                self.close(step)
        self._calls, self._again = waiting, self.is_active

    def forget(self) -> None:
        """Begin anew, for rows that are of later steps than the next one."""
        self.tools, self.last_step, self._now, self._again = {}, -1, 0, False


def _incident(step: int, name: str, evidence: str) -> Incident:
    cause = Cause(CAUSE, (f"{name}: {evidence}",), (), f"see why {name} fails: its service, quota, sandbox")
    return Incident(step, f"tool/{name}", "warning", (), (cause,))

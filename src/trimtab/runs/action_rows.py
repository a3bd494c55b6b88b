"""Actions of a guard to rows of the run store and back.

A row names its incident in short: the first step, slice, severity, likely cause and the rules that spoke.
"""

from __future__ import annotations

from typing import Any

from trimtab.errors import RunError
from trimtab.types import (
    Action,
    Cause,
    Incident,
    QuarantineTool,
    Rollback,
    SetLever,
    SkipUpdate,
    Stop,
    Undo,
    Warn,
)

Row = dict[str, Any]

NAMES: dict[type, str] = {
    SetLever: "set_lever", SkipUpdate: "skip_update", Rollback: "rollback", Stop: "stop", Undo: "undo",
    Warn: "warn", QuarantineTool: "quarantine_tool",
}  # fmt: skip
"""Kind of an action -> its name in a row."""
_KINDS: dict[str, type] = {name: kind for kind, name in NAMES.items()}
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "set_lever": ("lever", "slice", "before", "after"),
    "undo": ("lever", "slice", "before", "after"),
    "skip_update": ("grad_norm", "bound"),
    "rollback": ("to_step",),
    "stop": (),
    "warn": (),
    "quarantine_tool": ("tool", "lever", "before", "after"),
}


def action_row(action: Action) -> Row:
    """Return an action as JSON types: its name, parameters, policy, note and incident.

    >>> row = action_row(Rollback(40, Incident(73, "all", "critical", (), ()), "rollback"))
    >>> row["action"], row["to_step"], row["incident"]["since"]
    ('rollback', 40, 73)
    """
    name = NAMES[type(action)]
    parameters = {key: getattr(action, key) for key in _PARAMETERS[name]}
    incident = incident_row(action.because)
    return {"action": name, "policy": action.policy, "note": action.note, "incident": incident, **parameters}


def action_from_row(row: Row) -> Action:
    """Return the action of a row; its incident has no alarms, and causes without their evidence.

    Raises:
        RunError: the row is of an action that this version does not know, or lacks a parameter.
    """
    name = row.get("action")
    if name not in _PARAMETERS:
        raise RunError(f"unknown action {name!r}; one of {', '.join(_PARAMETERS)}")
    try:
        parameters = {key: row[key] for key in _PARAMETERS[name]}
        because = incident_from_row(row["incident"])
        action: Action = _KINDS[name](because=because, policy=row["policy"], note=row["note"], **parameters)
    except KeyError as error:
        raise RunError(f"action {name!r} lacks {error}") from error
    return action


def incident_row(incident: Incident) -> Row:
    """Return what a row says of an incident. `cause` is the likeliest one, or empty."""
    likely = next((cause for cause in incident.causes if cause.score > 0), None)
    return {
        "since": incident.since,
        "slice": incident.slice,
        "severity": incident.severity,
        "cause": "" if likely is None else likely.name,
        "evidence": [] if likely is None else list(likely.evidence_for),
        "rules": list(dict.fromkeys(alarm.rule for alarm in incident.alarms)),
    }


def incident_from_row(row: Row) -> Incident:
    """Return an incident of what a row says."""
    causes = (Cause(row["cause"], tuple(row["evidence"]), (), ""),) if row["cause"] else ()
    return Incident(int(row["since"]), row["slice"], row["severity"], (), causes)


def action_text(row: Row) -> str:
    """Return what was done in words, without step and policy.

    >>> action_text({"action": "set_lever", "lever": "lr_scale", "slice": "all", "before": 1.0, "after": 0.3})
    'lr_scale 1 -> 0.3'
    >>> action_text({"action": "rollback", "to_step": 60}), action_text({"action": "stop"})
    ('rollback to step 60', 'stop')
    >>> row = {"action": "quarantine_tool", "tool": "search", "lever": "tool_broken_gradient"}
    >>> action_text(row | {"before": 1.0, "after": 0.0})
    'tool search: broken episodes masked, 100 % -> 0 % of groups'
    """
    name = row["action"]
    if name in ("set_lever", "undo"):
        where = "" if row["slice"] == "all" else f" ({row['slice']})"
        taken_back = "undo: " if name == "undo" else ""
        return f"{taken_back}{row['lever']}{where} {_value(row['before'])} -> {_value(row['after'])}"
    if name == "skip_update":
        return f"skip update: gradient norm {row['grad_norm']:.3g}, bound {row['bound']:.3g}"
    if name == "rollback":
        return f"rollback to step {row['to_step']}"
    if name == "quarantine_tool":
        return _quarantine_text(row)
    return str(name)


_MASKED = {
    "tool_broken_gradient": ("broken episodes masked", "broken episodes trained on"),
    "tool_gradient": ("episodes masked", "episodes trained on"),
    "tool_offer": ("withheld", "offered"),
}
"""Lever -> what is said of a tool whose fraction falls, and of one whose fraction rises."""


def _quarantine_text(row: Row) -> str:
    state = _MASKED[row["lever"]][row["after"] > row["before"]]
    return f"tool {row['tool']}: {state}, {100 * row['before']:.0f} % -> {100 * row['after']:.0f} % of groups"


def _value(number: float) -> str:
    """
    >>> _value(0.3), _value(float("inf"))
    ('0.3', 'none')
    """
    return "none" if number == float("inf") else f"{number:.3g}"

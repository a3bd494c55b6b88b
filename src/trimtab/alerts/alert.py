"""One alert: what changed of an incident, as a receiver gets it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trimtab.sinks.sink import Change, IncidentChange, SinkRun
from trimtab.types import Severity

VERSION = 1
"""Of the JSON object; a field is added without a new version, none changes its meaning."""
_MAX_TEXT, _MAX_ITEMS = 400, 20
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
RANK: Mapping[str, int] = {"info": 0, "warning": 1, "critical": 2}
"""Severities in order."""


@dataclass(frozen=True)
class Alert:
    """A message about one incident, or about a run that is silent."""

    identity: str  # of the incident: the same in every process and after every resume
    change: Change
    severity: Severity
    run: str  # name of the run folder
    run_id: str
    step: int  # last step that was known
    since: int  # first step of the incident
    slice: str
    cause: str  # the likeliest one; empty where none is
    evidence: tuple[str, ...]
    rules: tuple[str, ...]  # the alarms that spoke
    kind: Literal["incident", "silent"] = "incident"
    held_back: int = 0  # other alerts that wait, because of the rate limit

    @property
    def title(self) -> str:
        """What changed, in one line.

        >>> Alert("x", "opened", "critical", "exp1", "id", 80, 73, "post_tool", "", (), ()).title
        'CRITICAL: incident opened in run exp1 (slice post_tool, since step 73, now at step 80)'
        """
        if self.kind == "silent":
            return f"{self.severity.upper()}: run {self.run} {self.cause}"
        where = f"slice {self.slice}, since step {self.since}, now at step {self.step}"
        return f"{self.severity.upper()}: incident {self.change} in run {self.run} ({where})"

    @property
    def text(self) -> str:
        """The likely cause and the rules that spoke."""
        if self.kind == "silent":
            return "; ".join(self.evidence)
        cause = f"Likely cause: {self.cause} ({'; '.join(self.evidence)}). " if self.cause else ""
        return f"{cause}Rules: {', '.join(self.rules)}."

    def payload(self) -> dict[str, Any]:
        """Return the JSON object that webhooks and commands get."""
        return {
            "source": "trimtab",
            "version": VERSION,
            "kind": self.kind,
            "identity": self.identity,
            "change": self.change,
            "severity": self.severity,
            "run": self.run,
            "run_id": self.run_id,
            "step": self.step,
            "since": self.since,
            "slice": self.slice,
            "cause": self.cause,
            "evidence": list(self.evidence),
            "rules": list(self.rules),
            "title": self.title,
            "text": self.text,
            "held_back": self.held_back,
        }


def alert_of(change: IncidentChange, run: SinkRun) -> Alert:
    """Return the alert of a change of an incident.

    Args:
        change: what changed.
        run: the run it is of.

    Returns:
        The alert. Names of tools and rules come from agents and users: control characters become spaces,
        and long texts are cut.

    Example:
        alert_of(record.changes[0], run).title
    """
    row = change.row
    return Alert(
        one_line(change.identity),
        change.change,
        row["severity"],
        one_line(run.name),
        one_line(run.run_id),
        change.step,
        int(row["since"]),
        one_line(row["slice"]),
        one_line(row["cause"]),
        tuple(map(one_line, row["evidence"][:_MAX_ITEMS])),
        tuple(map(one_line, row["rules"][:_MAX_ITEMS])),
    )


def one_line(text: object) -> str:
    """Return a text without control characters, cut to 400 characters.

    Args:
        text: any text.

    Returns:
        One line.

    Example:
        >>> one_line("run" + chr(10) + "tool" + chr(27) + "[31m")
        'run tool [31m'
    """
    plain = _CONTROLS.sub(" ", str(text))
    return plain if len(plain) <= _MAX_TEXT else f"{plain[: _MAX_TEXT - 3]}..."

"""What changed of a run's incidents since they were last seen."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.runs.action_rows import incident_row
from trimtab.sinks.sink import Change, IncidentChange
from trimtab.types import Incident

_RANK = {"info": 0, "warning": 1, "critical": 2}


def incident_identity(run_id: str, incident: Incident) -> str:
    """Return what an incident is called everywhere: its run and its first alarm above info.

    Alarms join an incident in the order of steps, so the first one stays while severity, slice and onset may
    change.

    Args:
        run_id: of the run's header.
        incident: with its alarms.

    Returns:
        `<run>/<rule>/<slice>/<step>`.

    Example:
        incident_identity("4f3c", run.incidents[0])
    """
    first = next((alarm for alarm in incident.alarms if alarm.severity != "info"), None)
    if first is None:
        return f"{run_id}/none/{incident.slice}/{incident.since}"
    return f"{run_id}/{first.rule}/{first.slice}/{first.step}"


def is_open(incident: Incident) -> bool:
    """Return whether an alarm above info of the incident still stands.

    Args:
        incident: with its alarms.

    Returns:
        False when all of them have cleared.

    Example:
        >>> is_open(Incident(3, "all", "warning", (), ()))
        False
    """
    return any(alarm.cleared is None for alarm in incident.alarms if alarm.severity != "info")


class IncidentLog:
    """Compares the incidents of a run with those of the call before.

    Example:
        for change in log.changes(step, run.incidents): print(change.change, change.identity)
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._known: dict[str, tuple[str, bool]] = {}  # identity -> severity, open

    def changes(self, step: int, incidents: Sequence[Incident]) -> list[IncidentChange]:
        """Return what began, became worse, was resolved or came back, in the order of the incidents."""
        result = []
        for incident in incidents:
            identity, now = incident_identity(self.run_id, incident), (incident.severity, is_open(incident))
            before, self._known[identity] = self._known.get(identity), now
            change = _change(before, now)
            if change is not None:
                result.append(IncidentChange(change, identity, step, incident_row(incident)))
        return result


def _change(before: tuple[str, bool] | None, now: tuple[str, bool]) -> Change | None:
    if before is None:
        return "opened"
    if now[1] and not before[1]:
        return "reopened"
    if _RANK[now[0]] > _RANK[before[0]]:
        return "worse"
    return "resolved" if before[1] and not now[1] else None

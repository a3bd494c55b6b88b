"""The parts of the HTML report that judge in words: verdicts, warnings, alarm cards. They need no script.

Every function takes the runs of an inert payload (`escape_controls_json`) and returns HTML; every value passes `escape`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trimtab.report.html.elements import Run, escape, heading, icon, integer, label, prefix, run_name, section

_HEADLINES = {
    "healthy": "Healthy",
    "alarms": "Alarms",
    "unhealthy": "Unhealthy",
    "blind": "Blind",
    "not judged yet": "Not judged yet",
}


def verdicts(runs: Sequence[Run]) -> str:
    """One block a run: icon, word and a plain sentence, then how much was seen."""
    if not runs:
        return '<p class="empty">No run in this report.</p>'
    return f'<div class="verdicts cols">{"".join(_verdict(run, i, len(runs)) for i, run in enumerate(runs))}</div>'


def _verdict(run: Run, index: int, count: int) -> str:
    verdict = run.get("verdict") or "not judged yet"
    kind = verdict if verdict in _HEADLINES else "blind"
    seen = {
        "Steps": f"{integer(run.get('first_step'))}–{integer(run.get('last_step'))}",
        "Tokens": integer(run.get("num_tokens")),
        "Trajectories": integer(run.get("num_trajectories")),
        "Ranks": integer(run.get("ranks")),
        "Sessions": integer(run.get("sessions")),
    }
    stats = "".join(f"<div><dt>{key}</dt><dd>{escape(value)}</dd></div>" for key, value in seen.items())
    return (
        f'<article class="verdict v-{kind.replace(" ", "-")}"><p class="name">{run_name(run, index, count)}</p>'
        f'<p class="word">{icon(kind)}<b>{escape(_HEADLINES.get(verdict, verdict))}</b></p>'
        f'<p class="sentence">{_sentence(run)}</p><p class="reason">{escape(run.get("verdict_reason") or "")}</p>'
        f'<dl class="stats">{stats}</dl>{_judged(run)}</article>'
    )


def _judged(run: Run) -> str:
    """The rules a verdict rests on, folded away: there may be a hundred."""
    names = run.get("rules_judged") or []
    if not names:
        return ""
    count = f"{len(names)} rule{'s' * (len(names) != 1)} judged"
    return f'<details class="judged"><summary>{count}</summary><p>{escape(", ".join(names))}</p></details>'


def _sentence(run: Run) -> str:
    told = sorted(run.get("alarms") or [], key=lambda alarm: alarm["step"])
    fired = [alarm for alarm in told if alarm["severity"] != "info"]
    notes = len(told) - len(fired)
    also = f' <a href="#alarms">{notes} note{"s" * (notes != 1)}</a> for information.' if notes else ""
    if not fired:
        return {
            "healthy": f"No alarm, and enough was seen to say so.{also}",
            "blind": "Nothing was observed that a verdict could rest on.",
            "alarms": "The verdict names alarms; none is listed.",
            "unhealthy": "The verdict names alarms; none is listed.",
        }.get(run.get("verdict") or "", "Too little has been seen to say anything. That is not an all-clear.")
    first = fired[0]
    num_critical = sum(alarm["severity"] == "critical" for alarm in fired)
    count = f"{len(fired)} alarm{'s' * (len(fired) > 1)}"
    critical = f", {num_critical} critical" if num_critical else ""
    hidden = f" ({escape(_averages(first))})" if first.get("hidden") else ""
    return (
        f'<a href="#alarms">{count}{critical}</a>. The first at step {integer(first["step"])} in '
        f"<bdi>{escape(first['slice'])}</bdi>{hidden}.{also}"
    )


def _averages(alarm: dict[str, Any]) -> str:
    """What the rules on averages had said by a hidden alarm: a rule that could not speak yet is not called calm."""
    return alarm.get("averages") or "no aggregate rule had fired"


def warnings(runs: Sequence[Run]) -> str:
    """Notes of the monitor about itself: a dead monitor must never look like an all-clear."""
    notes = [
        f"<li>{prefix(i, len(runs))}{escape(note)}</li>"
        for i, run in enumerate(runs)
        for note in run.get("notes") or []
    ]
    if not notes:
        return ""
    return f'<div class="banner" role="alert">{icon("warning")}<div><b>The watch itself reports</b><ul>{"".join(notes)}</ul></div></div>'


def alarmed(runs: Sequence[Run]) -> str:
    """Place for the charts of readings that raised an alarm and have none elsewhere; nothing when there are none."""
    if not any(run.get("alarmed") for run in runs):
        return ""
    return section(
        "alarmed", "The readings behind alarms", '<div class="figures" data-figures="alarmed"></div>'
    )


def alarms(runs: Sequence[Run]) -> str:
    """One card an alarm, in order of time: what, since when, where, why it matters, what to do, on whose word."""
    groups = []
    for i, run in enumerate(runs):
        cards = "".join(
            _card(alarm, label(i, k, len(runs))) for k, alarm in enumerate(run.get("alarms") or [])
        )
        groups.append(f'{heading(run, i, len(runs))}<div class="cards">{cards or _no_alarm(run)}</div>')
    return section("alarms", "Alarms", "".join(groups)) if groups else ""


def _no_alarm(run: Run) -> str:
    known = {
        "blind": " None was possible: nothing was observed.",
        "not judged yet": " None was possible yet: too little was seen.",
    }
    return f'<p class="empty">No alarm.{known.get(run.get("verdict") or "not judged yet", "")}</p>'


def _quoted(text: object) -> str:
    """Escaped, and what stands between backticks set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _card(alarm: dict[str, Any], number: str) -> str:
    severity = alarm["severity"] if alarm["severity"] in ("critical", "warning", "info") else "warning"
    cleared = alarm.get("cleared")
    ended = "still open" if cleared is None else f"cleared at step {integer(cleared)}"
    hidden = f'<span class="badge">{escape(_averages(alarm))}</span>' if alarm.get("hidden") else ""
    rows = {"Why it matters": "why", "What to do": "advice", "Source": "reference"}
    body = "".join(
        f"<dt>{key}</dt><dd>{_quoted(alarm.get(field) or '–')}</dd>" for key, field in rows.items()
    )
    return (
        f'<article class="card s-{severity}" id="alarm-{number}"><header><span class="flag">{number}</span>'
        f'<span class="word">{icon(severity)}<b>{severity}</b></span>{hidden}</header><h3>{escape(alarm.get("what") or alarm["rule"])}</h3>'
        f'<p class="when">Step {integer(alarm["step"])}, evidence since {integer(alarm["since"])}, {ended} · slice <bdi>{escape(alarm["slice"])}</bdi>'
        f' · rule <bdi class="mono">{escape(alarm["rule"])}</bdi></p><dl>{body}</dl></article>'
    )

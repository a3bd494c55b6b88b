"""One offline page of agent logs in the style of the run report: verdict, findings, tools, contrasts, and an episode viewer."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trimtab._version import __version__
from trimtab.report.html import asset, embed_json, source_hash, write_page
from trimtab.report.html_parts import escape, icon, integer, section, table
from trimtab.report.inert import inert_json
from trimtab.report.trace_diagnosis import TraceDiagnosis, trace_diagnosis
from trimtab.report.trace_lines import BY_TEXT, figure, pass_line, short, unjudged_tools
from trimtab.report.trace_payload import shown_episodes
from trimtab.traces.wording import counted

__all__ = ["render_traces", "write_traces_html"]

_WHOLE = 40
"""Characters of a tool's name that its column is wide enough for; longer ones break."""
_HEADLINES = {"healthy": "Healthy", "alarms": "Alarms", "blind": "Blind", "not judged yet": "Not judged yet"}


def write_traces_html(
    found: TraceDiagnosis,
    path: str | os.PathLike[str],
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    decode: Callable[[int], str] | None = None,
) -> Path:
    """Write the page of a diagnosis; `format` and `mapping` as its logs were read with, `decode`: ids of tokens to text (`trace_tokens.decoder`),
    where the log has no text of them. Returns the path."""
    shown = shown_episodes(found, format, mapping, decode)
    return write_page(render_traces(trace_diagnosis(found), shown), path)


def render_traces(found: dict[str, Any], episodes: list[dict[str, Any]]) -> str:
    """The page of `trace_diagnosis`'s result and `shown_episodes`'s list; refers to nothing outside itself."""
    safe: Any = inert_json({"found": found, "episodes": episodes})
    found, shown = safe["found"], safe["episodes"]
    script = asset("assets/traces.js")
    style = "\n".join(asset(name) for name in ("assets/report.css", "assets/traces.css"))
    keys = {episode["id"]: episode["key"] for episode in shown}
    parts = {
        "title": escape(", ".join(found["logs"])), "generated": escape(time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())),
        "trimtab_version": escape(__version__),
        "csp": f"default-src 'none'; script-src '{source_hash(script)}'; style-src '{source_hash(style)}'; base-uri 'none'; form-action 'none'",
        "style": style, "script": script, "payload": embed_json({"episodes": shown}), "verdict": _verdict(found),
        "findings": _findings(found, keys), "tools": _tools(found), "sizes": _sizes(found), "separates": _separates(found), "drift": _drift(found),
        "outcomes": _outcomes(found),
        "shown": f"{len(shown):,} of {found['num_episodes']:,}: those the findings name first, then failed and solved ones in turn.",
        "measured": _measured(found), "not_observed": _not_observed(found), "lines": _lines(found), "facts": _facts(found),
    }  # fmt: skip
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], asset("traces.html"))


def _verdict(found: dict[str, Any]) -> str:
    kind = found["verdict"]
    seen = {
        "Episodes": integer(found["num_episodes"]), "Tasks": integer(found["num_tasks"]), "Tool calls": integer(found["num_calls"]),
        "Lines": integer(found["num_lines"]), "Malformed": integer(found["num_malformed"]),
    }  # fmt: skip
    stats = "".join(f"<div><dt>{key}</dt><dd>{value}</dd></div>" for key, value in seen.items())
    return (
        f'<div class="verdicts cols"><article class="verdict v-{kind.replace(" ", "-")}"><p class="word">{icon(kind)}<b>{_HEADLINES[kind]}</b></p>'
        f'<p class="sentence">{escape(found["reason"])}</p><dl class="stats">{stats}</dl></article></div>'
    )


def _findings(found: dict[str, Any], keys: dict[str, int]) -> str:
    cards = "".join(_card(finding, i, keys) for i, finding in enumerate(found["findings"], 1))
    return section(
        "findings", "Findings", f'<div class="cards">{cards or "<p class=empty>No rule fired.</p>"}</div>'
    )


def _card(finding: dict[str, Any], number: int, keys: dict[str, int]) -> str:
    interval = (
        f" ({_number(finding['low'])} to {_number(finding['high'])})" if finding["low"] is not None else ""
    )
    where = "" if finding["slice"] == "all" else f" · <bdi>{escape(finding['slice'])}</bdi>"
    rows = {
        "Seen": finding["numbers"],
        "Why it matters": finding["why"],
        "What to do": finding["advice"],
        "Source": finding["reference"],
    }
    body = "".join(f"<dt>{key}</dt><dd>{escape(text)}</dd>" for key, text in rows.items())
    places = "".join(f"<li>{_place(place, keys)}</li>" for place in finding["evidence"])
    listing = f'<ul class="places">{places}</ul>' if places else ""
    return (
        f'<article class="card s-{finding["severity"]}" id="finding-{number}"><header><span class="flag">{number}</span><span class="word">'
        f"{icon(finding['severity'])}<b>{finding['severity']}</b></span></header><h3>{escape(finding['what'])}</h3>"
        f'<p class="when">{_number(finding["value"])}{interval}, bound {_number(finding["bound"])} · rule <bdi class="mono">{escape(finding["rule"])}</bdi>'
        f"{where}</p><dl>{body}</dl>{listing}</article>"
    )


def _place(place: dict[str, Any], keys: dict[str, int]) -> str:
    text = f'<bdi class="mono">{escape(place["text"])}</bdi>'
    if not place["episode"]:
        return f"{escape(place['source'])} {text}"
    name = f"<bdi>{escape(place['episode'])}</bdi>"
    key = keys.get(place["episode"])
    link = name if key is None else f'<a href="#episodes" data-episode="{key}">{name}</a>'
    step = f" step {place['step']}" if place["step"] >= 0 else ""
    return f"{link}{step} {text}"


def _tools(found: dict[str, Any]) -> str:
    rows = [
        [
            f"<bdi{' class=whole' if len(tool['tool']) <= _WHOLE else ''}>{escape(tool['tool'])}</bdi>", integer(tool["calls"]), integer(tool["episodes"]), _percent(tool["error_frac"]),
            _seconds(tool["latency_p50_s"]), _seconds(tool["latency_p95_s"]), _seconds(tool["latency_p99_s"]),
            f"<bdi>{escape('; '.join(f'{count} × {kind}' for kind, count in list(tool['kinds'].items())[:3]) or '–')}</bdi>",
        ]
        for tool in found["tools"]
    ]  # fmt: skip
    by_text = found["failures_told_by"] == "text"
    notes = [BY_TEXT if by_text else "", unjudged_tools(found["tools"])]
    columns = [
        "Tool",
        "Calls",
        "Episodes",
        "Failed, by text" if by_text else "Failed",
        "p50",
        "p95",
        "p99",
        "Kinds of error",
    ]
    return (
        section(
            "tools",
            "Tools",
            table(columns, rows),
            escape(". ".join(note[0].upper() + note[1:] for note in notes if note)),
        )
        if rows
        else ""
    )


def _sizes(found: dict[str, Any]) -> str:
    rows = [
        [escape(row["name"]), integer(row["n"]), *(short(row[q]) for q in ("mean", "p5", "p50", "p95", "largest")),
         "–" if row["total"] is None else short(row["total"])]
        for row in found["sizes"]
    ]  # fmt: skip
    columns = ["Per episode", "Episodes", "Mean", "p5", "p50", "p95", "Most", "Total"]
    return section("sizes", "Size of episodes", table(columns, rows))


def _separates(found: dict[str, Any]) -> str:
    if not found["solved_by"]:
        return section(
            "separates",
            "What separates failed from solved",
            '<p class="empty">The log does not say what is solved (--solved-at, where it has rewards).</p>',
        )
    rows = [_contrast(row) for row in found["separates"] if row["real"]]
    lede = (
        f"Solved: {escape(found['solved_by'])}. {counted(len(found['separates']), 'feature')} could be compared; intervals are 95&nbsp;% for all of them at once, p is Holm's. "
        "Within tasks means among attempts at the same task: what vanishes there may only mark hard tasks."
    )
    columns = ["Feature", "Failed", "Solved", "Difference", "Interval", "p", "Within tasks", "Interval"]
    nothing = (
        "Nothing that could not be chance."
        if found["separates"]
        else "No feature could be compared: too few of one kind, or the same in all."
    )
    body = table(columns, rows) if rows else f'<p class="empty">{nothing}</p>'
    return section("separates", "What separates failed from solved", body, lede)


def _drift(found: dict[str, Any]) -> str:
    """A table a split of the log that could be judged."""
    family = sum(len(drift["contrasts"]) for drift in found["drift"])
    made = []
    for number, drift in enumerate(found["drift"]):
        rows = [_contrast(row) for row in drift["contrasts"] if row["real"]]
        if not drift["contrasts"]:
            continue
        names = [f"<bdi>{escape(drift[side])}</bdi>" for side in ("a", "b")]
        lede = (
            f"What differs between {names[0]} and {names[1]}, by {escape(drift['by'].replace('_', ' '))}; intervals and p hold for {counted(family, 'comparison')} at once. A run that "
            "learns changes: this is a reading, no alarm."
        )
        columns = ["Feature", *names, "Difference", "Interval", "p", "Within tasks", "Interval"]
        body = table(columns, rows) if rows else '<p class="empty">Nothing that could not be chance.</p>'
        made.append(section(f"drift-{number}", "What changed", body, lede))
    return "".join(made)


def _contrast(row: dict[str, Any]) -> list[str]:
    scale, unit = (100, " %") if row["yes_no"] else (1, "")

    def ends(low: float | None, high: float | None) -> str:
        return (
            "–"
            if low is None or high is None
            else f"{figure(scale * low, '+')} to {figure(scale * high, '+')}"
        )

    inside = "–" if row["within"] is None else figure(scale * row["within"], "+")
    return [
        f"<bdi>{escape(row['name'])}</bdi>", figure(scale * row["mean_a"]) + unit, figure(scale * row["mean_b"]) + unit,
        figure(scale * row["difference"], "+"), ends(row["low"], row["high"]), f"{row['p']:.2g}" if row["p"] >= 0.001 else "&lt; 0.001",
        inside, ends(row["within_low"], row["within_high"]),
    ]  # fmt: skip


def _outcomes(found: dict[str, Any]) -> str:
    rows = [
        [
            escape(row["by"]),
            f"<bdi>{escape(row['name'])}</bdi>",
            integer(row["episodes"]),
            _percent(row["solved"]),
            _range(row),
        ]
        for row in found["outcomes"]
    ]
    lede = "A table to read, not a test: its rows are many and not corrected for it."
    lede += "".join(f" {line.strip()}." for line in pass_line(found["pass_k"]))
    return (
        section(
            "outcomes",
            "Outcomes",
            table(["By", "Of", "Episodes", "Solved", "95 % interval"], rows, numeric_from=2),
            lede,
        )
        if rows
        else ""
    )


def _measured(found: dict[str, Any]) -> str:
    rows = [
        [
            f'<bdi class="mono">{escape(row["key"])}</bdi>',
            _number(row["value"]),
            _range(row, 1),
            integer(row["n"]),
            escape(row["numbers"]),
        ]
        for row in found["readings"]
        if row["slice"] == "all" and row["status"] == "ok"
    ]
    return (
        section(
            "measured", "What was measured", table(["Reading", "Value", "95 % interval", "n", "Of"], rows)
        )
        if rows
        else ""
    )


def _not_observed(found: dict[str, Any]) -> str:
    missing = {row["key"]: row["reason"] for row in found["readings"] if row["status"] != "ok"}
    items = "".join(f"<li><b>{escape(key)}</b>: {escape(why)}</li>" for key, why in missing.items())
    lede = "These could not be measured. Their silence is no evidence of health."
    return section("not-observed", "Not observed", f'<ul class="plain">{items}</ul>', lede) if items else ""


def _lines(found: dict[str, Any]) -> str:
    rows = [
        [f"<bdi>{escape(row['file'])}</bdi>", integer(row["line"]), escape(row["reason"])]
        for row in found["malformed"]
    ]
    more = found["num_malformed"] - len(rows)
    lede = f"The first {len(rows)}; {more:,} more." if more else ""
    return (
        section("malformed", "Malformed lines", table(["File", "Line", "Reason"], rows), lede) if rows else ""
    )


def _facts(found: dict[str, Any]) -> str:
    rows = {
        "Logs": ", ".join(found["logs"]), "Formats": ", ".join(sorted(set(found["formats"].values()))), "Engine": found["engine"],
        "Seconds": _number(found["seconds"]), **{f"Note, {count:,} times": note for note, count in found["notes"].items()},
    }  # fmt: skip
    listing = "".join(f"<dt>{escape(key)}</dt><dd>{escape(text)}</dd>" for key, text in rows.items())
    return section("facts", "Provenance", f'<dl class="facts">{listing}</dl>')


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _range(row: dict[str, Any], scale: int = 100) -> str:
    if row["low"] is None:
        return "–"
    return (
        f"{100 * row['low']:.0f} to {100 * row['high']:.0f} %"
        if scale == 100
        else f"{figure(row['low'])} to {figure(row['high'])}"
    )


def _number(value: float | None) -> str:
    return "–" if value is None else figure(value)


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{figure(value)} s"

"""One offline page of agent logs in the style of the run report: verdict, findings, tools, contrasts, and an episode viewer."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trimtab._version import __version__
from trimtab.report.control_characters import escape_controls_json
from trimtab.report.html.elements import escape, icon, integer, section, table
from trimtab.report.html.run_page import asset, embed_json, source_hash, write_page
from trimtab.report.traces.shown_episodes import shown_episodes
from trimtab.report.traces.tables import (
    drift_table,
    measured_table,
    number,
    outcomes_table,
    separates_table,
    sizes_table,
    tools_table,
)
from trimtab.report.traces.trace_diagnosis import TraceDiagnosis, trace_diagnosis
from trimtab.traces.core.plural import counted

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
    safe: Any = escape_controls_json({"found": found, "episodes": episodes})
    found, shown = safe["found"], safe["episodes"]
    script = asset("assets/traces.js")
    style = "\n".join(asset(name) for name in ("assets/report.css", "assets/traces.css"))
    keys = {episode["id"]: episode["key"] for episode in shown}
    parts = {
        "title": escape(", ".join(found["logs"])), "generated": escape(time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())),
        "trimtab_version": escape(__version__),
        "csp": f"default-src 'none'; script-src '{source_hash(script)}'; style-src '{source_hash(style)}'; base-uri 'none'; form-action 'none'",
        "style": style, "script": script, "payload": embed_json({"episodes": shown}), "verdict": _verdict(found),
        "findings": _findings(found, keys), "tools": tools_table(found), "sizes": sizes_table(found), "separates": separates_table(found), "drift": drift_table(found),
        "outcomes": outcomes_table(found),
        "shown": f"{len(shown):,} of {found['num_episodes']:,}: those the findings name first, then failed and solved ones in turn.",
        "measured": measured_table(found), "not_observed": _not_observed(found), "lines": _lines(found), "facts": _facts(found),
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


def _card(finding: dict[str, Any], rank: int, keys: dict[str, int]) -> str:
    interval = (
        f" ({number(finding['low'])} to {number(finding['high'])})" if finding["low"] is not None else ""
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
        f'<article class="card s-{finding["severity"]}" id="finding-{rank}"><header><span class="flag">{rank}</span><span class="word">'
        f"{icon(finding['severity'])}<b>{finding['severity']}</b></span></header><h3>{escape(finding['what'])}</h3>"
        f'<p class="when">{number(finding["value"])}{interval}, bound {number(finding["bound"])} · rule <bdi class="mono">{escape(finding["rule"])}</bdi>'
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
        "Logs": ", ".join(found["logs"]), "Formats": ", ".join(sorted(set(found["formats"].values()))),
        "Seconds": number(found["seconds"]), **{f"Note, {counted(count, 'time')}": note for note, count in found["notes"].items()},
    }  # fmt: skip
    listing = "".join(f"<dt>{escape(key)}</dt><dd>{escape(text)}</dd>" for key, text in rows.items())
    return section("facts", "Provenance", f'<dl class="facts">{listing}</dl>')

"""The tables on a page of agent logs, each a section of HTML; text of the logs is escaped. An empty table is left out."""

from __future__ import annotations

from typing import Any

from trimtab.report.html.elements import escape, integer, section, table
from trimtab.report.traces.trace_lines import BY_TEXT, figure, pass_line, short, unjudged_tools
from trimtab.traces.core.plural import counted

_WHOLE = 40
"""Characters of a tool's name that its column is wide enough for; longer ones break."""


def tools_table(found: dict[str, Any]) -> str:
    """Each tool: calls, failures, latencies, kinds of error."""
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


def sizes_table(found: dict[str, Any]) -> str:
    """Steps, tokens, seconds and cost of an episode."""
    rows = [
        [escape(row["name"]), integer(row["n"]), *(short(row[q]) for q in ("mean", "p5", "p50", "p95", "largest")),
         "–" if row["total"] is None else short(row["total"])]
        for row in found["sizes"]
    ]  # fmt: skip
    columns = ["Per episode", "Episodes", "Mean", "p5", "p50", "p95", "Most", "Total"]
    return section("sizes", "Size of episodes", table(columns, rows))


def separates_table(found: dict[str, Any]) -> str:
    """What separates failed from solved episodes by more than chance."""
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


def drift_table(found: dict[str, Any]) -> str:
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


def outcomes_table(found: dict[str, Any]) -> str:
    """Shares solved, by tool, turn and first error."""
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


def measured_table(found: dict[str, Any]) -> str:
    """The readings of all episodes."""
    rows = [
        [
            f'<bdi class="mono">{escape(row["key"])}</bdi>',
            number(row["value"]),
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


def number(value: float | None) -> str:
    """A figure, or a dash where there is none."""
    return "–" if value is None else figure(value)


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{figure(value)} s"

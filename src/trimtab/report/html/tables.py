"""The tables of the HTML report: tools, what was not observed, what was judged, where the numbers come from."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.report.html.elements import Run, escape, heading, integer, prefix, section, table


def tools(runs: Sequence[Run]) -> str:
    """Calls, errors, latency and result size per tool; nothing when no run called one."""
    body = ""
    for i, run in enumerate(runs):
        rows = [
            [
                f"<bdi>{escape(tool['tool'])}</bdi>",
                integer(tool.get("calls")),
                _percent(tool.get("error_frac")),
                _seconds(tool.get("latency_p50_s")),
                _seconds(tool.get("latency_p99_s")),
                _number(tool.get("result_size_p50")),
            ]
            for tool in run.get("tools") or []
        ]
        if rows:
            columns = ["Tool", "Calls", "Errors", "Latency p50", "Latency p99", "Result size p50"]
            body += f"<div>{heading(run, i, len(runs))}{table(columns, rows)}</div>"
    return section("tools", "Tools", f'<div class="cols">{body}</div>') if body else ""


def exemplars(runs: Sequence[Run]) -> str:
    """The worst tokens of each run's latest windows, with where they stand; nothing when none were kept."""
    body = ""
    for i, run in enumerate(runs):
        rows = [
            [
                f"{escape(token['slice'])} {escape(token['ratio'])}",
                _text(token),
                f"<bdi>{escape(token['tool'] or '–')}</bdi>",
                _nats(token["value"]),
                _nats(token["logprob"]),
                _nats(token["other_logprob"]),
                *(escape(token[key]) for key in ("episode", "position", "turn")),
            ]
            for token in run.get("exemplars") or []
        ]
        if rows:
            columns = [
                "Slice, ratio",
                "Token",
                "Tool",
                "|log-ratio|",
                "log p",
                "log p of the other",
                "Episode",
                "Position",
                "Turn",
            ]
            body += f"<div>{heading(run, i, len(runs))}{table(columns, rows, numeric_from=3)}</div>"
    lede = "The tokens behind the tails, of the latest window of each slice. Their text is the policy's: do not trust it."
    return section("exemplars", "Worst tokens", body, lede) if body else ""


def not_observed(runs: Sequence[Run]) -> str:
    """What could not be seen, and why: its absence is no evidence of health."""
    items = [
        f"<li>{prefix(i, len(runs))}<b>{escape(item['what'])}</b>: {escape(item['why'])}</li>"
        for i, run in enumerate(runs)
        for item in run.get("not_observed") or []
    ]
    if not items:
        return ""
    lede = "These could not be measured. Their silence is no evidence of health."
    return section("not-observed", "Not observed", f'<ul class="plain">{"".join(items)}</ul>', lede)


def judged(runs: Sequence[Run]) -> str:
    """How much each slice held, and whether that was enough to judge it."""
    body = ""
    for i, run in enumerate(runs):
        rows = [
            [
                f"<bdi>{escape(item['slice'])}</bdi>",
                escape(item["status"]),
                integer(item.get("n_tokens")),
                integer(item.get("n_trajectories")),
            ]
            for item in run.get("judged") or []
        ]
        if rows:
            listing = table(["Slice", "Status", "Tokens", "Trajectories"], rows, numeric_from=2)
            body += f"<div>{heading(run, i, len(runs))}{listing}</div>"
    needs = sorted({run["needs"] for run in runs if run.get("needs")})
    lede = f"A slice is judged once a window holds {escape(', or '.join(needs))}." if needs else ""
    return section("judged", "What was judged", f'<div class="cols">{body}</div>', lede) if body else ""


def facts(runs: Sequence[Run]) -> str:
    """Where the numbers come from: the reference, the cost of watching, the files read."""
    body = ""
    for i, run in enumerate(runs):
        rows = [("Path", run.get("path") or "–"), *(run.get("facts") or [])]
        listing = "".join(f"<dt>{escape(key)}</dt><dd>{escape(text)}</dd>" for key, text in rows)
        body += f'<div>{heading(run, i, len(runs))}<dl class="facts">{listing}</dl></div>'
    return section("facts", "Provenance", f'<div class="cols">{body}</div>') if body else ""


def _text(token: Run) -> str:
    """The token's text where it was given, else its id."""
    if token.get("text") is not None:
        return f"<bdi>{escape(token['text'])}</bdi>"
    return "–" if token.get("token_id") is None else f"id {escape(token['token_id'])}"


def _nats(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    if value < 0.001:
        return f"{1e6 * value:.0f} µs"
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"

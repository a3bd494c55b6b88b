"""The diagnosis of agent logs as lines for a terminal, safe to print whatever the logs hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from trimtab.catalog import bound
from trimtab.report.control_characters import escape_controls
from trimtab.report.screen import figure, short
from trimtab.traces.core.plural import counted, noted

_MAX_TOOLS = 20
_MAX_CONTRASTS = 8
BY_TEXT = "by text: no field of the log calls any call failed; a failure is a result whose text says so"
_SHOWN = {
    "traces/failed_call_frac", "traces/solved_frac", "aggregate/zero_std_frac", "traces/truncated_frac",
    "traces/loop_frac", "traces/repeat_frac", "traces/no_call_frac", "traces/symptom_frac",
}  # fmt: skip


def trace_diagnosis_lines(diagnosis: dict[str, Any]) -> list[str]:
    """`found` is `trace_diagnosis`'s."""
    tasks = f" of {counted(diagnosis['num_tasks'], 'task')}" if diagnosis["num_tasks"] else ""
    formats = ", ".join(dict.fromkeys(diagnosis["formats"].values()))
    lines = [
        diagnosis["headline"],
        f"  {', '.join(diagnosis['logs'])}: {diagnosis['reason']}",
        f"  {counted(diagnosis['num_episodes'], 'episode')}{tasks}, "
        f"{counted(diagnosis['num_calls'], 'call')}, format {formats}, "
        f"{counted(diagnosis['num_lines'], 'line')} in {diagnosis['seconds']:.1f} s",
    ]
    for finding in diagnosis["findings"]:
        lines += _finding(finding)
    lines += ["", *_tools(diagnosis["tools"], diagnosis["failures_told_by"])]
    shares = [row for row in diagnosis["readings"] if row["key"] in _SHOWN and row["status"] == "ok"]
    lines += ["", *(f"  {_what(row['key']):<18} {_share(row)}  {row['numbers']}" for row in shares)]
    lines += pass_line(diagnosis["pass_k"])
    lines += ["", *_sizes(diagnosis["sizes"])]
    lines += _separates(diagnosis)
    lines += _drift(diagnosis)
    lines += _not_observed(diagnosis)
    for row in diagnosis["malformed"][:5]:
        lines.append(f"  malformed {row['file']}:{row['line']}: {row['reason']}")
    lines += [f"  note     {noted(count, note)}" for note, count in diagnosis["notes"].items()]
    return [escape_controls(line) for line in lines]


def _finding(finding: dict[str, Any]) -> Iterator[str]:
    where = "" if finding["slice"] == "all" else f" in {finding['slice']}"
    yield ""
    yield f"  [{finding['severity']}] {finding['rule']}{where}: {finding['what']}"
    interval = f" ({figure(finding['low'])} to {figure(finding['high'])})" if _finite(finding["low"]) else ""
    yield f"    seen   {figure(finding['value'])}{interval}, bound {finding['bound']:g}: {finding['numbers']}"
    yield f"    why    {finding['why']}"
    yield f"    do     {finding['advice']}"
    for evidence in finding["evidence"][:3]:
        where = f"episode {evidence['episode']}" if evidence["episode"] else evidence["source"]
        step = f" step {evidence['step']}" if evidence["step"] >= 0 and evidence["episode"] else ""
        yield f"    e.g.   {where}{step}{': ' if where else ''}{evidence['text'][:320]}"


def _tools(tools: list[dict[str, Any]], told_by: str) -> Iterator[str]:
    if not tools:
        yield "  no tool call in the logs"
        return
    by_text = told_by == "text"
    yield f"  tool                              calls  failed{' by text' if by_text else ''}  episodes  p50 s   p95 s   p99 s"  # noqa: E501
    for row in tools[:_MAX_TOOLS]:
        seconds = "  ".join(
            f"{figure(row[f'latency_{q}_s']):>6}" if row["timed"] else "     –" for q in ("p50", "p95", "p99")
        )
        yield f"  {row['tool'][:30]:<30} {row['calls']:>8,}  {100 * row['error_frac']:>5.1f}%{'        ' if by_text else ''}  {row['episodes']:>8,}  {seconds}"  # noqa: E501
    if len(tools) > _MAX_TOOLS:
        yield f"  and {len(tools) - _MAX_TOOLS} more tools (--json has all)"
    if by_text:
        yield f"  {BY_TEXT} (--error-pattern adds to what is known)"
    if few := unjudged_tools(tools):
        yield f"  {few}"


def _sizes(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "  per episode           episodes       mean     p5    p50    p95     most      total"
    for row in rows:
        total = "–" if row["total"] is None else short(row["total"])
        figures = "  ".join(f"{short(row[q]):>5}" for q in ("p5", "p50", "p95"))
        yield f"  {row['name']:<20} {row['n']:>9,}  {short(row['mean']):>9}  {figures}  {short(row['largest']):>7}  {total:>9}"  # noqa: E501


def unjudged_tools(tools: list[dict[str, Any]]) -> str:
    """The tools of too few calls to be judged alone, in words; empty where all can be.

    >>> unjudged_tools([{"tool": "a", "judged": False}, {"tool": "b", "judged": True}])
    'not judged alone, fewer than 20 calls: a'
    """
    names = [tool["tool"] for tool in tools if not tool["judged"]]
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    few = f"not judged alone, fewer than {bound('trace_calls'):.0f} calls: "
    return few + ", ".join(names[:8]) + more if names else ""


def pass_line(rows: list[dict[str, Any]], before: str = "") -> Iterator[str]:
    """pass^k in one line; none without repeated attempts.

    >>> list(pass_line([{"k": 1, "value": 0.5, "tasks": 4, "left_out": 0}, {"k": 2, "value": 0.25, "tasks": 3,
    ...     "left_out": 1}]))
    ['  pass^k             1: 50.0 %, 2: 25.0 % (3 tasks, 1 of fewer attempts left out)']
    """
    shown = []
    for row in rows:
        left_out = f" ({counted(row['tasks'], 'task')}, {row['left_out']} of fewer attempts left out)"
        few = left_out if row["left_out"] else ""
        shown.append(f"{row['k']}: {100 * row['value']:.1f} %{few}")
    if shown:
        yield f"  {before}{'pass^k':<18} {', '.join(shown)}"


def _separates(diagnosis: dict[str, Any]) -> Iterator[str]:
    yield ""
    if not diagnosis["solved_by"]:
        yield "  what separates failed from solved: not observed, the log does not say what is solved (--solved-at, where it has rewards)"  # noqa: E501
        return
    rows = _shown(diagnosis["separates"])
    if not diagnosis["separates"]:
        yield f"  what separates failed from solved (by {diagnosis['solved_by']}): no feature could be compared: too few of one kind, or the same in all"  # noqa: E501
        return
    family = counted(len(diagnosis["separates"]), "feature")
    corrected = f"{family}, 95 % intervals and p corrected for all of them; how an episode ended is left out"
    yield f"  what separates failed from solved (by {diagnosis['solved_by']}; {corrected}):"
    yield from (f"    {contrast_line(row)}" for row in rows[:_MAX_CONTRASTS])
    yield from _more(rows)
    if not rows:
        yield "    nothing that could not be chance"
    if any(row["mixed"] >= 2 for row in rows):
        yield "    within tasks: among attempts at the same task; what vanishes there may only mark hard tasks"  # noqa: E501


def _drift(diagnosis: dict[str, Any]) -> Iterator[str]:
    family = max((row["family"] for drift in diagnosis["drift"] for row in drift["contrasts"]), default=0)
    for drift in diagnosis["drift"]:
        if not drift["contrasts"]:
            continue
        yield ""
        by = f"by {drift['by'].replace('_', ' ')}"
        yield f"  what changed from {drift['b']} to {drift['a']} ({by}; corrected for {counted(family, 'comparison')}; a run that learns changes):"  # noqa: E501
        rows = _shown(drift["contrasts"])
        yield from (f"    {contrast_line(row, drift['a'], drift['b'])}" for row in rows[:_MAX_CONTRASTS])
        yield from _more(rows)
        if not rows:
            yield "    nothing that could not be chance"


def _shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that differ, then those that differ within tasks alone."""
    return sorted((row for row in rows if row["real"] or row["real_within"]), key=lambda row: not row["real"])


def _more(rows: list[dict[str, Any]]) -> Iterator[str]:
    if len(rows) > _MAX_CONTRASTS:
        yield f"    and {len(rows) - _MAX_CONTRASTS} more (--json has all)"


def contrast_line(row: dict[str, Any], a: str = "failed", b: str = "solved") -> str:
    """One contrast in words."""
    percent = row["yes_no"]
    if percent:
        text = f"{row['name']}: {100 * row['mean_a']:.0f} % of {a}, {100 * row['mean_b']:.0f} % of {b}"
    else:
        text = f"{row['name']}: {figure(row['mean_a'])} in {a}, {figure(row['mean_b'])} in {b}"
    size = _gap(row["difference"], row["low"], row["high"], percent)
    p = p_words(row["p"]) or "not judged"
    if not _finite(row["within"]):
        return f"{text}; {size}, {p}"
    inside = _gap(row["within"], row["within_low"], row["within_high"], percent)
    p_inside = f", {p_text}" if (p_text := p_words(row["within_p"])) else ""
    return f"{text}; {size}, {p}; within {counted(row['mixed'], 'task')} {inside}{p_inside}"


def p_words(p: float | None) -> str:
    """Return a p-value as text; "" where there is none."""
    if p is None or not math.isfinite(p):
        return ""
    return f"p {p:.2g}" if p >= 0.001 else "p < 0.001"


def _gap(difference: float, low: float | None, high: float | None, percent: bool) -> str:
    """A difference and its interval, where it has one."""
    ends = ""
    if low is not None and high is not None and math.isfinite(low):
        ends = f" ({_signed(low, percent)} to {_signed(high, percent)})"
    return f"{_signed(difference, percent)}{' points' if percent else ''}{ends}"


def _signed(value: float, percent: bool) -> str:
    return f"{100 * value:+.0f}" if percent else figure(value, "+")


def _not_observed(diagnosis: dict[str, Any]) -> Iterator[str]:
    missing: dict[str, list[str]] = {}
    for row in diagnosis["readings"]:
        if row["status"] != "ok":
            names = missing.setdefault(row["reason"], [])
            if _what(row["key"]) not in names:
                names.append(_what(row["key"]))
    yield from (f"  not observed: {', '.join(names)}: {why}" for why, names in missing.items())


def _share(row: dict[str, Any]) -> str:
    return f"{100 * row['value']:5.1f} % ({100 * row['low']:.1f} to {100 * row['high']:.1f})"


def _what(key: str) -> str:
    return key.partition("/")[2].removesuffix("_frac").replace("_", " ")


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)

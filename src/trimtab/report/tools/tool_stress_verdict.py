"""Verdict of a stress test of tools, as a JSON object and as lines of a screen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trimtab.catalog import bound
from trimtab.traces.core.plural import counted


def tool_stress_verdict(
    target: str, mix: Mapping[str, Any], result: Mapping[str, Any], chaos: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the verdict.

    Args:
        target: What was stressed.
        mix: `source` of the calls and the `tools` called.
        result: `StressResult.row()`.
        chaos: `rates`, `seed` and `injected` faults ("tool mode" -> count), where chaos was on.

    Returns:
        The result with `verdict`, `headline` and `exit_code`: 1 when a stated objective is missed.

    Example:
        >>> row = {"objective_stated": False, "objective_met": True, "knee_concurrency": 7.9,
        ...        "peak_throughput": 80.0}
        >>> tool_stress_verdict("m:f", {}, row)["headline"]
        'Up to 80 calls/s, reached with 8 callers; more only wait.'
    """
    stated, met = result["objective_stated"], result["objective_met"]
    headline = (
        f"Up to {_number(result['peak_throughput'])} calls/s, reached with {_knee(result)}; more only wait."
    )
    if stated:
        goal, holds = result["objective"], result["holds_concurrency"]
        wanted = f"{goal_text(goal)} with {counted(goal['concurrency'], 'caller')}"
        reached = f"holds up to {counted(holds, 'caller')}" if holds else "does not hold at any load tried"
        headline = f"{'Held' if met else 'Missed'}: {wanted}; it {reached}. {headline}"
    verdict = "not asked" if not stated else "held" if met else "missed"
    return {
        "target": target, "verdict": verdict, "headline": headline, "mix": dict(mix), **result,
        "chaos": dict(chaos) if chaos else None, "exit_code": 0 if met else 1,
    }  # fmt: skip


def goal_text(goal: Mapping[str, Any]) -> str:
    """
    >>> goal_text({"p99_s": 0.5, "error_rate": float("nan")})
    'p99 within 500 ms'
    """
    parts = []
    if _known(goal["p99_s"]):
        parts.append(f"p99 within {seconds_text(goal['p99_s'])}")
    if _known(goal["error_rate"]):
        parts.append(f"at most {100 * goal['error_rate']:.3g} % errors")
    return " and ".join(parts)


def tool_stress_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the lines of the screen."""
    lines = [f"{result['verdict'].upper()}  {result['target']}", result["headline"], ""]
    mix = result["mix"]
    lines += [f"Calls: {mix['source']}; tools: {', '.join(mix['tools'][:8])}", ""]
    lines.append(f"{'callers':>8} {'calls/s':>9} {'p50':>8} {'p95':>8} {'p99':>8} {'p99.9':>8} {'errors':>7}")
    lines += [_point(row, str(row["concurrency"])) for row in result["points"]]
    opened = result["open_loop"]
    lines += [
        _point(opened, "open"),
        f"open: arrivals at {_number(opened['rate'])}/s, latency from when a call was due",
        *delay_lines(opened),
        "",
    ]
    errors = error_rows(result)
    if errors:
        lines += ["Errors: " + "; ".join(f"{kind} {count}" for kind, count in errors)]
        lines += ["Failed tools: " + "; ".join(f"{name} {count}" for name, count in failed_tools(result)[:8])]
    lines += [*chaos_lines(result.get("chaos"), result), *forecast_lines(result["forecast"])]
    return lines


def delay_lines(opened: Mapping[str, Any]) -> list[str]:
    """Was the client itself late in sending the open loop's calls? Then it is part of what was measured.

    >>> delay_lines({"sent_late_p99_s": 0.004, "p99_s": 0.3})
    []
    """
    late, slow = opened.get("sent_late_p99_s", math.nan), opened.get("p99_s", math.nan)
    if not (_known(late) and _known(slow)) or late <= bound("stress_late") * slow:
        return []
    return [
        f"This machine was too busy to send calls in time: 1 % went out {seconds_text(late)} late or more. "
        "The open loop's tail is partly ours; test again with the machine free, or at a lower --rate."
    ]


def forecast_lines(forecast: Mapping[str, Any]) -> list[str]:
    """What a rollout and a step of training will take."""
    calls = _number(forecast["calls_per_rollout"])
    wait = seconds_text(forecast["tool_seconds_per_rollout"])
    step = seconds_text(forecast["min_tool_seconds_per_step"])
    callers = counted(forecast["at_concurrency"], "caller")
    lines = [
        f"A rollout of {calls} calls waits {wait} for tools at {callers}; a step of "
        f"{forecast['rollouts_per_step']} rollouts at least {step}."
    ]
    if forecast["cost_per_rollout"]:
        lines.append(f"Cost of a rollout: {forecast['cost_per_rollout']:.4g}")
    if forecast["broken_rollout_frac"]:
        share = 100 * forecast["broken_rollout_frac"]
        lines.append(f"Without retries the infrastructure breaks {share:.3g} % of the rollouts.")
    return lines


def chaos_lines(chaos: Mapping[str, Any] | None, result: Mapping[str, Any]) -> list[str]:
    """How many faults were injected, and how many calls failed: the rest passed for answers."""
    if not chaos:
        return []
    injected = sum(chaos["injected"].values())
    failed = sum(count for _, count in error_rows(result))
    kinds = ", ".join(f"{name} {count}" for name, count in sorted(chaos["injected"].items()))
    lines = [
        f"Chaos (seed {chaos['seed']}): {counted(injected, 'fault')}, "
        f"{counted(failed, 'failed call')}. {kinds}"
    ]
    if chaos["silent"]:
        lines.append(
            f"{counted(chaos['silent'], 'spoiled result')} looked like an answer: give the tool a "
            "check_result, or rewards will be computed from them."
        )
    return lines


def error_rows(result: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Errors of all levels by blame and kind, the commonest first."""
    return _summed(result, "errors")


def failed_tools(result: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Failed calls of all levels by tool."""
    return _summed(result, "failed_tools")


def seconds_text(value: Any) -> str:
    """
    >>> seconds_text(0.0123), seconds_text(75.0), seconds_text(None)
    ('12.3 ms', '75 s', '-')
    """
    if not _known(value):
        return "-"
    return f"{1000 * value:.3g} ms" if value < 1 else f"{value:.3g} s"


def _summed(result: Mapping[str, Any], key: str) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for row in (*result["points"], result["open_loop"]):
        for name, count in row[key].items():
            counts[name] = counts.get(name, 0) + count
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def _point(row: Mapping[str, Any], label: str) -> str:
    times = " ".join(f"{seconds_text(row[key]):>8}" for key in ("p50_s", "p95_s", "p99_s", "p999_s"))
    return f"{label:>8} {_number(row['throughput']):>9} {times} {100 * row['error_frac']:>6.2f}%"


def _knee(result: Mapping[str, Any]) -> str:
    knee = result["knee_concurrency"]
    return counted(max(round(knee), 1), "caller") if _known(knee) else "no caller"


def _number(value: Any) -> str:
    return "-" if not _known(value) else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _known(value: Any) -> bool:
    return value is not None and math.isfinite(value)

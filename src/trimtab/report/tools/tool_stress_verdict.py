"""Verdict of a stress test of tools, as a JSON object and as lines of a screen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trimtab.catalog import bound
from trimtab.report.control_characters import escape_controls
from trimtab.traces.core.plural import counted

DRAWN_ADVICE = "Arguments were drawn from the schema, and tools refused some; give real calls with --trace."


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
        >>> row = {"objective_stated": False, "objective_met": True, "knee_concurrency": 7.9, "points": [],
        ...        "peak_throughput": 80.0, "reached_concurrency": 8, "failures": []}
        >>> tool_stress_verdict("m:f", {}, row)["headline"]
        'Up to 80 good calls/s, reached with 8 callers; the knee is at 8 callers, more only wait.'
    """
    stated, met = result["objective_stated"], result["objective_met"]
    headline = _peak_text(result)
    if stated:
        goal, holds = result["objective"], result["holds_concurrency"]
        wanted = f"{goal_text(goal)} with {counted(goal['concurrency'], 'caller')}"
        reached = f"holds up to {counted(holds, 'caller')}" if holds else "does not hold at any load tried"
        headline = f"{'Held' if met else 'Missed'}: {wanted}; it {reached}. {headline}"
    if mix.get("drawn") and any(is_refusal(row["kind"]) for row in result["failures"]):
        headline += f" {DRAWN_ADVICE}"
    verdict = "no objective stated" if not stated else "held" if met else "missed"
    return {
        "target": target, "verdict": verdict, "headline": headline, "mix": dict(mix), **result,
        "chaos": dict(chaos) if chaos else None, "exit_code": 0 if met else 1,
    }  # fmt: skip


def _peak_text(result: Mapping[str, Any]) -> str:
    """Highest throughput, the level that reached it with its failures, and the knee or why there is none."""
    count = result["reached_concurrency"]
    failing = next((row["error_frac"] for row in result["points"] if row["concurrency"] == count), 0.0)
    peak = number_text(result["peak_throughput"])
    text = f"Up to {peak} good calls/s, reached with {counted(count, 'caller')}"
    if failing:
        text += f", where {100 * failing:.3g} % of the calls failed"
    if not _known(result["knee_concurrency"]):
        return f"{text}; {result['knee_reason']}."
    knee = counted(max(round(result["knee_concurrency"]), 1), "caller")
    return f"{text}; the knee is at {knee}, more only wait."


def is_refusal(kind: str) -> bool:
    """Did the tool refuse what it was called with, as far as a kind of failure says?

    >>> is_refusal("policy/refused"), is_refusal("tool/error"), is_refusal("infrastructure/connection")
    (True, True, False)
    """
    return kind == "tool/error" or kind.startswith("policy/")


def missed_by_drawn_arguments(result: Mapping[str, Any]) -> bool:
    """Would the objective be held but for calls whose drawn arguments the tools refused?

    Refusals that come with load are the tools' own: they may be at most `stress_drawn_ratio` times as
    frequent as with the fewest callers.

    Args:
        result: of `tool_stress_verdict`.
    """
    if result["verdict"] != "missed" or not result["mix"].get("drawn"):
        return False
    goal, points = result["objective"], result["points"]
    rows = [row for row in points if row["concurrency"] == goal["concurrency"]]
    rows += [result["open_loop"]] if result["rate_stated"] else []
    alone = _refused_frac(points[0])
    for row in rows:
        refused = _refused_frac(row)
        if refused > bound("stress_drawn_ratio") * alone or not row["answered"]:
            return False
        if _known(goal["p99_s"]) and not row["p99_s"] <= goal["p99_s"]:
            return False
        if _known(goal["error_rate"]) and row["error_frac"] - refused > goal["error_rate"] + 1e-12:
            return False
    return bool(rows) and alone > 0


def _refused_frac(row: Mapping[str, Any]) -> float:
    refused = sum(count for kind, count in row["errors"].items() if is_refusal(kind))
    return float(refused / max(row["calls"] + row["not_sent"], 1))


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
    lines += [f"Calls: {mix['source']}; tools: {', '.join(mix['tools'][:8])}", *left_out_lines(mix), ""]
    lines.append(
        f"{'callers':>8} {'good/s':>9} {'failed/s':>9} {'p50':>8} {'p95':>8} {'p99':>8} {'p99.9':>8} "
        f"{'errors':>7}"
    )
    lines += [_point(row, str(row["concurrency"])) for row in result["points"]]
    opened = result["open_loop"]
    lines += [
        _point(opened, "open"),
        f"open: arrivals at {number_text(opened['rate'])}/s, latency from when a call was due",
        *delay_lines(opened),
        "",
    ]
    errors = error_rows(result)
    if errors:
        lines += ["Errors: " + "; ".join(f"{kind} {count}" for kind, count in errors)]
        lines += ["Failed tools: " + "; ".join(f"{name} {count}" for name, count in failed_tools(result)[:8])]
        lines += failure_lines(result)
    lines += [*chaos_lines(result.get("chaos"), result), *forecast_lines(result["forecast"])]
    return [escape_controls(line) for line in lines]


def failure_lines(result: Mapping[str, Any], maximum: int = 8) -> list[str]:
    """The first failed call of each tool and kind, the commonest first."""
    return [
        f"  {row['tool']} {row['kind']} {row['count']}, first with {row['arguments']}: {row['error']}"
        for row in result["failures"][:maximum]
    ]


def left_out_lines(mix: Mapping[str, Any]) -> list[str]:
    """Which tools were left out of the load.

    >>> left_out_lines({"left_out": ["sleep"]})
    ['Left out, as nobody named it and one call takes more than 2 s: sleep. Call it with --tool.']
    """
    names = mix.get("left_out") or []
    if not names:
        return []
    one = len(names) == 1
    return [
        f"Left out, as nobody named {'it' if one else 'them'} and one call takes more than "
        f"{bound('stress_slow_call'):g} s: {', '.join(names)}. Call {'it' if one else 'them'} with --tool."
    ]


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
    calls = number_text(forecast["calls_per_rollout"])
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
    failed = number_text(row["failed_rate"])
    return (
        f"{label:>8} {number_text(row['throughput']):>9} {failed:>9} {times} {100 * row['error_frac']:>6.2f}%"
    )


def number_text(value: Any) -> str:
    """
    >>> number_text(1234.5), number_text(0.5), number_text(None)
    ('1,234', '0.5', '-')
    """
    return "-" if not _known(value) else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _known(value: Any) -> bool:
    return value is not None and math.isfinite(value)

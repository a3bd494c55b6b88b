"""The audit of a reward in lines and as a page, and the series of a run folder that it reads."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import RewardError
from trimtab.measure.sequences.aggregates import trainer_aggregates
from trimtab.report.control_characters import escape_controls
from trimtab.report.rewards.audit_chart import audit_chart
from trimtab.report.rewards.reward_page import reward_page
from trimtab.report.run_view import load_view
from trimtab.report.screen import cut, figure
from trimtab.rewards.audit.series_audit import AuditSeries
from trimtab.traces.core.plural import counted
from trimtab.typing import Float64, Int64

_PART = re.compile(r"(?:rewards?|reward_part)[/:](.+?)(?:/mean)?")
_STATISTIC = re.compile(r"std|min\b|max\b|margin|length|frac")
"""In names of what is not a part of a reward."""
_MAX_PATTERNS = 8


def series_of_run(folder: Path, reward: str = "", held_out: str = "") -> AuditSeries:
    """Return the series of a run folder: what the trainer logged at each step.

    Args:
        reward: key of the reward in the trainer's metrics; its mean reward without one.
        held_out: key of what confirms it.

    Raises:
        RewardError: no such key, or a run without a reward.
    """
    columns: dict[str, tuple[list[int], list[float]]] = {}
    for row in load_view(folder).steps:
        metrics = dict(row["metrics"])
        for name, value in {**metrics, **trainer_aggregates(metrics)}.items():
            if isinstance(value, (int, float)):
                steps, values = columns.setdefault(name, ([], []))
                steps.append(int(row["step"]))
                values.append(float(value))
    for key in (reward or "reward", held_out):
        if key and key not in columns:
            listed = ", ".join(sorted(k for k in columns if "reward" in k)[:8]) or "none"
            raise RewardError(f"{folder} has no {key!r}; its columns of rewards: {listed}")
    series = {name: (np.array(s, np.int64), np.array(v, np.float64)) for name, (s, v) in columns.items()}
    parts: dict[str, tuple[Int64, Float64]] = {
        match.group(1): series[name] for name in series
        if (match := _PART.fullmatch(name)) and name != held_out and not _STATISTIC.search(name)
    }  # fmt: skip
    also = ("length", "entropy", "kl", "truncated_frac")
    others: dict[str, tuple[Int64, Float64]] = {name: series[name] for name in also if name in series}
    confirming = series[held_out] if held_out else None
    return AuditSeries(
        str(folder), series[reward or "reward"], reward or "reward", confirming, held_out, parts, others
    )


def audit_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the audit in lines: verdict, evidence, and of completions tasks and patterns."""
    reward = result["reward"]
    lines = [
        f"{result['verdict'].upper()}: {result['source']}", f"  {result['why']}",
        f"  {reward['name']}: {_span(reward)}, over {counted(result['num_steps'], 'step')}",
    ]  # fmt: skip
    if result["held_out"]:
        lines.append(f"  {result['held_out']['name']}: {_span(result['held_out'])}")
    if result["evidence"]:
        lines += ["", "Evidence:", *(f"  {line}" for line in result["evidence"])]
    if result.get("patterns"):
        bar = f"reward {figure(result['high_reward'])} or more"
        head = f"{counted(result['num_new_high'], 'newly high-scoring completion')} ({bar})"
        tested = counted(result["num_tested"], "pattern")
        lines += ["", f"Commoner in {head} than early; log-odds, interval for {tested} at once:"]
        for row in result["patterns"][:_MAX_PATTERNS]:
            shares = f"{100 * row['frac_new']:.0f} % of them, {100 * row['frac_old']:.0f} % before"
            odds = f"{row['log_odds']:.1f} ({row['low']:.1f} to {row['high']:.1f})"
            lines.append(cut(f"  {row['pattern']}: {shares}; {odds}"))
    if result.get("tasks"):
        lines += ["", "Tasks that add most to the rise:"]
        for row in result["tasks"]:
            span = f"{figure(row['before'])} -> {figure(row['after'])}"
            lines.append(cut(f"  {span}, {counted(row['episodes'], 'episode')}: {row['task']}"))
    if "length" in result:
        size = result["length"]
        related = size["reward_correlation"]
        also = "" if not math.isfinite(related) else f"; reward and length correlate at {related:+.2f}"
        lines.append(f"  median length {figure(size['early'])} -> {figure(size['late'])} characters{also}")
    if result.get("num_unscored"):
        lines.append(f"  left out: {counted(result['num_unscored'], 'episode')} without a finite reward")
    return [escape_controls(line) for line in lines]


def _span(row: Mapping[str, Any]) -> str:
    if not math.isfinite(row["change"]):
        return "too few values"
    interval = f"{figure(row['low'], '+')} to {figure(row['high'], '+')}"
    return (
        f"{figure(row['before'])} -> {figure(row['after'])}, change {figure(row['change'], '+')} ({interval})"
    )


def render_audit_page(result: Mapping[str, Any]) -> str:
    """Return the page of an audit; it refers to nothing outside itself."""
    provenance = [("Source", str(result["source"])), ("Steps", f"{result['num_steps']:,}")]
    if "num_episodes" in result:
        provenance.append(("Episodes", f"{result['num_episodes']:,}"))
    title = Path(str(result["source"])).name
    drawn = {**result, "chart": audit_chart(result["series"])}
    return reward_page("reward_audit.html", "audit of a reward", title, drawn, provenance)

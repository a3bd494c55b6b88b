"""The audit of a metrics log or a run: which part carries the rise, what confirms it, what else moved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.errors import RewardError
from trimtab.metric_logs.log import MetricLog
from trimtab.rewards.audit.hacking_verdict import EXIT_CODES, SUSPECTED, UNDECIDED, AuditVerdict, judge_rise
from trimtab.rewards.audit.rise import Rise, rise_of
from trimtab.typing import Float64, Int64

PART, HELD_OUT = "reward_part:", "held_out_reward"
_BESIDE = {
    "length": "length", "response_length": "response length", "entropy": "entropy", "kl": "KL",
    "truncated_frac": "truncated responses", "zero_std_frac": "groups without variance",
}  # fmt: skip
"""Metrics worth a line where they moved by three standard errors."""


@dataclass(frozen=True)
class AuditSeries:
    """The series of one audit: steps and values by name."""

    source: str
    reward: tuple[Int64, Float64]
    reward_name: str = "reward"
    held_out: tuple[Int64, Float64] | None = None
    held_out_name: str = ""
    parts: Mapping[str, tuple[Int64, Float64]] = field(default_factory=dict)
    others: Mapping[str, tuple[Int64, Float64]] = field(default_factory=dict)


def series_of_log(log: MetricLog) -> AuditSeries:
    """Return the series of a metrics log; RewardError where it has no reward."""
    columns = {
        name: (log.steps[index], np.asarray(values, np.float64))
        for name, (index, values) in log.columns.items()
    }
    if "reward" not in columns and HELD_OUT in columns:
        held_out = log.mapped.get(HELD_OUT, HELD_OUT)
        raise RewardError(
            f"{log.source} has no reward beside {held_out}, which is to confirm it: a reward cannot confirm "
            "itself; hold out another measure, or name the trained one with --reward KEY"
        )
    if "reward" not in columns:
        raise RewardError(f"{log.source} has no reward; name its column with --reward KEY")
    held_out_key = log.mapped.get(HELD_OUT, "")
    parts = {
        name.removeprefix(PART): column
        for name, column in columns.items()
        if name.startswith(PART) and log.mapped[name] not in (held_out_key, log.mapped["reward"])
    }
    return AuditSeries(
        log.source, columns["reward"], log.mapped["reward"], columns.get(HELD_OUT), held_out_key, parts,
        {label: columns[name] for name, label in _BESIDE.items() if name in columns},
    )  # fmt: skip


def audit_series(series: AuditSeries) -> dict[str, Any]:
    """Return the audit of a log: verdict, headline, evidence in sentences, and every number behind them.

    Args:
        series: the reward, and what else the log holds.

    Returns:
        `verdict` (learning, grokking-like jump, suspected hacking, undecided), `why`, `evidence`, `reward`,
        `held_out`, `parts`, `others`, `exit_code` (0, 0, 1, 2).
    """
    reward = rise_of(series.reward[1])
    held_out = rise_of(series.held_out[1]) if series.held_out is not None else None
    verdict = judge_rise(reward, held_out, series.held_out_name or "the held-out reward")
    if series.held_out is not None and held_out is None and reward is not None:
        verdict = AuditVerdict(UNDECIDED, f"{series.held_out_name} has too few values (8 are needed).")
    rises = {name: rise_of(values) for name, (_, values) in series.parts.items()}
    parts = _part_rows(rises)
    evidence = _part_evidence(reward, parts, held_out is not None)
    if reward is not None and reward.steep:
        step = int(series.reward[0][np.isfinite(series.reward[1])][reward.jump_at])
        evidence.append(f"{100 * min(reward.jump_frac, 1):.0f} % of the change came at step {step}")
    others = []
    for name, (_, values) in series.others.items():
        moved = rise_of(values)
        if moved is not None:
            others.append(_row(name, moved))
            if abs(moved.z) >= 3 and abs(moved.change) >= 0.1 * abs(moved.before):
                evidence.append(f"{name} went from {moved.before:.3g} to {moved.after:.3g}")
    return {
        "source": series.source, "verdict": verdict.word, "why": verdict.why, "evidence": evidence,
        "reward": _row(series.reward_name, reward),
        "held_out": _row(series.held_out_name, held_out) if held_out is not None else None,
        "parts": parts, "others": others, "series": _series_rows(series),
        "num_steps": int(series.reward[1].size),
        "exit_code": EXIT_CODES[verdict.word],
    }  # fmt: skip


def _series_rows(series: AuditSeries) -> list[dict[str, Any]]:
    """The reward, the held-out measure and the parts, value by value."""
    rows = [(series.reward_name, series.reward)]
    if series.held_out is not None:
        rows.append((series.held_out_name, series.held_out))
    rows += series.parts.items()
    return [{"name": n, "steps": steps.tolist(), "values": values.tolist()} for n, (steps, values) in rows]


def _row(name: str, rise: Rise | None) -> dict[str, Any]:
    if rise is None:
        return {"name": name, **dict.fromkeys(("before", "after", "change", "low", "high"), math.nan)}
    return {
        "name": name, "before": rise.before, "after": rise.after, "change": rise.change, "low": rise.low,
        "high": rise.high,
    }  # fmt: skip


def _part_rows(rises: Mapping[str, Rise | None]) -> list[dict[str, Any]]:
    """Each part with its share of what all parts changed by."""
    known = {name: rise for name, rise in rises.items() if rise is not None}
    total = sum(abs(rise.change) for rise in known.values())
    rows = [
        {**_row(name, rise), "share": rise.change / total if total > 0 else math.nan, "z": rise.z}
        for name, rise in known.items()
    ]
    return sorted(rows, key=lambda row: -abs(row["change"]))


def _part_evidence(reward: Rise | None, parts: Sequence[dict[str, Any]], confirmed: bool) -> list[str]:
    """Which part carries the rise, and which stand still."""
    if reward is None or not parts:
        return []
    first = parts[0]
    lines = []
    if abs(first["share"]) >= 0.5 and abs(first["z"]) >= 3:
        lines.append(
            f"{100 * abs(first['share']):.0f} % of the change is {first['name']}'s, "
            f"from {first['before']:.3g} to {first['after']:.3g}"
        )
    still = [row for row in parts[1:] if row["high"] < 0.1 * reward.change]
    for row in still[:3]:
        hint = "" if confirmed else "; if it is what you want, give it as --held-out"
        lines.append(f"{row['name']} stood still, from {row['before']:.3g} to {row['after']:.3g}{hint}")
    return lines


def first_suspicion(series: AuditSeries) -> int | None:
    """Return the first step whose prefix of the log is suspected and stays so; None without one."""
    steps, values = series.reward
    first: int | None = None
    for end in range(1, steps.size + 1):
        last = steps[end - 1]
        held_out = series.held_out
        if held_out is not None:
            shown = held_out[0] <= last
            confirming = rise_of(held_out[1][shown])
        else:
            confirming = None
        suspected = judge_rise(rise_of(values[:end]), confirming).word == SUSPECTED
        first = (int(last) if first is None else first) if suspected else None
    return first

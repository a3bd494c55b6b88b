"""A run's snapshots in a terminal: one row a snapshot, what changed between two, and which one to keep."""

from __future__ import annotations

import math
from typing import Any

from trimtab.report.control_characters import escape_controls
from trimtab.traces.core.plural import counted

Json = dict[str, Any]

_MAX_ROWS = 20
_MAX_ANSWER = 150
_COLUMNS = (
    ("step", 6), ("reward", 8), ("refusal", 8), ("length", 8), ("call", 7), ("bad call", 9), ("cut", 7),
    ("repeat", 8), ("entropy", 8), ("drift", 8), ("alarms", 0),
)  # fmt: skip


def snapshot_lines(summary: Json) -> list[str]:
    """Return the lines of `trimtab snapshots`, safe to print.

    Args:
        summary: What `snapshot_summary` returns.

    Returns:
        One line each, without newlines.

    Example:
        >>> snapshot_lines(snapshot_summary(load_view("runs/exp1")))[-1]  # doctest: +SKIP
    """
    rows = summary["snapshots"]
    lines = [
        f"{summary['run']}: {counted(len(rows), 'snapshot')}, steps {rows[0]['step']} to {rows[-1]['step']}; "
        f"{counted(summary['num_prompts'], 'prompt')}, {counted(summary['num_transcripts'], 'transcript')}",
        *(f"  missing: {problem}" for problem in summary["problems"]),
        "",
        "".join(name.rjust(width) if width else f"  {name}" for name, width in _COLUMNS).rstrip(),
    ]
    lines += [_row(row, summary["advice"]["step"]) for row in _thinned(rows)]
    if len(rows) > _MAX_ROWS:
        lines.append(f"  ({len(rows) - _MAX_ROWS} more snapshots; --json has all)")
    if summary["comparison"] is not None:
        lines += ["", *_comparison(summary["comparison"])]
    lines += ["", summary["advice"]["sentence"]]
    return [escape_controls(line) for line in lines]


def _thinned(rows: list[Json]) -> list[Json]:
    """First and last, and evenly between them."""
    if len(rows) <= _MAX_ROWS:
        return rows
    return [rows[round(i * (len(rows) - 1) / (_MAX_ROWS - 1))] for i in range(_MAX_ROWS)]


def _row(row: Json, advised: int) -> str:
    traits = row["traits"]
    entropies = [value for value in row["entropy"].values() if math.isfinite(value)]
    reward = traits["reward"] if math.isfinite(traits["reward"]) else row.get("training_reward", math.nan)
    cells = [
        str(row["step"]), _number(reward), _percent(traits["refusal"]), _number(traits["length"]),
        _percent(traits["tool_call"]), _percent(traits["malformed_call"]), _percent(traits["truncated"]),
        _percent(traits["repetition"]), _number(sum(entropies) / len(entropies) if entropies else math.nan),
        _number(row["drift"]),
    ]  # fmt: skip
    text = "".join(cell.rjust(width) for cell, (_, width) in zip(cells, _COLUMNS, strict=False))
    alarms = ", ".join(row.get("alarms", [])[:2])
    return f"{text}  {alarms}{'  <- keep' if row['step'] == advised else ''}".rstrip()


def _comparison(compared: Json) -> list[str]:
    level = f"{counted(compared['num_tests'], 'test')}, Holm's correction, 95 % intervals"
    lines = [f"step {compared['before']} -> {compared['after']} ({compared['num_pairs']} prompts; {level}):"]
    changed = [row for row in compared["changes"] if row["changed"]]
    lines += [change_line(row) for row in changed] or ["  no trait changed beyond chance"]
    others = [row for row in compared["changes"] if not row["changed"] and math.isfinite(row["p"])]
    if others:
        names = ", ".join(f"{row['trait']}{_of(row)} {_signed(row['difference'])}" for row in others)
        lines.append(f"  within chance: {names}")
    for row in compared["drift"]:
        band = f" ({_number(row['low'])} to {_number(row['high'])})" if math.isfinite(row["low"]) else ""
        lines.append(
            f"  |change of log p| {row['statistic']}, {row['slice']}: {_number(row['value'])} nats{band}, "
            f"{counted(row['num_tokens'], 'token')}"
        )
    for example in compared["examples"]:
        lines.append(f"  {' '.join(example['traits'])} on {_cut(example['prompt'])}")
        lines += [f"    was: {_cut(example['before'])}", f"    now: {_cut(example['after'])}"]
    return lines + [f"  {note}" for note in compared["notes"]]


def change_line(row: Json) -> str:
    """Return one change as a line.

    >>> row = {"trait": "refusal", "slice": "all", "unit": "fraction", "before": 0.0, "after": 0.5}
    >>> test = {"n": 24, "difference": 0.5, "low": 0.27, "high": 0.69, "p": 0.0005, "p_holm": 0.004}
    >>> change_line(row | test)
    '  refusal: 0 % -> 50 % (+50 %, 27 % to 69 %; p 0.004, n 24)'
    """
    show = _percent if row["unit"] == "fraction" else _number
    sign = "+" if row["difference"] >= 0 else ""
    difference = f"{sign}{show(row['difference'])}, {show(row['low'])} to {show(row['high'])}"
    levels = f"{show(row['before'])} -> {show(row['after'])}"
    return f"  {row['trait']}{_of(row)}: {levels} ({difference}; p {row['p_holm']:.2g}, n {row['n']})"


def _of(row: Json) -> str:
    return "" if row["slice"] == "all" else f" ({row['slice']})"


def _signed(value: float) -> str:
    return f"{value:+.2g}"


def _number(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{100 * value:.0f} %"


def _cut(text: str) -> str:
    words = " ".join(text.split())
    return repr(words if len(words) <= _MAX_ANSWER else f"{words[: _MAX_ANSWER - 3]}...")

"""Tables of a run: its tools, the worst tokens of its latest windows, and what the guard did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.capture.segments import MAX_NAMES
from trimtab.measure.policy.exemplar_tokens import EXEMPLAR_RATIOS, EXEMPLAR_SLICES
from trimtab.measure.state.worst_tokens import Worst, WorstToken
from trimtab.runs.action_rows import action_text
from trimtab.traces.core.coerce import as_list, as_object

_RARE = 0.01
_KINDS = (float, float, float, int, int, int, str, int)  # of the fields of a stored `WorstToken`


def exemplar_table(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a token of the latest window of `text` and of `post_tool`, worst first a ratio.

    `rows` are the run store's `exemplars`, of any number of ranks; what is malformed inside one is left out.
    `value`, `logprob` and `other_logprob` are nats: |log-ratio|, its numerator and its denominator.
    """
    selected = [row for row in rows if row["slice"] in EXEMPLAR_SLICES]
    table: list[dict[str, Any]] = []
    for name in EXEMPLAR_SLICES:
        mine = [row for row in selected if row["slice"] == name]
        if not mine:
            continue
        newest = max(mine, key=lambda row: int(row["last"]))
        latest = [row for row in mine if row["last"] >= newest["first"]]  # other ranks' windows overlap it
        for ratio in EXEMPLAR_RATIOS:
            worst, text, around = Worst(), {}, dict[WorstToken, tuple[str, str]]()
            for row in latest:
                contexts = _contexts(row, ratio)
                for i, (token, words) in enumerate(_tokens(row["tokens"].get(ratio))):
                    worst.update([token])
                    text[token] = words
                    around[token] = contexts[i] if i < len(contexts) else ("", "")
            shown = []
            for token in worst.tokens:
                before, after = around[token]
                row = _shown(name, ratio, token, text[token], newest)
                shown.append({**row, "before": before, "after": after})
            table += merge_similar(shown)
    return table


def merge_similar(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for tokens of one text after one tool in one turn: the worst of them, with their
    `count`."""
    merged: dict[tuple[object, ...], dict[str, Any]] = {}
    for row in rows:
        token = row["text"] if row["text"] is not None else row["token_id"]
        key = (token, row["tool"], row["turn"]) if token is not None else (id(row),)
        merged.setdefault(key, {**row, "count": 0})["count"] += 1
    return list(merged.values())


def _contexts(row: dict[str, Any], ratio: str) -> list[tuple[str, str]]:
    """The text before and after each token of a row, where it was recorded."""
    pairs = as_list(as_object(row.get("context")).get(ratio))
    known = (pair if isinstance(pair, list) and len(pair) == 2 else ("", "") for pair in pairs)
    return [(str(before), str(after)) for before, after in known]


def _tokens(items: Any) -> Iterable[tuple[WorstToken, str | None]]:
    for item in as_list(items):
        try:
            *values, words = item
            token = WorstToken(*(kind(value) for kind, value in zip(_KINDS, values, strict=True)))
        except (TypeError, ValueError):
            continue
        yield token, None if words is None else str(words)


def _shown(name: str, ratio: str, token: WorstToken, text: str | None, row: dict[str, Any]) -> dict[str, Any]:
    fields = {field: getattr(token, field) for field in ("value", "episode", "position", "turn", "tool")}
    logprobs = {"logprob": token.numerator, "other_logprob": token.denominator}
    word = {"token_id": None if token.token < 0 else token.token, "text": text}
    return {
        "slice": name,
        "ratio": ratio,
        **fields,
        **logprobs,
        **word,
        "first": row["first"],
        "last": row["last"],
    }


def tools_table(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls, share of errors, latency p50 and p99 in seconds, median result size, most used tool first.

    A model makes names up: names beyond the 16 most called, and those with under 1 % of the calls, are
    gathered under `other`, with their number.
    """
    by_tool: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_tool.setdefault(str(row["name"]) or "(no name)", []).append(row)
    total = sum(map(len, by_tool.values()))
    ranked = sorted(by_tool, key=lambda name: -len(by_tool[name]))
    rare = [name for i, name in enumerate(ranked) if i >= MAX_NAMES or len(by_tool[name]) < _RARE * total]
    if len(rare) > 1:
        by_tool[f"other ({len(rare)} names)"] = [row for name in rare for row in by_tool.pop(name)]
    table = []
    for tool, calls in by_tool.items():
        latency = np.array([row["latency_s"] for row in calls], dtype=np.float64)
        known = latency[np.isfinite(latency)]
        table.append({
            "tool": tool,
            "calls": len(calls),
            "error_frac": sum(bool(row["error"]) for row in calls) / len(calls),
            "latency_p50_s": float(np.quantile(known, 0.5)) if known.size else float("nan"),
            "latency_p99_s": float(np.quantile(known, 0.99)) if known.size else float("nan"),
            "result_size_p50": float(np.median([row["result_size"] for row in calls])),
        })  # fmt: skip
    return sorted(table, key=lambda row: -row["calls"])


def cleaned_values(steps: Iterable[dict[str, Any]]) -> dict[str, int]:
    """What was given in a form that cannot be stored -> how often it was cut or replaced."""
    counts = Counter[str]()
    for row in steps:
        if isinstance(cleaned := row.get("cleaned", {}), dict):
            counts.update({str(what): count for what, count in cleaned.items() if isinstance(count, int)})
    return dict(counts)


def actions_table(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the guard did as JSON types, one row an action: its label on charts, and texts.

    `drawn` is False for coefficients that follow a level and change at many steps. Rows whose parameters
    cannot be read are shown by the name of their action.
    """
    table = []
    for number, row in enumerate(rows, start=1):
        incident = as_object(row.get("incident"))
        table.append({
            "label": f"G{number}", "step": int(row["step"]), "action": str(row["action"]),
            "text": _text_of(row), "policy": str(row["policy"]), "note": str(row["note"]),
            "cause": str(incident.get("cause") or "undecided"), "since": incident.get("since"),
            "rules": [str(rule) for rule in as_list(incident.get("rules"))],
            "evidence": [str(text) for text in as_list(incident.get("evidence"))],
            "dry_run": bool(row["dry_run"]), "failure": str(row["failure"]),
            "alike": bool(row.get("alike", True)),
            "drawn": row["note"] != "adapted" and row["action"] != "warn",
        })  # fmt: skip
    return table


def _text_of(row: dict[str, Any]) -> str:
    try:
        return action_text(row)
    except (KeyError, TypeError, ValueError):
        return f"{row['action']} (its parameters cannot be read)"


def action_lines(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return one line an action: when, what, and why."""
    lines = []
    for one in actions_table(rows):
        why = f"{one['cause']} since step {one['since']}"
        failure = f"; FAILED: {one['failure']}" if one["failure"] else ""
        dry = " (dry run)" if one["dry_run"] else ""
        note = f"; {one['note']}" if one["note"] else ""
        lines.append(f"  step {one['step']:<6} {one['text']}{dry}: {one['policy']}, {why}{note}{failure}")
    return lines


def guard_line(rows: Sequence[dict[str, Any]], config: Mapping[str, Any]) -> str:
    """Return what the guard of a run did in one line; empty where the run has none.

    >>> guard_line([], {"guard": {}}), guard_line([], {})
    ('guard: no action', '')
    """
    if not rows:
        return "guard: no action" if "guard" in config else ""
    table = actions_table(rows)
    last, dry = table[-1], all(one["dry_run"] for one in table)
    failed = sum(bool(one["failure"]) for one in table)
    done = f"{len(table)} action{'s' * (len(table) != 1)}"
    parts = [
        f"guard: would have done {done} (dry run)" if dry else f"guard: {done}",
        *([f"{failed} FAILED"] if failed else []),
        *([] if all(one["alike"] for one in table) else ["RANKS DID NOT ACT ALIKE"]),
        f"last at step {last['step']}: {last['text']} ({last['cause']})",
    ]
    return ", ".join(parts)

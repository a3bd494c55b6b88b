"""What the data card says: counts, what was left out, what could be learnt in place of quality, and what to be warned of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimtab._version import __version__
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.export.pair_filters import OTHER_SYSTEM
from trimtab.traces.export.pairs import Pair
from trimtab.traces.export.samples import Sample

SAME_WORDS = "pairs with the same prompt, word for word"
OTHER_WORDS = "pairs of one task that began with other words"
SAME_PROMPT_ROWS = "rows whose prompt another row has too"
UNWRITTEN = "attempts that began with other words than the row of their task"
BY_PROMPT = "pairs by their prompt alone, as the log names no task"


def balance_of(pairs: Sequence[Pair]) -> dict[str, Any]:
    """What a model could learn instead of quality: that the chosen ones are longer or call more."""
    if not pairs:
        return {}
    size = np.array([(p.chosen.size, p.rejected.size) for p in pairs], float)
    calls = np.array([(p.chosen.calls, p.rejected.calls) for p in pairs], float)
    return {
        "episodes in pairs": len({one.episode for pair in pairs for one in (pair.chosen, pair.rejected)}),
        SAME_WORDS: sum(p.same_prompt for p in pairs),
        OTHER_WORDS: sum(not p.same_prompt for p in pairs),
        BY_PROMPT: sum(p.chosen.task is None for p in pairs),
        "mean characters written, chosen": float(size[:, 0].mean()), "mean characters written, rejected": float(size[:, 1].mean()),
        "share of pairs whose chosen is the shorter": float((size[:, 0] < size[:, 1]).mean()),
        "mean calls, chosen": float(calls[:, 0].mean()), "mean calls, rejected": float(calls[:, 1].mean()),
        "share of pairs whose chosen calls less": float((calls[:, 0] < calls[:, 1]).mean()),
        **given_by_others([p.chosen for p in pairs] + [p.rejected for p in pairs]),
    }  # fmt: skip


def given_by_others(samples: Sequence[Sample]) -> dict[str, Any]:
    """Messages that the agent did not write, or that came after its last."""
    return {
        "messages of tools and users inside completions, which the agent did not write": sum(
            s.given for s in samples
        ),
        "messages after the agent's last, left out": sum(s.trailing for s in samples),
    }


def opening_warnings(balance: Mapping[str, Any]) -> list[str]:
    """Of pairs whose rejected attempt began with other words."""
    other, same = balance.get(OTHER_WORDS, 0), balance.get(SAME_WORDS, 0)
    if not other:
        return []
    return [
        f"{other} of {other + same} pairs ({100 * other / (other + same):.0f} %) rest on a prompt that the rejected attempt never saw: it began "
        "with other words. Leave them out with --same-prompt, or have the attempts at a task open alike"
    ]


def greeting_warnings(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of conversations that the agent opens."""
    count = sum(
        next((m["role"] for m in row.get("prompt", row.get("messages", ())) if m["role"] not in ("system", "developer")), "")
        == "assistant"
        for row in rows
    )  # fmt: skip
    if not count:
        return []
    return [
        f"{count} of {len(rows)} rows begin with the agent's own words: chat templates that want the user's first (Gemma's, Mistral's) refuse them"
    ]


def prompt_warnings(balance: Mapping[str, Any]) -> list[str]:
    """Of prompts that do not tell the task, and of tasks that one prompt does not tell (grpo)."""
    count, unwritten = balance.get(SAME_PROMPT_ROWS, 0), balance.get(UNWRITTEN, 0)
    found = []
    if unwritten:
        found.append(
            f"{unwritten} attempts began with other words than the row of their task does, which has the first attempt's: where these are other "
            "questions, give them task ids of their own"
        )
    if not count:
        return found
    return [
        *found,
        f"{count} rows have the prompt of another row and are another task, by its name or by what users said later: their prompts alone, "
        "with which a trainer begins, do not say what is asked",
    ]


def mixed_warnings(samples: Sequence[Sample], left_out: Mapping[str, int]) -> list[str]:
    """What a person should know before training on the rows."""
    systems: dict[str, set[str]] = {}
    for sample in samples:
        if sample.task is not None:
            systems.setdefault(sample.task, set()).add(sample.key[1])
    mixed = [task for task, found in systems.items() if len(found) > 1]
    if not mixed:
        return []
    refused = left_out.get(OTHER_SYSTEM, 0)
    names = ", ".join(mixed[:3]) + (", ..." if len(mixed) > 3 else "")
    return [
        f"{len(mixed)} of {len(systems)} tasks ({names}) have attempts under different system prompts: logs of several tasks may share "
        "their names, which pools them"
        + (f"; {refused} pairs across prompts were not made" if refused else "")
    ]


def card_of(
    kind: str, names: list[str], output: Path, digest: str, report: ReadReport, rows: list[dict[str, Any]], left_out: Counter[str],
    source: str, balance: dict[str, Any], warnings: list[str],
) -> dict[str, Any]:  # fmt: skip
    """The card as JSON types."""
    with_tools = sum(row.get("tools") is not None for row in rows)
    return {
        "warnings": warnings, "kind": kind, "file": output.name, "sha256": digest, "rows": len(rows), "tasks": len({row["task"] for row in rows} - {None}),
        "rows with tool schemas": with_tools, "outcome": source, "logs": names, "formats": sorted(set(report.formats.values())),
        "episodes read": report.num_episodes, "malformed lines skipped": report.num_malformed,
        "left_out": {reason: count for reason, count in left_out.items() if count}, "balance": balance,
        "notes": dict(report.notes), "cut": "no text: messages, arguments and results are whole", "made by": f"trimtab {__version__}",
    }  # fmt: skip

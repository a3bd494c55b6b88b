"""The data card: counts, what was left out, what could be learnt in place of quality, and warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass
class Dataset:
    """Rows of one kind, and what the card says of them."""

    kind: str
    rows: list[dict[str, Any]]
    left_out: Counter[str]
    balance: dict[str, Any]
    outcome: str
    """Where scores come from."""
    warnings: list[str] = field(default_factory=list)


def balance_of(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return what a model could learn instead of quality: that the chosen ones are longer or call more."""
    if not pairs:
        return {}
    size = np.array([(p.chosen.size, p.rejected.size) for p in pairs], float)
    calls = np.array([(p.chosen.calls, p.rejected.calls) for p in pairs], float)
    return {
        "episodes in pairs": len({one.episode for pair in pairs for one in (pair.chosen, pair.rejected)}),
        SAME_WORDS: sum(p.same_prompt for p in pairs),
        OTHER_WORDS: sum(not p.same_prompt for p in pairs),
        BY_PROMPT: sum(p.chosen.task is None for p in pairs),
        "mean characters written, chosen": float(size[:, 0].mean()),
        "mean characters written, rejected": float(size[:, 1].mean()),
        "share of pairs whose chosen is the shorter": float((size[:, 0] < size[:, 1]).mean()),
        "mean calls, chosen": float(calls[:, 0].mean()),
        "mean calls, rejected": float(calls[:, 1].mean()),
        "share of pairs whose chosen calls less": float((calls[:, 0] < calls[:, 1]).mean()),
        **message_counts([p.chosen for p in pairs] + [p.rejected for p in pairs]),
    }


def message_counts(samples: Sequence[Sample]) -> dict[str, Any]:
    """Count messages that the agent did not write, or that came after its last."""
    others = sum(s.num_others for s in samples)
    return {
        "messages of tools and users inside completions, which the agent did not write": others,
        "messages after the agent's last, left out": sum(s.trailing for s in samples),
    }


def opening_warnings(balance: Mapping[str, Any]) -> list[str]:
    """Warn of pairs whose rejected attempt began with other words."""
    other, same = balance.get(OTHER_WORDS, 0), balance.get(SAME_WORDS, 0)
    if not other:
        return []
    return [
        f"{other} of {other + same} pairs ({100 * other / (other + same):.0f} %) rest on a prompt "
        "that the rejected attempt never saw: it began with other words. Leave them out with "
        "--same-prompt, or have the attempts at a task open alike"
    ]


def greeting_warnings(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Warn of conversations that the agent opens."""
    count = 0
    for row in rows:
        roles = [message["role"] for message in row.get("prompt", row.get("messages", ()))]
        count += next((role for role in roles if role not in ("system", "developer")), "") == "assistant"
    if not count:
        return []
    return [
        f"{count} of {len(rows)} rows begin with the agent's own words: chat templates that want the user's "
        "first (Gemma's, Mistral's) refuse them"
    ]


def prompt_warnings(balance: Mapping[str, Any]) -> list[str]:
    """Warn of prompts that do not identify the task, and of tasks with several prompts (grpo)."""
    count, unwritten = balance.get(SAME_PROMPT_ROWS, 0), balance.get(UNWRITTEN, 0)
    warnings = []
    if unwritten:
        warnings.append(
            f"{unwritten} attempts began with other words than the row of their task does, which has the "
            "first attempt's: where these are other questions, give them task ids of their own"
        )
    if count:
        warnings.append(
            f"{count} rows have the prompt of another row and are another task, by its name or by what users "
            "said later: their prompts alone, with which a trainer begins, do not say what is asked"
        )
    return warnings


def system_prompt_warnings(samples: Sequence[Sample], left_out: Mapping[str, int]) -> list[str]:
    """Warn of tasks whose attempts have different system prompts."""
    systems: dict[str, set[str]] = {}
    for sample in samples:
        if sample.task is not None:
            systems.setdefault(sample.task, set()).add(sample.key[1])
    mixed = [task for task, prompts in systems.items() if len(prompts) > 1]
    if not mixed:
        return []
    refused = left_out.get(OTHER_SYSTEM, 0)
    names = ", ".join(mixed[:3]) + (", ..." if len(mixed) > 3 else "")
    return [
        f"{len(mixed)} of {len(systems)} tasks ({names}) have attempts under different system prompts: logs "
        "of several tasks may share their names, which pools them"
        + (f"; {refused} pairs across prompts were not made" if refused else "")
    ]


def image_warnings(num_rows: int, num_all: int) -> list[str]:
    """Warn of rows that lack an image which the agent saw."""
    if not num_rows:
        return []
    return [
        f"{num_rows} of {num_all} rows lack an image, or another part that is not text, which the log has: "
        "they say [image_url], or its kind, where it stood"
    ]


def card_of(
    dataset: Dataset, logs: list[str], output: Path, digest: str, report: ReadReport
) -> dict[str, Any]:
    """Return the card as JSON types."""
    rows = dataset.rows
    return {
        "warnings": dataset.warnings,
        "kind": dataset.kind,
        "file": output.name,
        "sha256": digest,
        "rows": len(rows),
        "tasks": len({row["task"] for row in rows} - {None}),
        "rows with tool schemas": sum(row.get("tools") is not None for row in rows),
        "outcome": dataset.outcome,
        "logs": logs,
        "formats": sorted(set(report.formats.values())),
        "episodes read": report.num_episodes,
        "malformed lines skipped": report.num_malformed,
        "left_out": {reason: count for reason, count in dataset.left_out.items() if count},
        "balance": dataset.balance,
        "notes": dict(report.notes),
        "cut": "no text: messages, arguments and results are whole",
        "made by": f"trimtab {__version__}",
    }


def card_text(card: Mapping[str, Any]) -> str:
    """Return the card as Markdown.

    >>> print(card_text({"kind": "sft", "rows": 2, "left_out": {"no reward": 1}}))
    # Data card
    <BLANKLINE>
    - kind: sft
    - rows: 2
    - left_out:
      - no reward: 1
    <BLANKLINE>
    """
    lines = ["# Data card", ""]
    for text in card.get("warnings", ()):
        lines += [f"**WARNING: {_line(text)}**", ""]
    for name, value in card.items():
        if name == "warnings":
            continue
        if isinstance(value, dict):
            lines.append(f"- {name}:" if value else f"- {name}: nothing")
            lines += [f"  - {_line(key)}: {_line(item)}" for key, item in value.items()]
        elif isinstance(value, (list, tuple)):
            lines.append(f"- {name}: {', '.join(map(_line, value)) or 'none'}")
        else:
            lines.append(f"- {name}: {_line(value)}")
    return "\n".join([*lines, ""])


def _line(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("\n", " ")

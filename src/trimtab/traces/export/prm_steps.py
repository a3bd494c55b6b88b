"""Step-level labels for process reward models: each assistant turn is a step, right unless the log shows a
fault.

TRL's stepwise form: `prompt` and `completions` are text, `labels` true or false. The labels are what the log
shows, not whether a step helped.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from trimtab.traces.core.episode import Call, Episode, Turn
from trimtab.traces.errors.attribution import fault_of
from trimtab.traces.table.episode_facts import arguments_text
from trimtab.traces.table.first_symptom import is_void
from trimtab.traces.table.loops import without_stamps


def step_rows(
    episodes: Iterable[Episode], left_out: Counter[str]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a row for each episode, and the balance of labels for the card.

    A result stands at the head of the next step, so that the text of a step does not show its label.
    """
    rows: list[dict[str, Any]] = []
    why: Counter[str] = Counter()
    trailing = opened = 0
    for episode in episodes:
        if not any(turn.role == "assistant" for turn in episode.turns):
            left_out["episode without a turn of the assistant"] += 1
            continue
        prompt, start = _prompt(episode.turns)
        if not prompt:
            left_out["episode without a prompt"] += 1
            continue
        opened += any(turn.role == "assistant" for turn in episode.turns[:start])
        steps, reasons, rest = _steps(episode.turns[start:])
        trailing += rest
        why.update(reasons)
        task = episode.task if episode.task is not None else episode.group
        labels = [reason in _RIGHT for reason in reasons]
        row = {"prompt": prompt, "completions": steps, "labels": labels, "reasons": reasons}
        rows.append({**row, "tools": episode.tools or None, "task": task, "episode": episode.id})
    right = sum(count for reason, count in why.items() if reason in _RIGHT)
    return rows, {
        "steps labelled right": right,
        "steps labelled wrong": sum(why.values()) - right,
        **{f"steps: {reason}": count for reason, count in why.items()},
        "messages and results after the agent's last turn, left out": trailing,
        **({"episodes that the agent opened: its greeting stands in the prompt": opened} if opened else {}),
        "what a label means": "right: the log shows no failed, unreadable or repeated call and no empty "
        "turn in the step; not that it helped",
    }


def _prompt(turns: list[Turn]) -> tuple[str, int]:
    """The prompt, and the number of the first step's turn. None where the agent acts before anyone speaks.

    An agent that speaks first, and only speaks, greets: its words are of the prompt, and no step.
    """
    start = next(i for i, turn in enumerate(turns) if turn.role == "assistant")
    if not any(turn.content for turn in turns[:start]):
        request = next(
            (i for i, turn in enumerate(turns) if turn.role != "assistant" and turn.content), len(turns)
        )
        if any(turn.calls for turn in turns[:request]):
            return "", start
        later = (i for i in range(request, len(turns)) if turns[i].role == "assistant")
        start = next(later, len(turns))
        if start == len(turns):
            return "", start
    parts = (
        f"<assistant>\n{turn.content}\n</assistant>" if turn.role == "assistant" else turn.content
        for turn in turns[:start]
        if turn.content
    )
    return "\n\n".join(parts), start


_RIGHT = ("nothing wrong", "failed by the tool's fault")


def _steps(turns: list[Turn]) -> tuple[list[str], list[str], int]:
    steps: list[str] = []
    reasons: list[str] = []
    before: list[str] = []
    seen: set[tuple[str, str, str | None]] = set()
    for turn in turns:
        if turn.role == "assistant":
            own = [*filter(None, (turn.reasoning, turn.content)), *map(_call, turn.calls)]
            steps.append("\n".join([*before, *own]))
            reasons.append(_reason(turn, seen))
            before = []
        elif turn.content:
            before.append(f"<{turn.role}>\n{turn.content}\n</{turn.role}>")
        results = [call.result for call in turn.calls if call.result is not None]
        before += [f"<tool_response>\n{result}\n</tool_response>" for result in results]
    return steps, reasons, len(before)


def _call(call: Call) -> str:
    if call.bad_arguments is not None:
        inside = call.bad_arguments
    else:
        inside = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    return f"<tool_call>\n{inside}\n</tool_call>"


def _reason(turn: Turn, seen: set[tuple[str, str, str | None]]) -> str:
    """Return the worst fault in the step. Faults of the policy come before those of a tool."""
    reason = "an empty turn" if is_void(turn) else "nothing wrong"
    for call in turn.calls:
        key = (call.name, arguments_text(call), without_stamps(call.result))
        if call.bad_arguments is not None:
            return "a call that cannot be read"
        if call.error and fault_of(call.error) != "tool":
            return "a failed call"
        if key in seen and not call.error:
            return "a call repeated to no avail"
        if call.error:
            reason = "failed by the tool's fault"
        seen.add(key)
    return reason

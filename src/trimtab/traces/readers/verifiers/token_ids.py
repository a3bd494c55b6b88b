"""Token ids of verifiers' nodes to turns: a node holds what its message adds to the sequence,
log-probabilities of sampled tokens only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.traces.core.coerce import as_object
from trimtab.traces.core.episode import Turn

RATIO = "policy that sampled / reference"
_PER_TOKEN = ("logprobs", "reference_logprobs")
_WORDS = ("content", "tool_calls", "reasoning_content", "reasoning")


def give_ids(turns: Sequence[Turn], nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Ids, masks, log-probabilities and log-ratios to the turns, end to end the sequence that the model saw:
    those of a result go on after its call's.

    NaN stands where nothing was sampled. False, and none given, where they do not fit, or a message lacks its
    own.

    >>> turn = Turn(role="assistant")
    >>> give_ids([turn], [{"token_ids": [7, 8], "mask": [False, True], "logprobs": [-0.5],
    ...     "reference_logprobs": [-0.75]}])
    True
    >>> turn.token_ids, turn.mask, turn.logprobs, turn.log_ratios
    ([7, 8], [0, 1], [nan, -0.5], [nan, 0.25])
    """
    fits = not _gap(nodes) and _assign(turns, nodes)
    for turn in turns if not fits else ():
        turn.token_ids = turn.mask = turn.logprobs = turn.log_ratios = None
    if not any(math.isfinite(r) for turn in turns for r in turn.log_ratios or ()):
        for turn in turns:
            turn.log_ratios = None
    return fits


def _gap(nodes: Sequence[Mapping[str, Any]]) -> bool:
    """A message with words or calls has no ids, and it or a later one is the agent's or has ids.

    What follows the agent's last message was never given to the model and needs none.
    """
    rows = [(node.get("token_ids"), as_object(node.get("message"))) for node in nodes]
    last = max((i for i, (ids, own) in enumerate(rows) if ids or own.get("role") == "assistant"), default=-1)
    return any(not ids and any(own.get(name) for name in _WORDS) for ids, own in rows[: last + 1])


def _assign(turns: Sequence[Turn], nodes: Sequence[Mapping[str, Any]]) -> bool:
    at = -1
    for node in nodes:
        result = as_object(node.get("message")).get("role") == "tool"
        if not (result and (at + 1 >= len(turns) or turns[at + 1].role != "tool")):
            at += 1
        columns = _columns(node)
        if columns is None or not 0 <= at < len(turns):
            return False
        turn, (ids, mask, own, reference) = turns[at], columns
        turn.token_ids = [*(turn.token_ids or []), *ids]
        turn.mask = [*(turn.mask or []), *mask]
        turn.logprobs = [*(turn.logprobs or []), *own]
        ratios = [a - b for a, b in zip(own, reference, strict=True)]
        turn.log_ratios = [*(turn.log_ratios or []), *ratios]
    return at == len(turns) - 1


def _columns(node: Mapping[str, Any]) -> tuple[list[int], list[int], list[float], list[float]] | None:
    """Ids, mask, and log-probabilities of the sampler and of the reference, each as long as the ids; None
    where they do not fit."""
    ids, mask = node.get("token_ids") or [], node.get("mask") or []
    if not (isinstance(ids, list) and isinstance(mask, list) and len(ids) == len(mask)):
        return None
    if not all(type(i) is int for i in ids):
        return None
    sampled = [bool(m) for m in mask]
    columns: list[list[float]] = []
    for name in _PER_TOKEN:
        values = node.get(name) or []
        if not isinstance(values, list) or len(values) not in (0, sum(sampled)):
            return None
        if not all(type(value) in (int, float) for value in values):
            return None
        rest = iter(values)
        columns.append([next(rest, math.nan) if m else math.nan for m in sampled])
    return ids, [int(m) for m in sampled], columns[0], columns[1]

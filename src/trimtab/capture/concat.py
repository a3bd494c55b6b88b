"""Several small batches as one: the cost of measuring is a cost a call, and a call can serve many steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from trimtab.capture.expert_routes import EXPERT_COLUMNS
from trimtab.types import LOGPROB_COLUMNS, TokenBatch
from trimtab.typing import Bool

_TOKENS = ("loss_mask", "phase", "tool", "turn", "source")
_OPTIONAL = (
    *LOGPROB_COLUMNS, "advantages", "entropy", "reward", "policy_version", "token_ids", "group",
    *EXPERT_COLUMNS
)  # fmt: skip


def join_batches(pairs: Sequence[tuple[TokenBatch, Bool]]) -> list[tuple[TokenBatch, Bool]]:
    """Join batches into as few as their columns, tables and references allow, in order.

    A table of tools that grew by new names at its end is one table: what was `other` stays so. Only what
    measures read is kept: reward parts and stop reasons are dropped. A `group` is the same prompt wherever
    its number comes again. Policy versions are moved so that every token keeps its age under the newest
    current version.

    Args:
        pairs: batches, each with a flag a sequence (B,).

    Returns:
        The same tokens in fewer batches, each with its flags.

    Example:
        for batch, fresh in join_batches(pending):
            states = observe(batch, fresh)
    """
    joined = []
    for _, group in groupby(_one_table(pairs), key=lambda pair: _kind(pair[0])):
        batches, flags = zip(*group, strict=True)
        joined.append((_join(list(batches)), np.concatenate(flags)))
    return joined


def _one_table(pairs: Sequence[tuple[TokenBatch, Bool]]) -> list[tuple[TokenBatch, Bool]]:
    """The pairs, each with the longest table of tools that follows and begins with its own."""
    widened: list[tuple[TokenBatch, Bool]] = []
    table: tuple[str, ...] = ()
    for batch, flag in reversed(pairs):
        own = batch.tool_names
        if len(own) < len(table) and table[: len(own)] == own:
            tool = np.where(batch.tool > len(own), len(table) + 1, batch.tool).astype(batch.tool.dtype)
            batch = replace(batch, tool_names=table, tool=tool)
        table = batch.tool_names
        widened.append((batch, flag))
    return widened[::-1]


def _kind(batch: TokenBatch) -> tuple[Any, ...]:
    present = tuple(
        (name, column.shape[1:]) for name in _OPTIONAL if (column := getattr(batch, name)) is not None
    )
    tables = (batch.tool_names, batch.source_names, batch.reference, batch.same)
    return (
        present,
        batch.ref_scored is None,
        tables,
        sorted(batch.conventions.items(), key=str),
        sorted(batch.absent.items()),
        batch.current_version is None,
        batch.clip_range,
    )


def _join(batches: list[TokenBatch]) -> TokenBatch:
    if len(batches) == 1:
        return batches[0]
    first = batches[0]
    names = [
        *_TOKENS,
        "lengths",
        "episode_id",
        *(n for n in (*_OPTIONAL, "ref_scored") if getattr(first, n) is not None),
    ]
    changes: dict[str, Any] = {
        name: np.concatenate([getattr(batch, name) for batch in batches]) for name in names
    }
    changes |= {"reward_parts": {}, "stop_reason": None}
    current = [batch.current_version for batch in batches if batch.current_version is not None]
    if current and first.policy_version is not None:
        ages = [b.current_version - b.policy_version for b in batches]  # type: ignore[operator]
        changes |= {"current_version": max(current), "policy_version": max(current) - np.concatenate(ages)}
    return replace(first, **changes)

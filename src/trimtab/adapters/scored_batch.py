"""Batches that a trainer scored once before their update, as arguments of `trimtab.token_batch`. B sequences.

The mistake it prevents: a trainer's one scoring taken for pi_old of sequences that older weights sampled. It
is pi_theta. It is pi_old too for a sequence that was sampled with the weights that scored it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trimtab.errors import BatchError
from trimtab.typing import Array, Int64

OLDER = "these sequences were sampled with older weights, and nothing scored them with those"
_WHOLE = (
    "tool_names", "source_names", "clip_range", "conventions", "reference", "near", "absent",
    "current_version",
)  # fmt: skip
"""Arguments of `token_batch` that are not one entry a sequence."""


def scored_parts(columns: Mapping[str, Any], rows: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the sequences that the scoring weights sampled, and those that older ones did, each as arguments.

    Args:
        columns: Packed columns with `lengths` (B,), and `logprobs` where the trainer scored the tokens.
        rows: Arguments of `token_batch` with one entry a sequence, or for the whole batch. `policy_version`
            (B,) are the updates that the sampling weights had seen, `current_version` those that the trained
            weights have; without them all sequences are of the trained weights.

    Yields:
        Arguments of `trimtab.token_batch`.

    Raises:
        BatchError: an argument has another number of entries than there are sequences.

    Example:
        >>> columns = {"lengths": np.array([1, 1]), "logprobs": np.array([-1.0, -2.0])}
        >>> parts = scored_parts(columns, {"policy_version": [3, 2], "current_version": 3})
        >>> [sorted(part) for part in parts]  # doctest: +NORMALIZE_WHITESPACE
        [['absent', 'current_version', 'lengths', 'logprobs', 'old_logprobs', 'policy_version', 'same'],
         ['absent', 'current_version', 'lengths', 'logprobs', 'policy_version']]
    """
    count = int(columns["lengths"].size)
    current = rows.get("current_version")
    versions = _versions(rows.get("policy_version"), current, count)
    older = np.zeros(count, bool) if versions is None else versions != current
    for stale in (False, True):
        chosen = np.flatnonzero(older == stale)
        if chosen.size:
            part = {**_tokens_of(columns, chosen), **_rows_of(rows, chosen, count)}
            if versions is not None:
                part["policy_version"] = np.repeat(versions[chosen], part["lengths"])
            yield _named(part, stale)


def _named(part: dict[str, Any], stale: bool) -> dict[str, Any]:
    """Return a part with what its scores are of."""
    absent = dict(part.get("absent", {}))
    if "logprobs" not in part:
        return {**part, "absent": absent}
    if stale:
        return {**part, "absent": {**absent, "old_logprobs": OLDER}}
    same = [("old_logprobs", "logprobs")]
    return {**part, "old_logprobs": part["logprobs"], "same": same, "absent": absent}


def _versions(versions: Any, current: Any, count: int) -> Int64 | None:
    if versions is None:
        return None
    array = np.asarray(versions)
    if current is None or array.shape != (count,) or array.dtype.kind not in "iu":
        raise BatchError(
            f"policy_version must hold {count} whole numbers, one a sequence, and needs current_version"
        )
    return array.astype(np.int64)


def _tokens_of(columns: Mapping[str, Any], chosen: Int64) -> dict[str, Array]:
    """Return packed columns of some of the sequences."""
    lengths = columns["lengths"]
    keep = np.isin(np.repeat(np.arange(lengths.size), lengths), chosen)
    return {name: lengths[chosen] if name == "lengths" else array[keep] for name, array in columns.items()}


def _rows_of(rows: Mapping[str, Any], chosen: Int64, count: int) -> dict[str, Any]:
    """Return the arguments with one entry a sequence for some of the sequences."""

    def pick(name: str, entries: Any) -> Any:
        if len(entries) != count:
            raise BatchError(f"{name} has {len(entries)} entries, but there are {count} sequences")
        return [entries[i] for i in chosen.tolist()]

    picked: dict[str, Any] = {}
    for name, entries in rows.items():
        if name == "reward_parts":
            picked[name] = {part: pick(part, values) for part, values in entries.items()}
        else:
            picked[name] = entries if name in _WHOLE or entries is None else pick(name, entries)
    return picked

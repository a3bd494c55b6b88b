"""From a trainer's arrays to a validated TokenBatch.

The mistake it prevents: columns that are shifted, padded differently or of another policy, subtracted all the
same. B sequences, T padded length, N packed tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.capture.arrays import padded, rectangle, rows_of, sizes, to_array, to_boolean
from trimtab.capture.clean_values import clean_name, clean_text
from trimtab.capture.expert_routes import EXPERT_COLUMNS, expert_column, same_experts_shape
from trimtab.capture.segments import MAX_NAMES, NEAR_TOKENS, segment_tokens, tool_codes
from trimtab.errors import BatchError
from trimtab.types import LOGPROB_COLUMNS, Convention, TokenBatch

POSITIVE_TOLERANCE = 1e-3
"""A log-probability may exceed zero by this much: rounding of half-precision log-softmax."""

TOKEN_COLUMNS = (*LOGPROB_COLUMNS, "advantages", "entropy", "token_ids", "policy_version")
MAX_REFERENCE = 1_024
"""Characters of a reason or of a reference's name."""

_EPISODES = itertools.count()
SEQUENCE_COLUMNS = ("reward", "group", "episode_id", "ref_scored")


def token_batch(
    loss_mask: Any,
    *,
    lengths: Any = None,
    exists: Any = None,
    tool_tokens: Any = None,
    tools: Sequence[Sequence[str]] | None = None,
    tool_names: Sequence[str] = (),
    source: Sequence[str] | None = None,
    source_names: Sequence[str] = (),
    near: int = NEAR_TOKENS,
    reward_parts: Mapping[str, Any] | None = None,
    stop_reason: Sequence[str] | None = None,
    conventions: Mapping[str, Convention] | None = None,
    reference: str = "",
    same: Sequence[tuple[str, str]] = (),
    absent: Mapping[str, str] | None = None,
    current_version: int | None = None,
    clip_range: float | tuple[float, float] | None = None,
    **columns: Any,
) -> TokenBatch:
    """Build a `TokenBatch` from padded (B, T) arrays, packed (N,) arrays with `lengths` (B,), or lists of B
    rows.

    NaN and infinity pass: they are measured and raise alarms. Tensors are taken as they are: with a gradient,
    of any type and on any device. Rows of different lengths are padded as those of `loss_mask`.

    Args:
        loss_mask: boolean, or 0 and 1, True on tokens that receive gradient.
        lengths: (B,) tokens of each sequence, for packed arrays.
        exists: boolean (B, T), False on padding. Default: a row ends at its last True of `loss_mask`.
        tool_tokens: boolean, True on tokens a tool wrote. Default: every existing token outside `loss_mask`
            after the sequence's first token inside it; what comes before is the prompt.
        tools: for each sequence the tool names in the order of their results.
        tool_names: tools with a slice of their own, at most 16; others count as `other`.
        source: a data source name a sequence.
        source_names: sources with a slice of their own, at most 16.
        near: number of tokens after a tool result that count as near it.
        reward_parts: name -> (B,) one part of the reward.
        stop_reason: why each sequence ended.
        conventions: column -> how its log-probabilities were computed.
        reference: name of the policy of `ref_logprobs`.
        same: pairs of columns that are one policy, so that their ratio is one by construction.
        absent: column -> why it is not given.
        current_version: version of the weights trained now, to be compared with `policy_version`.
        clip_range: the trainer's clip epsilon, or (below, above) as (0.2, 0.28).
        columns: a token each: rollout_logprobs, old_logprobs, logprobs, prox_logprobs, ref_logprobs (nats, <=
            0), advantages (a token or a sequence), entropy (nats), token_ids, policy_version; routed_experts
            and rollout_routed_experts with the axes layer and expert behind the token's (-1: no record). A
            sequence each: reward, group, episode_id (tells that a sequence was seen before; without it each
            is new), ref_scored.

    Returns:
        The validated batch, packed.

    Raises:
        BatchError: an unknown column, shapes that differ, a mask with other values than 0 and 1, or a
            log-probability above zero; the message names the field.

    Example:
        >>> batch = token_batch(np.array([[True, False, True]]), logprobs=np.array([[-1.0, 0.0, -2.0]]))
        >>> batch.num_tokens, batch.phase.tolist()
        (3, [0, 1, 1])
    """
    ragged = rows_of("loss_mask", loss_mask)
    mask = _boolean("loss_mask", loss_mask if ragged is None else padded(ragged))
    unknown = sorted(set(columns) - {*TOKEN_COLUMNS, *EXPERT_COLUMNS, *SEQUENCE_COLUMNS})
    if unknown:
        known = ", ".join((*TOKEN_COLUMNS, *EXPERT_COLUMNS, *SEQUENCE_COLUMNS))
        raise BatchError(f"unknown column {unknown[0]!r}; known columns: {known}")
    rows = None if ragged is None else sizes(ragged)
    keep, size = _existing(mask, lengths, rectangle("exists", exists, rows))
    shape, num_sequences = mask.shape, int(size.size)
    packed_mask = mask[keep]
    if tool_tokens is None:
        packed_tools = ~packed_mask & _begun(packed_mask, size)
    else:
        packed_tools = _boolean("tool_tokens", rectangle("tool_tokens", tool_tokens, rows, keep), shape)[keep]
    segments = segment_tokens(size, packed_tools, near)
    values: dict[str, Any] = {}
    for name in TOKEN_COLUMNS:
        raw = columns.get(name)
        if raw is not None:
            values[name] = _token_column(
                name, rectangle(name, raw, rows, keep), shape, keep, size, packed_mask
            )
    for name in EXPERT_COLUMNS:
        if columns.get(name) is not None:
            values[name] = expert_column(name, to_array(name, columns[name]), shape, keep, packed_mask)
    same_experts_shape(values)
    for name in SEQUENCE_COLUMNS:
        raw = columns.get(name)
        if raw is not None:
            values[name] = _sequence_column(name, raw, num_sequences)
    if "episode_id" not in values:  # every sequence is a trajectory of its own
        values["episode_id"] = np.fromiter(
            itertools.islice(_EPISODES, num_sequences), np.int64, num_sequences
        )
    table, sources = _table(tool_names), _table(source_names)
    return TokenBatch(
        lengths=size,
        loss_mask=packed_mask,
        phase=segments.phase,
        turn=segments.turn,
        tool=_last_tool(segments.last_token, segments.turn, size, tools, table),
        source=_sources(source, size, sources),
        tool_names=table,
        source_names=sources,
        reward_parts={
            clean_name(k): _sequence_column(k, v, num_sequences, np.float64)
            for k, v in (reward_parts or {}).items()
        },
        stop_reason=None if stop_reason is None else _named("stop_reason", stop_reason, num_sequences),
        conventions=dict(conventions or {}),
        reference=clean_text(reference, MAX_REFERENCE),
        same=frozenset(frozenset(pair) for pair in same),
        absent={clean_name(column): clean_text(why, MAX_REFERENCE) for column, why in (absent or {}).items()},
        current_version=None if current_version is None else int(current_version),
        clip_range=_clip_range(clip_range),
        **values,
    )


def _clip_range(raw: float | tuple[float, float] | None) -> tuple[float, float] | None:
    if raw is None:
        return None
    pair = np.asarray(raw, dtype=np.float64).ravel()
    low, high = (float(pair[0]), float(pair[-1])) if pair.size in (1, 2) else (np.nan, np.nan)
    if not (0.0 < low < 1.0 and 0.0 < high < np.inf):
        raise BatchError(
            f"clip_range is one epsilon or (below, above), 0 < below < 1 and above > 0, not {raw!r}"
        )
    return low, high


def _begun(mask: npt.NDArray[np.bool_], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """(N,) True from each sequence's first True of `mask` on."""
    total = np.cumsum(mask)
    start = np.cumsum(lengths) - lengths
    before = np.concatenate([[0], total])[start]
    return np.asarray(total > np.repeat(before, lengths))


def _boolean(name: str, raw: Any, shape: tuple[int, ...] | None = None) -> npt.NDArray[np.bool_]:
    array = to_boolean(name, raw)
    if shape is None and array.ndim not in (1, 2):
        raise BatchError(f"{name} must have shape (B, T) or (N,), got {array.shape}")
    if shape is not None and array.shape != shape:
        raise BatchError(f"{name} has shape {array.shape}, loss_mask has {shape}; they must be equal")
    return array


def _existing(
    mask: npt.NDArray[np.bool_], lengths: Any, exists: Any
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Which positions are tokens, and how many each sequence has."""
    if mask.ndim == 1:
        if lengths is None:
            raise BatchError("loss_mask is packed (N,): give lengths (B,) that sum to N")
        size = to_array("lengths", lengths)
        if size.ndim != 1 or size.dtype.kind not in "iu" or (size < 0).any() or int(size.sum()) != mask.size:
            raise BatchError(f"lengths {size.shape} sum to {size.sum()}, loss_mask holds {mask.size} tokens")
        return np.ones(mask.size, bool), size.astype(np.int64)
    if exists is not None:
        keep = _boolean("exists", exists, mask.shape)
        if (mask & ~keep).any():
            raise BatchError(
                "loss_mask is True where exists is False: a padded token cannot receive gradient"
            )
        return keep, keep.sum(axis=1).astype(np.int64)
    width = mask.shape[1]
    last = (
        np.where(mask.any(axis=1), width - np.argmax(mask[:, ::-1], axis=1), 0)
        if width
        else np.zeros(len(mask))
    )
    return np.arange(width)[None, :] < last[:, None], last.astype(np.int64)


def _token_column(
    name: str,
    raw: Any,
    shape: tuple[int, ...],
    keep: npt.NDArray[np.bool_],
    lengths: npt.NDArray[np.int64],
    mask: npt.NDArray[np.bool_],
) -> npt.NDArray[Any]:
    array = to_array(name, raw)
    if name == "advantages" and array.shape == lengths.shape and array.shape != shape:
        array = np.repeat(array, lengths)
    elif array.shape != shape:
        raise BatchError(f"{name} has shape {array.shape}, loss_mask has {shape}; they must be equal")
    else:
        array = array[keep]
    if array.dtype.kind not in "fiu":
        raise BatchError(f"{name} must be numeric, got {array.dtype}")
    if name in ("token_ids", "policy_version"):
        return array.astype(np.int64, copy=False)
    array = array.astype(np.float32, copy=False)
    if name in LOGPROB_COLUMNS and mask.any():
        worst = float(np.fmax.reduce(array[mask]))  # ignores NaN: counted later, not an error of shape
        if POSITIVE_TOLERANCE < worst < np.inf:
            raise BatchError(
                f"{name} holds {worst:.6g}, above zero: give natural-log probabilities (log_softmax), not "
                f"probabilities"
            )
    return array


def _sequence_column(name: str, raw: Any, num_sequences: int, dtype: Any = None) -> npt.NDArray[Any]:
    array = to_array(name, raw)
    if array.shape != (num_sequences,):
        raise BatchError(f"{name} has shape {array.shape}, expected one value a sequence: ({num_sequences},)")
    if name == "ref_scored":
        return _boolean(name, array)
    kind = dtype or (np.float64 if name == "reward" else np.int64)
    if array.dtype.kind not in "fiub":
        raise BatchError(f"{name} must be numeric, got {array.dtype}")
    return array.astype(kind, copy=False)


def _named(name: str, raw: Sequence[str], num_sequences: int) -> tuple[str, ...]:
    if len(raw) != num_sequences:
        raise BatchError(f"{name} has {len(raw)} entries, expected one a sequence: {num_sequences}")
    return tuple(clean_name(item) for item in raw)


def _table(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(clean_name(name) for name in tuple(names)[:MAX_NAMES])


def _last_tool(
    last_token: npt.NDArray[np.int64],
    turn: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    tools: Sequence[Sequence[str]] | None,
    table: tuple[str, ...],
) -> npt.NDArray[np.uint8]:
    """Code of the tool whose result came last before each token: by its ordinal in the sequence's list of
    results."""
    codes = np.zeros(turn.size, np.uint8)
    if tools is None:
        return codes
    _named("tools", ["" for _ in tools], int(lengths.size))
    if any(isinstance(names, str) for names in tools):
        raise BatchError(
            "tools holds a plain string; give a list of tool names for each sequence, as [['search'], []]"
        )
    counts = np.array([len(names) for names in tools], dtype=np.int64)
    flat = tool_codes([clean_name(name) for names in tools for name in names], table)
    offset = np.repeat(np.cumsum(counts) - counts, lengths)
    ordinal = turn - 2  # the first result opens turn 2
    available = np.repeat(counts, lengths)
    after = last_token >= 0
    known = after & (ordinal < available)
    codes[after & ~known] = len(table) + 1
    codes[known] = flat[(offset + ordinal)[known]]
    return codes


def _sources(
    source: Sequence[str] | None, lengths: npt.NDArray[np.int64], table: tuple[str, ...]
) -> npt.NDArray[np.uint8]:
    if source is None:
        return np.zeros(int(lengths.sum()), np.uint8)
    return np.repeat(tool_codes(_named("source", source, int(lengths.size)), table), lengths)

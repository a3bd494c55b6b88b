"""What shape do the answers have: how long, cut off, repeated, empty, without a call, in how many turns?

B sequences. A turn is a run of the model's own tokens (those with gradient) between two tool results.

A turn that a tool result follows held a complete call. So only a sequence's last turn can be void, and it is
when the length limit cut it (`TRUNCATED`) or it holds fewer than two tokens; a sequence that ends with a tool
result has no void turn. A call that could not be parsed looks like an answer here. Without `stop_reason` void
turns are not observed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.token_view import own_counts, sequence_sums
from trimtab.measure.state.values import Value
from trimtab.stats import LogSketch, Moments
from trimtab.types import TokenBatch
from trimtab.typing import Bool, Float64, Int64

TRUNCATED = frozenset({"length", "max_tokens", "max_length", "max_new_tokens", "model_length", "truncated"})
"""Values of `stop_reason` that mean: the length limit cut the sequence."""

MASKED = "masked"
"""The trainer took the whole sequence out: its tokens are unknown, so it is neither empty nor short."""

NGRAM = 4
_HASH_BITS = 40  # of a 4-gram, below 24 bits of its row: one false repeat in a thousand rows of 40,000 tokens
MAX_LOOKED_AT = 16_384
"""Own tokens, of the steps that are measured together, whose repetition is counted (default, not calibrated:
about a millisecond)."""


def text_summaries(
    batch: TokenBatch, fresh: Bool, looked_at: int = 0
) -> tuple[dict[str, Any], dict[str, int], int]:
    """Sums over the fresh sequences of a batch, what was left out, and the tokens looked at for repetition so
    far."""
    own = own_counts(batch)
    stop = (
        None if batch.stop_reason is None else np.array([s.lower() for s in batch.stop_reason], dtype=object)
    )
    masked = np.zeros(own.size, bool) if stop is None else stop == MASKED
    judged = fresh & ~masked
    excluded = {"aggregate: sequence masked by the trainer": int((fresh & masked).sum())}
    lengths = LogSketch(lowest_exponent=0, highest_exponent=24)
    lengths.update(own[judged].astype(np.float32))
    summaries: dict[str, Any] = {"length/lengths": lengths, "empty/values": _moments(own[judged] < 2)}
    last, results = _turns(batch, own)
    wrote = judged & (own > 0)
    summaries["turns/values"] = _moments(last[wrote])
    if batch.tool_names or results[judged].any():
        summaries["no_call/values"] = _moments(results[judged] == 0)
    if stop is not None:
        cut = np.isin(stop, list(TRUNCATED))
        summaries["truncated/values"] = _moments(cut[judged])
        in_last = sequence_sums(
            batch.loss_mask & (batch.turn == np.repeat(last, batch.lengths)), batch.lengths
        )
        void = (results < last) & (cut | (in_last < 2))
        summaries["void/values"] = _moments(void[wrote])
    if batch.token_ids is not None:
        shares, looked_at = _repetition(batch, wrote, own, looked_at)
        summaries["repetition/values"] = _moments(shares)
        skipped = int((wrote & (own >= NGRAM)).sum()) - shares.size
        excluded["aggregate: sequence not looked at for repetition"] = skipped
    return summaries, excluded, looked_at


def text_shape(state: SliceState) -> Iterator[Value]:
    """`aggregate/length_max`, `length/p95`, and the means a sequence: `truncated_frac`, `repetition_frac`,
    `empty_frac`, `no_call_frac`, `num_turns`; `void_turn_frac` is a share of turns."""
    lengths = state.summaries.get("length/lengths")
    if lengths is not None:
        yield Value("aggregate/length_max", lengths.max, lengths.count)
        yield Value("length/p95", lengths.quantile(0.95), lengths.count)
    for what, name in _MEANS.items():
        part = state.summaries.get(f"{what}/values")
        if part is not None:
            yield Value(
                f"aggregate/{name}", part.mean(), part.count, reason="" if part.count else "no such sequence"
            )
    turns, void = state.summaries.get("turns/values"), state.summaries.get("void/values")
    if turns is not None and void is not None and turns.count == void.count:
        total = round(turns.mean() * turns.count) if turns.count else 0
        share = void.mean() * void.count / total if total else math.nan
        yield Value("aggregate/void_turn_frac", share, total, reason="" if total else "no turn")


_MEANS = {
    "truncated": "truncated_frac",
    "repetition": "repetition_frac",
    "empty": "empty_frac",
    "no_call": "no_call_frac",
    "turns": "num_turns",
}


def repeated_share(ids: Int64, rows: Int64, turn: Int64, num_rows: int) -> Float64:
    """(B,) share of 4-grams that occurred before in their row; nan for a row without one.

    Four `ids` (N,) in a row are hashed to 40 bits; `rows` (N,) says which row a token is of, in order. A
    4-gram lies within one `turn` (N,).

    >>> one = np.zeros(6, np.int64)
    >>> repeated_share(np.array([1, 2, 1, 2, 1, 2]), one, one, 1).round(3).tolist()
    [0.333]
    """
    if ids.size < NGRAM:
        return np.full(num_rows, np.nan)
    end = ids.size - NGRAM + 1
    code = np.zeros(end, np.uint64)
    for i in range(NGRAM):
        code = (code ^ ids[i : i + end].astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        code ^= code >> np.uint64(29)
    inside = (rows[:end] == rows[NGRAM - 1 :]) & (turn[:end] == turn[NGRAM - 1 :])
    code, row = code[inside], rows[:end][inside]
    keys = (row.astype(np.uint64) << np.uint64(_HASH_BITS)) | (code >> np.uint64(64 - _HASH_BITS))
    keys.sort()
    row = (keys >> np.uint64(_HASH_BITS)).astype(np.int64)
    again = np.zeros(keys.size, bool)
    again[1:] = keys[1:] == keys[:-1]
    total = np.bincount(row, minlength=num_rows)
    shares = np.full(num_rows, np.nan)
    np.divide(np.bincount(row, weights=again, minlength=num_rows), total, out=shares, where=total > 0)
    return shares


def _turns(batch: TokenBatch, own: Int64) -> tuple[Int64, Int64]:
    """(B,) turn of the last own token (0: none), and the number of tool results."""
    end = np.cumsum(batch.lengths)
    position = np.arange(batch.num_tokens)
    last = np.maximum.accumulate(np.where(batch.loss_mask, position, 0))
    there = batch.lengths > 0
    turn, results = np.zeros(own.size, np.int64), np.zeros(own.size, np.int64)
    turn[there], results[there] = batch.turn[last[end[there] - 1]], batch.turn[end[there] - 1] - 1
    return np.where(own > 0, turn, 0), results


def _repetition(batch: TokenBatch, wrote: Bool, own: Int64, looked_at: int) -> tuple[Float64, int]:
    """Shares of the first sequences that fit under `MAX_LOOKED_AT`."""
    assert batch.token_ids is not None
    total = looked_at + np.cumsum(np.where(wrote, own, 0))
    chosen = wrote & (total <= MAX_LOOKED_AT)
    if not chosen.any():
        return np.zeros(0), looked_at
    rows = np.repeat(np.arange(own.size), batch.lengths)
    keep = batch.loss_mask & chosen[rows]
    shares = repeated_share(batch.token_ids[keep], rows[keep], batch.turn[keep], own.size)
    return shares[chosen & np.isfinite(shares)], int(total[chosen].max())


def _moments(values: npt.ArrayLike) -> Moments:
    sums = Moments()
    sums.update(np.asarray(values, dtype=np.float64))
    return sums

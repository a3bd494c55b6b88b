"""Do responses still tell which prompt they answer? A proxy that needs no forward pass.

Template collapse keeps entropy calm (RAGEN-2, arXiv 2604.06268): responses differ, but not by their prompt.
Here the most similar other response, by hashed pairs of adjacent tokens, is looked up: does it answer the
same prompt? B sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.token_view import TokenView
from trimtab.measure.state.values import Value
from trimtab.stats import Moments
from trimtab.typing import Float64, Int64

MAX_SEQUENCES = 16
"""Responses compared with each other in one batch, two of each group first (default, not calibrated, for the
cost)."""

BUCKETS = 1_024  # a power of two
_TIE = 1e-5  # float32 noise of a cosine
_NOTE = "not distinguish"


def retrieval(profiles: npt.NDArray[np.float32], group: Int64) -> tuple[Float64, Float64]:
    """(hits, chance), each (Q,), of the Q responses that share their group with another one.

    `profiles` (B, D) counts, `group` (B,). The mean profile, the template, is taken away first; similarity is
    the cosine; ties count by their share, so identical responses give exactly chance, (n_group - 1) / (B -
    1).

    >>> hits, chance = retrieval(np.eye(2, dtype=np.float32)[[0, 0, 1, 1]], np.array([5, 5, 7, 7]))
    >>> hits.tolist(), round(float(chance[0]), 3)
    ([1.0, 1.0, 1.0, 1.0], 0.333)
    """
    centred = np.sqrt(profiles)
    centred = centred - centred.mean(axis=0)
    norm = np.linalg.norm(centred, axis=1)
    scale = max(1.0, float(np.sqrt(profiles.sum(axis=1)).max(initial=0.0)))
    flat = norm <= _TIE * scale
    centred = np.where(flat[:, None], 0.0, centred / np.where(flat, 1.0, norm)[:, None]).astype(np.float32)
    similar = centred @ centred.T
    np.fill_diagonal(similar, -np.inf)
    tied = similar >= similar.max(axis=1, keepdims=True, initial=-np.inf) - _TIE
    same = group[:, None] == group[None, :]
    np.fill_diagonal(same, False)
    mates = same.sum(axis=1)
    has_mate = mates > 0
    hits = (tied & same).sum(axis=1) / np.maximum(tied.sum(axis=1), 1)
    return hits[has_mate], (mates / max(1, group.size - 1))[has_mate]


def add_prompt_hits(view: TokenView, states: Mapping[str, SliceState]) -> None:
    """Hits and chance of the batch's responses, in `all`; a note says why there are none."""
    batch, state = view.batch, states.get("all")
    if state is None:
        return
    if batch.token_ids is None or batch.group is None:
        name = "token_ids" if batch.token_ids is None else "group"
        state.notes[_NOTE] = f"no {name}: {batch.absent.get(name, 'not given')}"
        return
    compared = _chosen(batch.episode_id, batch.group)
    profiles = _profiles(view, compared, batch.token_ids)
    usable = np.asarray(profiles.any(axis=1), dtype=bool)
    group = batch.group[compared][usable]
    hits, chance = retrieval(profiles[usable], group)
    if np.unique(group).size < 2:
        state.notes[_NOTE] = "fewer than two groups of responses with two tokens came in one batch"
        hits, chance = hits[:0], chance[:0]
    else:
        state.summaries["distinguish_hits/values"], state.summaries["distinguish_chance/values"] = (
            Moments(),
            Moments(),
        )
        state.summaries["distinguish_hits/values"].update(hits)
        state.summaries["distinguish_chance/values"].update(chance)
    state.excluded["distinguish: response not compared"] = batch.num_sequences - hits.size


def ngrams(state: SliceState) -> Iterator[Value]:
    """`distinguish/ngram_retrieval_accuracy`, a share over responses, with its chance level in the reason."""
    hits, chance = (state.summaries.get(f"distinguish_{part}/values") for part in ("hits", "chance"))
    if hits is not None and chance is not None:
        reason = f"chance {chance.mean():.3f}" if hits.count else "every response is alone in its group"
        yield Value("distinguish/ngram_retrieval_accuracy", hits.mean(), hits.count, reason=reason)


def _chosen(episode: Int64, group: Int64) -> Int64:
    """Rows of the sequences compared: each trajectory once, two of each group in its order of arrival, then
    two more of each, and so on, at most MAX_SEQUENCES: whatever the size of groups, several of them are
    compared."""
    first = np.sort(np.unique(episode, return_index=True)[1])
    _, start, inverse, count = np.unique(
        group[first], return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.empty(first.size, np.int64)  # place within its group
    rank[np.argsort(inverse, kind="stable")] = np.arange(first.size) - np.repeat(
        np.cumsum(count) - count, count
    )
    return np.asarray(first[np.lexsort((start[inverse], rank // 2))][:MAX_SEQUENCES])


def _profiles(view: TokenView, compared: Int64, token_ids: Int64) -> npt.NDArray[np.float32]:
    """Counts (len(kept), BUCKETS) of hashed pairs of adjacent gradient tokens."""
    row = np.full(view.batch.num_sequences, -1)
    row[compared] = np.arange(compared.size)
    mine = np.flatnonzero(row[view.sequence] >= 0)
    profile_row, at = row[view.sequence[mine]], view.at[mine]
    left = np.flatnonzero((profile_row[:-1] == profile_row[1:]) & (np.diff(at) == 1))
    one, two = (token_ids[at[end]].astype(np.uint64) for end in (left, left + 1))
    mixed = (one * np.uint64(0x9E3779B97F4A7C15)) ^ (two * np.uint64(0xC2B2AE3D27D4EB4F))
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    bucket = (mixed >> np.uint64(65 - BUCKETS.bit_length())).astype(np.int64)
    flat = np.bincount(profile_row[left] * BUCKETS + bucket, minlength=compared.size * BUCKETS)
    return flat.reshape(compared.size, BUCKETS).astype(np.float32)

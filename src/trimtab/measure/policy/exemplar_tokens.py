"""Tail exemplars: which tokens are the tail? The worst ones of text and of post_tool, with their place in the
trajectory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.capture.clean_values import clean_text
from trimtab.capture.segments import OTHER
from trimtab.measure.state.log_ratios import RATIOS
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.token_view import TokenView
from trimtab.measure.state.worst_tokens import KEPT, Worst, WorstToken
from trimtab.types import TokenBatch, Window
from trimtab.typing import Float32

EXEMPLAR_RATIOS = ("drift", "mismatch", "total")
EXEMPLAR_SLICES = ("text", "post_tool")
WRITTEN = 4
"""Tokens of a slice and ratio written when its window closes (default, not calibrated, for the cost); states
keep `KEPT`."""

_BLOCK = 64
_MAX_TEXT = 80
_CONTEXT = 8  # tokens shown on each side of a worst one (default, not calibrated)


def largest(values: Float32, k: int) -> npt.NDArray[np.int64]:
    """Places of all values that are at least the k-th largest, and above zero; NaN never is. Unordered.

    One pass over block maxima: the k largest lie in blocks whose maxima are at least the k-th largest
    maximum.

    >>> largest(np.array([3, 0, np.nan, 5, 1], dtype=np.float32), 2).tolist()
    [0, 3]
    """
    with np.errstate(invalid="ignore"):
        starts = np.arange(0, values.size, _BLOCK)
        tops = np.fmax.reduceat(values, starts) if values.size else values
        tops = tops[tops > 0]
        if not tops.size:
            return np.zeros(0, np.int64)
        bar = np.partition(tops, -k)[-k] if tops.size > k else 0.0
        index = np.flatnonzero((values >= bar) & (values > 0))
        if index.size > k:
            index = index[values[index] >= np.partition(values[index], -k)[-k]]
    return index


def add_worst_tokens(view: TokenView, states: Mapping[str, SliceState]) -> None:
    """The worst tokens of this batch by |drift|, |mismatch| and |total|; a ratio that is not observed has
    none."""
    batch, start = view.batch, np.cumsum(view.batch.lengths) - view.batch.lengths
    seen = int(np.unique(batch.episode_id, return_counts=True)[1].max(initial=1))
    slices = {"text": np.flatnonzero(view.rows == 0), "post_tool": np.flatnonzero(view.rows)}
    for ratio in EXEMPLAR_RATIOS:
        values = view.ratios.get(ratio)
        if values is None:
            continue
        size = np.abs(values)
        if RATIOS[ratio].denominator == "ref_logprobs" and batch.ref_scored is not None:
            size[~batch.ref_scored[view.sequence]] = 0.0
        for name, chosen in slices.items():
            if name in states:
                worst_index = chosen[largest(size[chosen], KEPT * seen)]
                order = np.lexsort(
                    (view.at[worst_index], batch.episode_id[view.sequence[worst_index]], -size[worst_index])
                )
                worst = Worst()
                worst.update(
                    _token(view, ratio, size, j, start) for j in worst_index[order[: KEPT * seen]].tolist()
                )
                states[name].summaries[f"{ratio}/worst"] = worst


def exemplar_row(
    name: str, window: Window, state: SliceState, token_text: Callable[[int], str] | None = None
) -> list[dict[str, Any]]:
    """The run store's row of a closed window, `WRITTEN` tokens a ratio: none when nothing was kept. The text
    is what `token_text` makes of the id."""
    tokens = {
        ratio: [[*token[:8], _text(token.token, token_text)] for token in worst.tokens[:WRITTEN]]
        for ratio in EXEMPLAR_RATIOS
        if (worst := state.summaries.get(f"{ratio}/worst")) is not None and worst.tokens
    }
    context = {
        ratio: [[_joined(t.before, token_text), _joined(t.after, token_text)] for t in worst.tokens[:WRITTEN]]
        for ratio in (tokens if token_text is not None else ())
        if (worst := state.summaries.get(f"{ratio}/worst")) is not None
    }
    head = {"step": window.last, "first": window.first, "last": window.last, "slice": name}
    return [{**head, "tokens": tokens, "context": context}] if tokens else []


def _token(view: TokenView, ratio: str, size: Float32, j: int, start: npt.NDArray[np.int64]) -> WorstToken:
    batch, at, sequence = view.batch, int(view.at[j]), int(view.sequence[j])
    first = int(start[sequence])
    before, after = (
        range(max(first, at - _CONTEXT), at),
        range(at + 1, min(first + int(batch.lengths[sequence]), at + 1 + _CONTEXT)),
    )
    ids = batch.token_ids
    numerator, denominator = (
        getattr(batch, column)[at] for column in (RATIOS[ratio].numerator, RATIOS[ratio].denominator)
    )
    return WorstToken(
        value=float(size[j]),
        numerator=float(numerator),
        denominator=float(denominator),
        episode=int(batch.episode_id[sequence]),
        position=at - int(start[sequence]),
        turn=int(batch.turn[at]),
        tool=_tool(int(batch.tool[at]), batch),
        token=-1 if ids is None else int(ids[at]),
        before=() if ids is None else tuple(int(ids[i]) for i in before),
        after=() if ids is None else tuple(int(ids[i]) for i in after),
    )


def _tool(code: int, batch: TokenBatch) -> str:
    names = batch.tool_names
    return "" if code == 0 else names[code - 1] if code <= len(names) else OTHER


def _text(token: int, token_text: Callable[[int], str] | None) -> str | None:
    return None if token_text is None or token < 0 else clean_text(token_text(token), _MAX_TEXT)


def _joined(ids: tuple[int, ...], token_text: Callable[[int], str] | None) -> str:
    return "".join(_text(token, token_text) or "" for token in ids)[: 2 * _MAX_TEXT]

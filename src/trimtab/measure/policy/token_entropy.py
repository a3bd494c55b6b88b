"""Mean entropy of the next-token distribution, a slice.

Entropy where a tool speaks: is the policy less sure right after a result than right before it (ARPO,
2507.19849)?

And the entropy's quantiles, beside the mean of `entropy.py`. M tool results, k = `BOUNDARY_TOKENS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

import numpy as np
import numpy.typing as npt

from trimtab.capture.segments import OTHER
from trimtab.catalog import BOUNDARY_TOKENS
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.token_view import MAIN_ROWS, TokenView
from trimtab.measure.state.values import Value
from trimtab.stats import Moments
from trimtab.typing import Float64


def entropy(state: SliceState) -> Iterator[Value]:
    """`entropy/mean` in nats."""
    values = state.summaries.get("entropy/values")
    if values is not None:
        yield Value("entropy/mean", values.mean(), values.count)


ONE_SIDED = "entropy: tool result without a gradient token on both sides"


def add_entropy(view: TokenView, states: Mapping[str, SliceState]) -> None:
    """Entropy sketch of the slices `MAIN_SLICES`; entropy before and after each result, in `post_tool` and
    `post_tool/<tool>`."""
    batch = view.batch
    if batch.entropy is None:
        if "all" in states:
            states["all"].notes["not entropy"] = f"no entropy: {batch.absent.get('entropy', 'not given')}"
        return
    entropy = batch.entropy[view.at]
    view.sketch("entropy/sketch", entropy, view.halves, states, MAIN_ROWS)
    before, after, tool = _sides(view, entropy.astype(np.float64))
    if not tool.size:
        return
    both = np.isfinite(before) & np.isfinite(after)
    names = (*batch.tool_names, OTHER)
    results, two_sided = (
        np.bincount(tool).tolist(),
        np.bincount(tool[both], minlength=int(tool.max()) + 1).tolist(),
    )
    sides = [Moments.by_row(side[both], tool[both], len(results)) for side in (before, after)]
    codes = {f"post_tool/{names[code - 1]}": [code] for code, n in enumerate(results) if code and n}
    for name, chosen in {"post_tool": list(range(len(results))), **codes}.items():
        if name in states:
            for key, moments in zip(("entropy_before/values", "entropy_after/values"), sides, strict=True):
                states[name].summaries[key] = reduce(Moments.merge, [moments[code] for code in chosen])
            states[name].excluded[ONE_SIDED] = sum(results[code] - two_sided[code] for code in chosen)


def borders(state: SliceState) -> Iterator[Value]:
    """`entropy/p05`, `p95` over tokens of the slices `MAIN_SLICES`; `entropy/before_call`, `after_tool`,
    `after_tool_jump` over results. nats."""
    sketch = state.summaries.get("entropy/sketch")
    if sketch is not None:
        yield Value("entropy/p05", sketch.quantile(0.05), sketch.count)
        yield Value("entropy/p95", sketch.quantile(0.95), sketch.count)
    before, after = state.summaries.get("entropy_before/values"), state.summaries.get("entropy_after/values")
    if before is not None and after is not None:
        n = before.count
        reason = "" if n else "no tool result has gradient tokens on both sides"
        yield Value("entropy/before_call", before.mean(), n, reason=reason)
        yield Value("entropy/after_tool", after.mean(), n, reason=reason)
        yield Value("entropy/after_tool_jump", after.mean() - before.mean(), n, reason=reason)


def _sides(view: TokenView, entropy: Float64) -> tuple[Float64, Float64, npt.NDArray[np.uint8]]:
    """Mean entropy before and after each result (M,), nan without a token there, and the result's tool code
    (M,)."""
    batch = view.batch
    sequence = np.repeat(np.arange(batch.num_sequences), batch.lengths)
    starts = np.ones(batch.num_tokens, bool)
    starts[1:] = sequence[1:] != sequence[:-1]
    changed = np.ones(batch.num_tokens, bool)
    changed[1:] = starts[1:] | (batch.turn[1:] != batch.turn[:-1])
    segment = np.cumsum(changed)  # one number a turn of a sequence
    result = np.flatnonzero(changed & (batch.turn > 1))
    lone = starts[result]  # a sequence that begins with a result has nothing before it
    reached = np.searchsorted(view.at, result)  # gradient tokens before the result
    mine = segment[view.at]
    back = reached[:, None] - 1 - np.arange(BOUNDARY_TOKENS)
    ahead = reached[:, None] + np.arange(BOUNDARY_TOKENS)
    before = _mean(entropy, mine, back, np.where(lone, -1, segment[result] - 1))
    return before, _mean(entropy, mine, ahead, segment[result]), batch.tool[result]


def _mean(
    entropy: Float64,
    segment: npt.NDArray[np.int64],
    index: npt.NDArray[np.int64],
    wanted: npt.NDArray[np.int64],
) -> Float64:
    """(M,) mean of the finite entropies at `places` (M, k) that lie in the segment `wanted` (M,)."""
    inside = (index >= 0) & (index < entropy.size)
    at = np.where(inside, index, 0)
    if entropy.size == 0:
        return np.full(wanted.size, np.nan)
    valid = inside & (segment[at] == wanted[:, None]) & np.isfinite(entropy[at])
    count = valid.sum(axis=1)
    total = np.where(valid, entropy[at], 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)

"""Reference support: how much probability did the reference give the tokens the policy wrote? The mechanism itself."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.catalog import bound
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.types import Value


def support(state: SliceState) -> Iterator[Value]:
    """`ref_logprob/p01, p05, p50` (nats, <= 0) and the shares below -5 and -10 nats."""
    sketch = state.parts.get("ref_logprob/sketch")
    if sketch is None:
        return
    n = sketch.count
    for label, q in (("p01", 0.01), ("p05", 0.05), ("p50", 0.5)):
        yield Value(f"ref_logprob/{label}", sketch.quantile(q), n)
    yield Value("ref_logprob/below_5_frac", sketch.share_below(bound("near_support_5")), n)
    yield Value("ref_logprob/below_10_frac", sketch.share_below(bound("near_support_10")), n)

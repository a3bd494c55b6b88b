"""Which detector on which reading, with which budget, and what a person should do about it.

Every rule's `key` is a row of the catalog, and a test proves that some measure emits it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trimtab.catalog import bound
from trimtab.detect.detector import Detector
from trimtab.detect.growth import SustainedGrowth
from trimtab.detect.trend_break import TrendBreak
from trimtab.records import Severity

__all__ = ["RULES", "STREAM_RULES", "Rule", "StreamRule"]


@dataclass(frozen=True)
class Rule:
    """A detector on one reading of one slice. `transform` is applied before the detector sees the value.

    `kind` "tail" rules may be hidden; "aggregate" rules are the ones that would have told a dashboard's reader.
    """

    name: str
    key: str
    slice: str
    kind: Literal["tail", "aggregate"]
    transform: Literal["log", "identity"]
    detector: Callable[[], Detector]
    severity: Severity
    what: str
    why: str
    advice: str
    reference: str

    def value(self, raw: float) -> float:
        """The value the detector sees; a log of zero or less is nan, which detectors count and skip."""
        if self.transform == "identity":
            return raw
        return math.log(raw) if raw > 0 else math.nan

    def raw(self, value: float) -> float:
        """The reading's own unit back from the detector's."""
        return math.exp(value) if self.transform == "log" else value


@dataclass(frozen=True)
class StreamRule:
    """A rule on the step stream itself (non-finite values, silence): same words, no reading."""

    name: str
    severity: Severity
    what: str
    why: str
    advice: str
    reference: str


_HIDDEN_POST = "docs/architecture.md, Growth; Hidden-variance post, January 2026; richardli.xyz/rl-collapse"

RULES: tuple[Rule, ...] = (
    Rule(
        "post_tool_tail_growth",
        "tail_ratio/p95",
        "post_tool",
        "tail",
        "log",
        lambda: SustainedGrowth(min_effect=bound("tail_growth")),
        "critical",
        "p95 of |drift| after a tool result grew relative to text",
        "Tokens written after a tool result come from places the reference hardly supports; ratio-based gradients grow a "
        "heavy tail there, often before any average breaks its own trend.",
        "Look at reference support and at the tools' outputs in this window. Constrain the tool's output format, raise the "
        "KL coefficient or truncate weights on post-tool tokens only, and keep the last checkpoint from before `since`.",
        _HIDDEN_POST,
    ),
    Rule(
        "lagged_drift_growth",
        "lagged_drift/p95",
        "post_tool",
        "tail",
        "log",
        lambda: SustainedGrowth(min_effect=bound("lagged_growth")),
        "critical",
        "the policy changes faster than it did, on fixed probe transcripts, after a tool result",
        "The transcripts are fixed, so this is the policy's own change and not a change of its inputs.",
        "Lower the learning rate, or take fewer updates a batch; compare with staleness and the gradient norm.",
        "docs/architecture.md, Growth",
    ),
    Rule(
        "kl_break", "aggregate/kl", "all", "aggregate", "log",
        lambda: TrendBreak(min_effect=bound("aggregate_growth"), sign=1), "warning",
        "mean KL to the reference left its own trend upwards",
        "The whole policy is moving away from the reference faster than before.",
        "Raise the KL coefficient or lower the learning rate; check which slice carries it.",
        "house default",
    ),
    Rule(
        "grad_norm_growth", "aggregate/grad_norm", "all", "aggregate", "log",
        lambda: SustainedGrowth(min_effect=bound("aggregate_growth")), "warning",
        "the gradient norm grew over its own baseline",
        "Updates are growing; a collapse by too large steps looks like this.",
        "Check gradient clipping and the learning rate; look at the share of |A w| held by one trajectory.",
        "richardli.xyz/rl-collapse, case 1",
    ),
    Rule(
        "reward_drop", "aggregate/reward", "all", "aggregate", "identity",
        lambda: TrendBreak(min_frac=bound("reward_frac"), sign=-1), "warning",
        "mean reward fell below its own trend",
        "Either the policy got worse or the environment did.",
        "Check tool failures first, then reward parts; roll back when the tools are healthy.",
        "house default",
    ),
    Rule(
        "entropy_break", "aggregate/entropy", "all", "aggregate", "log",
        lambda: TrendBreak(min_effect=bound("aggregate_growth"), sign=0), "warning",
        "mean entropy left its own trend",
        "A sudden fall is the start of a collapse to few answers; a sudden rise, of noise.",
        "Look at entropy by slice, and at the outputs themselves.",
        "RAGEN, arXiv 2504.20073",
    ),
)  # fmt: skip
"""Rules on readings of closed windows. All have the same false-alarm budget: the catalog's `arl`."""

STREAM_RULES: dict[str, StreamRule] = {
    "nonfinite": StreamRule(
        "nonfinite", "critical", "NaN or infinity in {column}",
        "A value that should alarm must not be dropped: training on it destroys the weights silently.",
        "Stop or roll back to before `since`; look for division by zero, log of zero, overflow of a ratio, a broken engine.",
        "house rule 2; verl#747, verl#721",
    ),
    "column_silent": StreamRule(
        "column_silent", "critical", "{column} stopped arriving",
        "A verdict that rests on a column that is no longer there would be a guess.",
        "Check the adapter's cost and error lines below; until it is back, this run is not being watched there.",
        "house rule 9",
    ),
}  # fmt: skip

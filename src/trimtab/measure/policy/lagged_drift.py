"""Lagged drift: how much did the policy itself change over the last K steps, on transcripts that never
change?

The same tokens are scored again at a cadence; log pi_t - log pi_(t-K) is free of any change of inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from trimtab.errors import BatchError
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.values import Value
from trimtab.measure.tokens.log_ratio_tails import tails
from trimtab.types import Reading, TokenBatch, Window
from trimtab.typing import Float32


@dataclass
class Probes:
    """Holds the last scoring of the probes; `update` compares the next one with it.

    `observe` gives the state of each slice of a batch (`trimtab.measure.accumulate.observe`).
    """

    observe: Callable[[TokenBatch], Mapping[str, SliceState]]
    last_step: int = -1
    last: Float32 | None = None

    def update(self, step: int, batch: TokenBatch) -> list[Reading]:
        """Return the readings `lagged_drift/*` of each slice since the last scoring; none at the first
        scoring.

        Raises BatchError when the number of tokens differs from the last time: then they are not the same
        transcripts.
        """
        if batch.logprobs is None:
            raise BatchError("probes need logprobs: score the fixed transcripts with the current policy")
        earlier, since = self.last, self.last_step
        if earlier is not None and earlier.shape != batch.logprobs.shape:
            raise BatchError(
                f"probes hold {batch.logprobs.size} tokens, {earlier.size} at the last scoring: keep them "
                f"fixed"
            )
        self.last, self.last_step = batch.logprobs, step
        if earlier is None:
            return []
        pair = replace(
            batch, prox_logprobs=earlier, ref_logprobs=None, old_logprobs=None, rollout_logprobs=None,
            entropy=None
        )  # fmt: skip
        window, reference = Window(since + 1, step), f"the policy at step {since}"
        return [
            _reading(value, name, window, state, reference)
            for name, state in self.observe(pair).items()
            for value in tails(state)
        ]


def _reading(value: Value, name: str, window: Window, state: SliceState, reference: str) -> Reading:
    return Reading(
        value.key, window.last, window, name, value.value, state.n_tokens, state.n_trajectories, value.low,
        value.high, reference, state=state,
    )  # fmt: skip

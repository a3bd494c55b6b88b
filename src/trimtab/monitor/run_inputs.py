"""What a loop may give a run beside batches: probes, updates, gradients, cross scores, tool calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

from trimtab.measure.policy.gradients import gradient_values
from trimtab.measure.policy.input_dependence import Distinguish
from trimtab.measure.policy.lagged_drift import Probes
from trimtab.measure.sequences.clean_calls import clean_call
from trimtab.measure.sequences.episode_totals import Episodes
from trimtab.measure.sequences.reencoding import difference
from trimtab.measure.state.values import step_readings
from trimtab.measure.steps.series_history import SeriesHistory
from trimtab.monitor.series_recorder import SeriesRecorder
from trimtab.monitor.step_buffer import Intake
from trimtab.traces.core.tool_call import ToolCall
from trimtab.types import Reading, TokenBatch


class RunInputs:
    """The methods of `Run` that take something in for the open step, and where they put it."""

    probes: Probes
    distinguish: Distinguish
    episodes: Episodes
    pending_tools: list[ToolCall]
    _fed: set[str]
    _intake: Intake
    _series: SeriesRecorder
    _step_readings: list[Reading]

    def isolated(self, where: str, cost: str = "watch") -> AbstractContextManager[None]:
        """Return a context that records its block's failure; `Run` has it."""
        raise NotImplementedError

    @property
    def series(self) -> SeriesHistory:
        """Values of the last steps by series and slice, with standard errors; `flush` adds a step's."""
        return self._series.history

    def observe_update(
        self, before: Any, after: Any, *, of: Literal["batch", "probes"] = "batch", **arrays: Any
    ) -> None:
        """Give the log-probabilities of the same tokens before and after the update of the open step.

        The series `update/p95` and `probe_update/p95` are the size of that one update, in nats. Score both
        with the same code and settings, without dropout.

        Args:
            before: log-probabilities under the weights before the update, in the shape of `loss_mask`.
            after: the same tokens under the weights after it.
            of: what was scored: a sample of the step's own sequences, or fixed transcripts.
            **arrays: `loss_mask`, and any other arguments of `trimtab.token_batch` that tell the slices apart
                (`exists`, `lengths`, `tool_tokens`, `tools`, `source`, `episode_id`).

        Example:
            run.observe_update(before, after, loss_mask=mask, tools=tools)
            run.flush(step)
        """
        with self.isolated("observe update"):
            self._series.add_update(
                of, self._intake.batch(arrays | {"prox_logprobs": before, "logprobs": after})
            )

    def probe(self, step: int, batch: TokenBatch) -> None:
        """Add a scoring of the fixed probe transcripts by the policy at `step`; see `measure.policy`."""
        with self.isolated("probe"):
            self._step_readings += self.probes.update(step, batch)

    def gradients(
        self,
        step: int,
        parts: Mapping[str, Any],
        tokens: Mapping[str, int] | None = None,
        gram: bool = False,
    ) -> None:
        """Add the per-trajectory gradients of `step`: slice -> (n, d) vectors, or with `gram` slice -> (n, n)
        Gram matrices. `tokens`: slice -> gradient tokens. One call a step, with all of its trajectories."""
        with self.isolated("gradients"):
            self._fed.add("gradient")
            self._step_readings += step_readings(step, gradient_values(parts, tokens, gram))

    def cross_scores(self, step: int, scores: Any, own: Any) -> None:
        """Add a scoring of R responses under P prompts at `step`: `scores` (R, P) mean log-probabilities a
        token, `own` (R,) the prompt each response answers, counted from 0. See `measure.distinguish`."""
        with self.isolated("cross scores"):
            self._fed.add("cross_scores")
            values = self.distinguish.update(scores, own)
            self._step_readings += step_readings(step, [("all", value, counts) for value, counts in values])

    def tool_call(self, call: ToolCall) -> None:
        """Record one tool call, written at the next flush; what cannot be stored is changed and counted."""
        with self.isolated("tool call"):
            self.pending_tools.append(clean_call(call, self._intake.door))

    def retokenised(self, sampled: Sequence[int], reencoded: Sequence[int]) -> None:
        """Compare a sampled sequence's ids with those its decoded text encodes to."""
        with self.isolated("retokenised"):
            self.episodes.retokenised(difference(sampled, reencoded))

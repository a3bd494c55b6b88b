"""Log-probability and experts of each sampled token in transformers' own sampling loop.

B rows of one call of generate, N steps, V words. The recorder is the last logits processor: it sees
temperature, top-k, top-p and penalties applied, which is the distribution mu the token is drawn from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import LogitsProcessor

from trimtab.errors import ObjectiveError
from trimtab.objectives.routing_replay import RoutingReplay


class Recorder(LogitsProcessor):
    """Log-probabilities of the tokens drawn from the scores it was shown; one (B, V) is kept at a time."""

    def __init__(self) -> None:
        self.logs: list[torch.Tensor] = []
        self.scores: torch.Tensor | None = None
        self.calls = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self.scores is not None:
            self._take(input_ids[:, -1])
        self.scores = scores
        self.calls += 1
        return scores

    def _take(self, tokens: torch.Tensor) -> None:
        assert self.scores is not None
        wide = self.scores.float()
        chosen = wide.gather(1, tokens.to(wide.device)[:, None])[:, 0]
        self.logs.append(chosen - wide.logsumexp(dim=1))

    def rows(self, completions: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return log-probabilities of each completion; ObjectiveError without logits processors."""
        if not self.calls:
            raise ObjectiveError(
                "generate() showed the recorder no scores, so the sampler's log-probabilities are unknown: "
                "the model's "
                "generate is not transformers' sampling loop; use a rollout_func that returns logprobs"
            )
        last = [own[self.calls - 1] if len(own) >= self.calls else 0 for own in completions]
        assert self.scores is not None
        self._take(torch.tensor(last, device=self.scores.device))
        self.scores = None
        table = torch.stack(self.logs, dim=1).tolist()
        return [logs[: len(own)] for logs, own in zip(table, completions, strict=True)]


class OwnRollout:
    """One generation of the trainer, over the turns of its tool loop: log-probabilities of each turn, routes
    of each row.

    `routes[row]` (n, L, K) belong to the first n of `ids[row]`; the last sampled token has never been fed.
    """

    def __init__(self, replay: RoutingReplay | None) -> None:
        self.replay = replay
        self.ids: list[list[int]] = []
        self.routes: list[torch.Tensor] = []

    @contextmanager
    def turn(self, model: Any) -> Iterator[_Turn]:
        """Around one `generate` of the unwrapped `model`."""
        recorder, inner = Recorder(), model._get_logits_processor
        before = vars(model).get("_get_logits_processor")

        def with_recorder(*args: Any, **kwargs: Any) -> Any:
            processors = inner(*args, **kwargs)
            processors.append(recorder)
            return processors

        model._get_logits_processor = with_recorder
        try:
            if self.replay is None:
                yield _Turn(self, recorder, None)
            else:
                with self.replay.recording() as recording:
                    yield _Turn(self, recorder, recording)
        finally:
            del model._get_logits_processor
            if before is not None:
                model._get_logits_processor = before

    def add(
        self, prompts: list[list[int]], completions: list[list[int]], routes: torch.Tensor, steps: int
    ) -> None:
        """Append what this turn fed first: `routes` (B, P + steps - 1, L, K), prompts padded on the left to
        P.

        A later turn feeds the whole prefix again; the routes of tokens fed before stay those that sampled
        them. Its rows are a subset of the first turn's in order, recognised by their tokens so far.
        """
        width, first, row = routes.shape[1] - steps + 1, not self.ids, -1
        for prompt, completion, own in zip(prompts, completions, routes.cpu(), strict=True):
            start = width - len(prompt)
            fed = own[start : start + len(prompt) + max(len(completion) - 1, 0)]
            if first:
                self.ids.append([*prompt, *completion])
                self.routes.append(fed)
                continue
            row = self._row_of(prompt, row + 1)
            self.routes[row] = torch.cat([self.routes[row], fed[len(self.routes[row]) :]])
            self.ids[row] = [*prompt, *completion]

    def _row_of(self, prompt: list[int], start: int) -> int:
        for row in range(start, len(self.ids)):
            if prompt[: len(self.ids[row])] == self.ids[row]:
                return row
        raise ObjectiveError("a turn of the tool loop continues no earlier one: its routes cannot be joined")


class _Turn:
    def __init__(self, rollout: OwnRollout, recorder: Recorder, recording: Any) -> None:
        self.rollout, self.recorder, self.recording = rollout, recorder, recording

    def finish(self, prompts: list[list[int]], completions: list[list[int]]) -> list[list[float]]:
        """Log-probabilities of each completion; its routes go to the rollout."""
        logs = self.recorder.rows(completions)
        if self.recording is not None:
            self.rollout.add(prompts, completions, self.recording.routes(len(prompts)), self.recorder.calls)
        return logs

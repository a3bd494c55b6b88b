"""How trainer.args say to sample: what temperature, top-k, top-p, min-p and a repetition penalty leave of
logits.

The processors and their order are those of transformers' own sampling loop, so that mu means the same from
either engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)


@dataclass(frozen=True)
class Sampling:
    """The sampler's settings, off by default; `log_probabilities` is log mu of each word. B rows, V words.

    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 3.0]])
    >>> table = Sampling(top_k=2).log_probabilities([[0], [0]], logits)
    >>> table.exp()  # e / (1 + e) = 0.7311
    tensor([[0.7311, 0.2689, 0.0000],
            [0.0000, 0.5000, 0.5000]], dtype=torch.float64)
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float | None = None
    repetition_penalty: float = 1.0

    @classmethod
    def of(cls, args: Any) -> Sampling:
        """Of a GRPOConfig."""
        return cls(args.temperature, args.top_k, args.top_p, args.min_p, args.repetition_penalty)

    def log_probabilities(self, before: Sequence[Sequence[int]], logits: torch.Tensor) -> torch.Tensor:
        """(B, V) float64, minus infinity where a word is cut; `before` are each row's tokens so far, `logits`
        (B, V).
        """
        scores = logits.double()
        if self.repetition_penalty != 1.0:
            punish = RepetitionPenaltyLogitsProcessor(self.repetition_penalty)
            rows = [punish(torch.tensor([own]), scores[i : i + 1]) for i, own in enumerate(before)]
            scores = torch.cat(rows)
        nothing = torch.zeros(len(scores), 0, dtype=torch.long)  # the others do not read what was written
        for processor in self._warpers():
            scores = processor(nothing, scores)
        return scores.log_softmax(dim=1)

    def _warpers(self) -> list[Any]:
        warpers: list[Any] = []
        if self.temperature != 1.0:
            warpers.append(TemperatureLogitsWarper(self.temperature))
        if self.top_k:
            warpers.append(TopKLogitsWarper(self.top_k))
        if self.top_p < 1.0:
            warpers.append(TopPLogitsWarper(self.top_p))
        if self.min_p is not None:
            warpers.append(MinPLogitsWarper(self.min_p))
        return warpers

"""Batches for the tests of losses: ragged rows, float64, every policy different, some tokens masked in the middle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


@dataclass
class Batch:
    logprobs: torch.Tensor
    old: torch.Tensor
    rollout: torch.Tensor
    prox: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor


def make(seed: int = 0, rows: int = 5, tokens: int = 7, scale: float = 0.4) -> Batch:
    """Row 0 is whole, row 1 fully masked, the rest ragged with holes."""
    rng = np.random.default_rng(seed)
    now = -rng.exponential(2.0, (rows, tokens))
    mask = rng.random((rows, tokens)) < 0.7
    mask[0], mask[1 % rows] = True, rows < 2
    other = [torch.tensor(now + scale * rng.normal(size=now.shape)) for _ in range(3)]
    advantages = torch.tensor(rng.normal(size=rows))
    return Batch(torch.tensor(now), *other, advantages, torch.tensor(mask))


def tokens_of(batch: Batch) -> list[tuple[int, int]]:
    return [(i, t) for i, row in enumerate(batch.mask.tolist()) for t, on in enumerate(row) if on]


def clamp(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)

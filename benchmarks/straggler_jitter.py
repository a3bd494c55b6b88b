"""Step times of ranks as real jobs have them: the generator that straggler figures rest on.

A step has R ranks and seven phases. Seconds of a phase are its base times

- a constant factor a rank, lognormal with 2 % (Sinha et al. 2022, arXiv 2208.11035: GPUs of one kind differ by 8 % on average, outliers
  more; the constants of a phase are drawn apart, as a rank may have slow disks and fast clocks);
- a common factor a step, lognormal with 5 % and autocorrelated (0.8): shared file systems and networks slow all ranks at once;
- noise a rank and step, lognormal with 3 % and autocorrelated (0.4);
- a spike in 1 % of steps, 1 + a Pareto(1.5) variable, at most 10 times as long: garbage collection, page faults, other tenants (the tail at
  scale, Dean and Barroso 2013, CACM 56(2)). One spike in ten lasts three steps.

A rollout takes as long as its tokens: each rank draws 32 responses, lognormal lengths with sigma 0.6, cut at 4 times the median, and its time
is half by the longest and half by the sum (continuous batching). That gives a rank's rollout a coefficient of variation near 10 % a
step. `sync` is what is left until the slowest rank arrives, so it mirrors the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BASES = {"rollout": 6.0, "tools": 1.5, "reward": 0.5, "forward": 1.0, "backward": 2.0, "optimizer": 0.4}
"""Seconds of the phases of a step of 11.4 s; the smallest is 3.5 % of it."""
PHASES = tuple(BASES)


@dataclass(frozen=True)
class Jitter:
    """How uneven healthy ranks are; standard deviations of logarithms."""

    offset: float = 0.02
    common: float = 0.05
    common_phi: float = 0.8
    noise: float = 0.03
    noise_phi: float = 0.4
    spike_rate: float = 0.01
    length_sigma: float = 0.6
    responses: int = 32


def step_times(
    rng: np.random.Generator,
    steps: int,
    ranks: int,
    jitter: Jitter | None = None,
    plant: tuple[int, str, int, float] | None = None,
) -> list[dict[int, dict[str, float]]]:
    """Rank -> phase -> seconds of each step. `plant`: rank, phase, first step and factor of a slow phase."""
    j = jitter or Jitter()
    shape = (steps, ranks, len(PHASES))
    base = np.array(list(BASES.values()))
    logs = np.broadcast_to(rng.normal(0, j.offset, (1, ranks, len(PHASES))), shape).copy()
    logs += _ar1(rng, (steps, 1, len(PHASES)), j.common, j.common_phi)
    logs += _ar1(rng, shape, j.noise, j.noise_phi)
    seconds = base * np.exp(logs) * _spikes(rng, shape, j.spike_rate)
    seconds[:, :, 0] *= _rollout(rng, steps, ranks, j)
    if plant is not None:
        rank, phase, first, factor = plant
        seconds[first:, rank, PHASES.index(phase)] *= factor
    busy = seconds.sum(axis=2)
    sync = busy.max(axis=1, keepdims=True) - busy + 0.05 * np.exp(0.2 * rng.normal(size=busy.shape))
    table = np.concatenate([seconds, sync[:, :, None]], axis=2)
    names = (*PHASES, "sync")
    return [{r: dict(zip(names, row, strict=True)) for r, row in enumerate(step)} for step in table.tolist()]


def _ar1(rng: np.random.Generator, shape: tuple[int, ...], sd: float, phi: float) -> np.ndarray:
    noise = rng.normal(0, sd * np.sqrt(1 - phi**2), shape)
    noise[0] = rng.normal(0, sd, shape[1:])
    for t in range(1, shape[0]):
        noise[t] += phi * noise[t - 1]
    return noise


def _spikes(rng: np.random.Generator, shape: tuple[int, ...], rate: float) -> np.ndarray:
    factor = np.ones(shape)
    for t, r, p in np.argwhere(rng.random(shape) < rate).tolist():
        size, length = min(1 + rng.pareto(1.5), 10.0), 3 if rng.random() < 0.1 else 1
        factor[t : t + length, r, p] = np.maximum(factor[t : t + length, r, p], size)
    return factor


def _rollout(rng: np.random.Generator, steps: int, ranks: int, j: Jitter) -> np.ndarray:
    """(steps, ranks) seconds of rollouts over their mean."""
    lengths = np.minimum(np.exp(rng.normal(0, j.length_sigma, (steps, ranks, j.responses))), 4.0)
    expected = np.exp(j.length_sigma**2 / 2)
    seconds = 0.5 * lengths.max(axis=2) / 3.0 + 0.5 * lengths.mean(axis=2) / expected
    return seconds / seconds.mean()

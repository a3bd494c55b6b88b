"""Generated logs with known truth: healthy ones and every pathology at three strengths.

The two halves share neither noise family, nor learning curve (but flat), nor season, nor shape of onset: detectors are
tuned on `tuning` and judged on `test`. Committed before any rule was tuned. Everything follows from (half, kind, seed).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from benchmarks.banks import noise, shapes
from benchmarks.banks.pathologies import PATHOLOGIES, STRENGTHS
from benchmarks.banks.series import SERIES, Key, Series

__all__ = ["STEPS", "Half", "Log", "healthy", "pathological"]

Half = Literal["tuning", "test"]
STEPS = 600
Float = npt.NDArray[np.float64]
_HEALTHY = ("stationary", "learning", "seasonal", "restarts")


@dataclass(frozen=True)
class Log:
    """One run's series. `onset` is -1 and `family` "healthy" in a healthy one; `series` (steps, values) by key and slice."""

    id: str
    kind: str
    family: str
    strength: str
    onset: int
    phi: float
    noise: str
    num_steps: int
    series: dict[Key, tuple[list[int], list[float]]]


def healthy(half: Half, num: int, steps: int = STEPS, first: int = 0) -> Iterator[Log]:
    """`num` healthy runs from seed `first` on: stationary, learning, seasonal, restarted, in turn; phi 0..0.95."""
    for seed in range(first, first + num):
        rng = np.random.default_rng([0 if half == "tuning" else 1, 7, seed])
        phi = float(rng.choice([0.0, 0.3, 0.6, 0.9, 0.95]) if half == "tuning" else rng.uniform(0.0, 0.95))
        kind = _HEALTHY[seed % len(_HEALTHY)]
        yield _log(rng, half, f"{half}-{kind}-{seed}", kind, phi, steps)


def pathological(
    half: Half, seeds: int, strengths: tuple[str, ...] = tuple(STRENGTHS), first: int = 0
) -> Iterator[Log]:
    """Every pathology at each strength, `seeds` times from seed `first` on; phi 0..0.6, onset between steps 200 and 300 of 600."""
    for number, name in enumerate(PATHOLOGIES):
        for strength in strengths:
            for seed in range(first, first + seeds):
                rng = np.random.default_rng([0 if half == "tuning" else 1, 11, number, seed])
                phi = float(rng.choice([0.0, 0.3, 0.6]) if half == "tuning" else rng.uniform(0.0, 0.6))
                yield _log(rng, half, f"{half}-{name}-{strength}-{seed}", name, phi, STEPS, strength)


def _log(
    rng: np.random.Generator, half: Half, name: str, kind: str, phi: float, steps: int, strength: str = ""
) -> Log:
    tuning = half == "tuning"
    noises = noise.TUNING if tuning else noise.TEST
    curves = shapes.TUNING_CURVES if tuning else shapes.TEST_CURVES
    family = str(rng.choice(list(noises)))
    t = np.arange(steps, dtype=np.float64)
    learning = kind != "stationary" and (kind == "learning" or rng.random() < 0.5)
    moving = [c for c in curves if c != "flat"]
    curve = curves[str(rng.choice(moving)) if learning else "flat"](rng, t)
    season = np.zeros(steps)
    if kind == "seasonal":
        seasons = shapes.TUNING_SEASONS if tuning else shapes.TEST_SEASONS
        season = seasons[str(rng.choice(list(seasons)))](rng, t) * rng.uniform(0.5, 1.5)
    restart = _restarts(rng, t) if kind == "restarts" else np.zeros(steps)
    onset, late = -1, np.zeros(steps)
    pathology = PATHOLOGIES.get(kind)
    if pathology is not None:
        onset = int(rng.integers(200, 301))
        onsets = shapes.TUNING_ONSETS if tuning else shapes.TEST_ONSETS
        late = onsets[str(rng.choice(list(onsets)))](rng, t, onset)
        if not pathology.learning:
            curve = np.minimum(curve, curve[onset])
    series: dict[Key, tuple[list[int], list[float]]] = {}
    for key, row in SERIES.items():
        sign = pathology.moves.get(key, 0.0) if pathology else 0.0
        moved = row.learning * curve + row.sd * (
            noises[family](rng, steps, phi)
            + row.season * season
            + (restart if key[0] in _SHAKEN else 0.0)
            + sign * STRENGTHS.get(strength, 0.0) * late
        )
        series[key] = _logged(row, moved)
    truth = pathology.family if pathology else "healthy"
    return Log(name, kind, truth, strength, onset, phi, family, steps, series)


_SHAKEN = frozenset(
    {"aggregate/grad_norm", "aggregate/step_s", "aggregate/mismatch_kl", "aggregate/policy_kl"}
)


def _restarts(rng: np.random.Generator, t: Float) -> Float:
    """One to three restarts from a checkpoint, each a bump of two standard deviations that is gone in some ten steps."""
    out = np.zeros_like(t)
    for at in rng.integers(60, t.size - 20, size=int(rng.integers(1, 4))).tolist():
        out += np.where(t >= at, 2.0 * np.exp(-(t - at) / rng.uniform(2.0, 4.0)), 0.0)
    return out


def _logged(row: Series, moved: Float) -> tuple[list[int], list[float]]:
    """On the series' own scale, inside its domain, at its cadence."""
    values = row.level * np.exp(moved) if row.scale == "log" else row.level + moved
    values = np.clip(values, row.low, row.high)
    chosen = np.arange(row.every - 1, values.size, row.every)
    return chosen.tolist(), values[chosen].tolist()

"""What a healthy run looks like besides noise: learning curves, seasons, restarts; and how a pathology sets in.

T steps. Curves run from 0 to 1. The tuning half and the test half share no shape.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]
Shape = Callable[[np.random.Generator, Float], Float]


def flat(rng: np.random.Generator, t: Float) -> Float:
    """No learning: a stationary run."""
    del rng
    return np.zeros_like(t)


def saturating(rng: np.random.Generator, t: Float) -> Float:
    """1 - exp(-t/tau)."""
    return np.asarray(1.0 - np.exp(-t / rng.uniform(0.1, 0.5) / t[-1]))


def logistic(rng: np.random.Generator, t: Float) -> Float:
    """Slow, fast, slow: from 0 to 1 around a middle, none of it abrupt (a width of at least a tenth of the run)."""
    middle, width = rng.uniform(0.2, 0.6) * t[-1], rng.uniform(0.1, 0.2) * t[-1]
    raw = 1.0 / (1.0 + np.exp(-(t - middle) / width))
    return np.asarray(raw - raw[0])


def power(rng: np.random.Generator, t: Float) -> Float:
    """A power law: fast at first, never quite flat."""
    return np.asarray(((t + 1.0) ** rng.uniform(0.3, 0.6) - 1.0) / ((t[-1] + 1.0) ** 0.5))


def hill(rng: np.random.Generator, t: Float) -> Float:
    """t^2 / (t^2 + h^2)."""
    h = rng.uniform(0.2, 0.5) * t[-1]
    return np.asarray(t**2 / (t**2 + h**2))


def sine(rng: np.random.Generator, t: Float) -> Float:
    """A curriculum that comes and goes smoothly."""
    return np.asarray(np.sin(2 * np.pi * (t / rng.uniform(40, 160) + rng.random())))


def square(rng: np.random.Generator, t: Float) -> Float:
    """A curriculum of two kinds of batches in turn."""
    period = rng.uniform(12, 60)
    return np.asarray(np.sign(np.sin(2 * np.pi * (t / period + rng.random()))))


def sawtooth(rng: np.random.Generator, t: Float) -> Float:
    """A curriculum that gets harder within each epoch."""
    return np.asarray(2.0 * ((t / rng.uniform(30, 120) + rng.random()) % 1.0) - 1.0)


def step(rng: np.random.Generator, t: Float, onset: int) -> Float:
    """At once."""
    del rng
    return np.asarray((t >= onset).astype(float))


def ramp(rng: np.random.Generator, t: Float, onset: int) -> Float:
    """Linearly over 10 to 40 steps."""
    return np.asarray(np.clip((t - onset + 1) / rng.uniform(10, 40), 0.0, 1.0))


def ease(rng: np.random.Generator, t: Float, onset: int) -> Float:
    """Exponentially towards the new level, with a time of 5 to 20 steps."""
    late = np.clip(t - onset + 1, 0.0, None)
    return np.asarray(1.0 - np.exp(-late / rng.uniform(5, 20)))


def smooth(rng: np.random.Generator, t: Float, onset: int) -> Float:
    """A raised cosine over 15 to 50 steps."""
    u = np.clip((t - onset + 1) / rng.uniform(15, 50), 0.0, 1.0)
    return np.asarray(0.5 - 0.5 * np.cos(np.pi * u))


TUNING_CURVES: dict[str, Shape] = {"flat": flat, "saturating": saturating, "logistic": logistic}
TEST_CURVES: dict[str, Shape] = {"flat": flat, "power": power, "hill": hill}
TUNING_SEASONS: dict[str, Shape] = {"sine": sine}
TEST_SEASONS: dict[str, Shape] = {"square": square, "sawtooth": sawtooth}
Onset = Callable[[np.random.Generator, Float, int], Float]
TUNING_ONSETS: dict[str, Onset] = {"step": step, "ramp": ramp}
TEST_ONSETS: dict[str, Onset] = {"ease": ease, "smooth": smooth}
